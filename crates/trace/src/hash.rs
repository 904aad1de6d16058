//! Defines hash maps for lookups that are made for each call or event. For these, the hash of the
//! standard library would take as much time as the rest of the work.
//!
//! The keys come from files that strangers may have made. The hash (foldhash) has a seed that
//! differs from process to process, so nobody can make a file whose keys all have the same hash.
//! The order of iteration also differs from process to process, so nothing that is written may
//! depend on this order.

/// A map for small keys, such as numbers and short texts.
pub type FastMap<K, V> = hashbrown::HashMap<K, V>;
