//! The names of values of a track.

/// A series of a track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    pub track: &'static str,
    /// The series' name in the track.
    pub name: String,
    pub unit: &'static str,
}
