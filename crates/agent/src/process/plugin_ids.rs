//! Ids of ops for the profiler plugins that record (`run --plugin-ids`). The agent pushes an id to
//! the plugins when an op begins, and pops it when the op ends. So a plugin knows which op has
//! launched a compute kernel, and writes the op's id as the kernel's argument `External id`. The
//! op's record contains the same id ([`record::page::KEY_PLUGIN_ID`]).
//!
//! All threads of a process take ids from one counter, which begins at 1; a forked child continues
//! at its parent's last id.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use plugin_host::Correlation;
use plugin_host::lineage::process_number;
use plugin_host::session::Stack;

use crate::os::kept::keep;

/// The plugins that take ids in one recording.
struct Takers {
    all: Vec<Correlation>,
    /// The process that records ([`process_number`]). Forked children cannot use these plugins.
    process: u32,
    /// The last id that was pushed before this recording. Ops that began before this recording may
    /// still be in progress, but their ids were not pushed to these plugins.
    before: u64,
}

impl Takers {
    fn has(&self, id: u64) -> bool {
        id > self.before
    }
}

/// The plugins that take ids; null if there are none. A list is never freed, because another thread
/// may be using it.
static TAKERS: AtomicPtr<Takers> = AtomicPtr::new(std::ptr::null_mut());
/// The last id that was pushed, or 0.
static LAST: AtomicU64 = AtomicU64::new(0);

/// After this call, [`push`] pushes ids to those plugins of `all` that take ids. Returns whether
/// there are such plugins.
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

pub fn end() {
    TAKERS.store(std::ptr::null_mut(), Ordering::Release);
}

fn takers() -> Option<&'static Takers> {
    // SAFETY: `TAKERS` is null or a list that `begin` has published, which is never freed or
    // changed.
    unsafe { TAKERS.load(Ordering::Acquire).as_ref() }
}

/// Returns whether the plugins that take ids belong to an ancestor process. Ids that this process
/// pushes do not reach those plugins.
pub fn are_inherited() -> bool {
    takers().is_some_and(|takers| takers.process != process_number())
}

/// Pushes a new id for the calling thread, and returns it; 0 if no plugin takes ids.
pub fn push() -> u64 {
    let Some(takers) = takers() else { return 0 };
    let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    takers.all.iter().for_each(|one| one.push(Stack::Ops, id));
    id
}

/// Pops this id, which must be the last one that the calling thread has pushed. Does nothing if the
/// id is older than the present recording, or if no plugin takes ids.
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

    /// Runs `body` in a forked child, which has its own copy of the statics. Returns what `body`
    /// returned.
    fn in_child(body: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child only runs `body`, which only allocates and forks again, and then the
        // child ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let holds = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            // SAFETY: `_exit` ends the child without running destructors or handlers of the parent.
            unsafe { libc::_exit(i32::from(!matches!(holds, Ok(true)))) }
        }
        let mut status = -1;
        // SAFETY: `child` was forked above, and `status` has space for its status.
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
