//! What a value of a track is called.

/// A series of a track.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The track.
    pub track: &'static str,
    /// Its name in the track.
    pub name: String,
    /// Its unit.
    pub unit: &'static str,
}
