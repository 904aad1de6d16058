//! The names and units of a track's series.

/// A series of a track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    pub track: &'static str,
    /// The series' name in the track.
    pub name: String,
    pub unit: &'static str,
}
