//! A series of values: its track, name and unit.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    pub track: &'static str,
    /// The name within the track.
    pub name: String,
    pub unit: &'static str,
}
