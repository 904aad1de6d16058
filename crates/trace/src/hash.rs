//! Defines hash maps for lookups that are made for each call or event. For these, the hash of the
//! standard library would take as much time as the rest of the work.
//!
//! The keys come from files that strangers may have made. The hash (foldhash) has a seed that
//! differs from process to process, so that nobody can make a file whose keys have the same hash.
//! The order of iteration differs, too, so nothing that is written may depend on it.

/// A hash map for small keys, such as numbers and short texts.
pub type FastMap<K, V> = hashbrown::HashMap<K, V>;
