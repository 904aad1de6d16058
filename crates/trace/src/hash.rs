//! Maps that are looked up for each call or event, where the hash of the standard library costs as
//! much as the rest of the work.
//!
//! The keys come from files that strangers may have made. The hash (foldhash) has a seed that
//! differs from process to process, so that a file whose keys all collide cannot be made in
//! advance. The order of iteration differs from process to process, too: nothing that is written
//! may depend on it.

/// A map by small keys: numbers and short texts.
pub type FastMap<K, V> = hashbrown::HashMap<K, V>;
