//! Ids of ops for the plugins that record: `run --plugin-ids`. A plugin keeps a stack of ids for each
//! thread, so it knows which op has launched a kernel, and says so with the argument `External id` of the
//! kernel. The op's record has the same id ([`record::page::KEY_PLUGIN_ID`]).
//!
//! Ids count from 1 in each process. They are given to calls of all threads in the order of their begins.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use plugin_host::Correlation;
use plugin_host::session::Stack;

use crate::os::kept::keep;

/// The plugins of this recording that take ids; null while there are none. Never freed: another thread
/// may be using it, and a [`Correlation`] does nothing after its session's end.
static TAKERS: AtomicPtr<Vec<Correlation>> = AtomicPtr::new(std::ptr::null_mut());
/// The last id in use.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Gives ids to these plugins from now on. Returns whether any of them takes ids.
pub fn begin(all: Vec<Correlation>) -> bool {
    let takers: Vec<Correlation> = all.into_iter().filter(|one| one.wants(Stack::Ops)).collect();
    if takers.is_empty() {
        return false;
    }
    TAKERS.store(std::ptr::from_ref(keep(takers)).cast_mut(), Ordering::Release);
    true
}

/// Gives no more ids.
pub fn end() {
    TAKERS.store(std::ptr::null_mut(), Ordering::Release);
}

fn takers() -> &'static [Correlation] {
    // SAFETY: null, or a list that `begin` has published and that is never freed or changed.
    unsafe { TAKERS.load(Ordering::Acquire).as_ref() }.map_or(&[], Vec::as_slice)
}

/// Pushes a new id on the calling thread, and returns it; 0 if no plugin takes ids.
pub fn push() -> u64 {
    let takers = takers();
    if takers.is_empty() {
        return 0;
    }
    let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    takers.iter().for_each(|one| one.push(Stack::Ops, id));
    id
}

/// Pops the id that the calling thread has pushed last.
pub fn pop() {
    takers().iter().for_each(|one| one.pop(Stack::Ops));
}
