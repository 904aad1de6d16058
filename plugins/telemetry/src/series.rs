//! What a value of a track is called.

/// A series of a track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    pub track: &'static str,
    /// The series' name in the track.
    pub name: String,
    pub unit: &'static str,
}
