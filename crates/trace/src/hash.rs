//! Defines hash maps for lookups per call or event, for which the standard library's hash costs as
//! much as the rest of the work.
//!
//! The keys come from files that strangers may have made. The hash (foldhash) has a seed that
//! differs from process to process, so nobody can make a file in advance whose keys all collide.
//! The order of iteration also differs from process to process, so nothing that is written may
//! depend on it.

/// A map with small keys: numbers and short texts.
pub type FastMap<K, V> = hashbrown::HashMap<K, V>;
