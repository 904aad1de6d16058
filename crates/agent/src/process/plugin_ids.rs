//! Ids of ops for the plugins that record: `run --plugin-ids`. A plugin keeps a stack of ids for
//! each thread, so it knows which op has launched a kernel, and writes that as the argument
//! `External id` of the kernel. The op's record has the same id ([`record::page::KEY_PLUGIN_ID`]).
//!
//! Ids count from 1 in each process. They are given to calls of all threads in the order of their starts.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use plugin_host::Correlation;
use plugin_host::lineage::process_number;
use plugin_host::session::Stack;

use crate::os::kept::keep;

/// The plugins of one recording that take ids.
struct Takers {
    all: Vec<Correlation>,
    /// The process that records ([`process_number`]). Its forked children inherit the list, but not the
    /// plugins.
    process: u32,
    /// The last id before this recording. Ids up to it were pushed in earlier sessions of the plugins, and
    /// ops that have them may still be in progress.
    before: u64,
}

impl Takers {
    /// Returns whether the plugins have got this id in this recording.
    fn has(&self, id: u64) -> bool {
        id > self.before
    }
}

/// The plugins that take ids; null if there are none. Never freed, because another thread may be
/// using it, and a [`Correlation`] does nothing after its session's end.
static TAKERS: AtomicPtr<Takers> = AtomicPtr::new(std::ptr::null_mut());
/// The last id in use.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Gives ids to these plugins from now on. Returns whether any of them takes ids.
pub fn begin(all: Vec<Correlation>) -> bool {
    let all: Vec<Correlation> = all.into_iter().filter(|one| one.wants(Stack::Ops)).collect();
    if all.is_empty() {
        return false;
    }
    let before = LAST.load(Ordering::Relaxed);
    let takers = Takers { all, process: process_number(), before };
    TAKERS.store(std::ptr::from_ref(keep(takers)).cast_mut(), Ordering::Release);
    true
}

/// Stops giving ids.
pub fn end() {
    TAKERS.store(std::ptr::null_mut(), Ordering::Release);
}

fn takers() -> Option<&'static Takers> {
    // SAFETY: `TAKERS` is null or a list that `begin` has published, which is never freed or
    // changed.
    unsafe { TAKERS.load(Ordering::Acquire).as_ref() }
}

/// Returns whether the plugins that take ids belong to a process from which this process was
/// forked, so that ids do not reach the plugins.
pub fn are_inherited() -> bool {
    takers().is_some_and(|takers| takers.process != process_number())
}

/// Pushes a new id on the calling thread, and returns it; 0 if no plugin takes ids.
pub fn push() -> u64 {
    let Some(takers) = takers() else { return 0 };
    let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    takers.all.iter().for_each(|one| one.push(Stack::Ops, id));
    id
}

/// Pops this id, the last one that the calling thread has pushed. Does nothing if the plugins have
/// begun a new recording since then, because they do not have the id.
pub fn pop(id: u64) {
    if let Some(takers) = takers().filter(|takers| takers.has(id)) {
        takers.all.iter().for_each(|one| one.pop(Stack::Ops));
    }
}

#[cfg(test)]
mod tests {
    use super::{
        LAST, Ordering, TAKERS, Takers, are_inherited, keep, process_number, push, takers,
    };

    /// Runs `body` in a forked child, whose statics are its own, and returns whether it was true there.
    fn in_child(body: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child only runs `body`, which only allocates, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let holds = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            // SAFETY: `_exit` ends the child without running anything of the parent's.
            unsafe { libc::_exit(i32::from(!matches!(holds, Ok(true)))) }
        }
        let mut status = -1;
        // SAFETY: `child` was forked above, and `status` has room for its status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        status == 0
    }

    fn publish() {
        let before = LAST.load(Ordering::Relaxed);
        let takers = Takers { all: Vec::new(), process: process_number(), before };
        TAKERS.store(std::ptr::from_ref(keep(takers)).cast_mut(), Ordering::Release);
    }

    #[test]
    fn a_forked_child_knows_that_it_has_inherited_the_plugins() {
        assert!(in_child(|| {
            let none = !are_inherited();
            publish();
            none && !are_inherited() && push() == 1 && in_child(are_inherited)
        }));
    }

    #[test]
    fn ids_of_an_earlier_session_are_not_popped_in_the_next() {
        assert!(in_child(|| {
            publish();
            let open = push();
            publish();
            let new = push();
            let is_known = |id: u64| takers().is_some_and(|takers| takers.has(id));
            !is_known(open) && is_known(new)
        }));
    }
}
