//! The names and ids of libraries and their exports (recorded functions), for all adapters.
//!
//! An id is unique among all adapters of a process, and a forked child keeps its parent's ids. The
//! names of a library are kept until the process ends, because a forked child has to write them to
//! its own part of the profile, and the library may be unloaded by then.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use record::meta::{Frame, Library};
use record::wire::xxh64;

use crate::process::hosts::Described;
use crate::process::lock::Lock;

/// A distinct library that this process or an ancestor has registered: a node of a list. Nodes are
/// never freed, and new ones are added at the front. So the list can be read without a lock, even
/// in a child that was forked during a change.
struct Known {
    /// Hash of the library's metadata, except ids and time.
    identity: u64,
    first_export: u32,
    host: &'static Described,
    frame: Vec<u8>,
    next: *const Known,
}

static KNOWN: AtomicPtr<Known> = AtomicPtr::new(std::ptr::null_mut());
static NEXT_EXPORT: AtomicU32 = AtomicU32::new(0);
static NEXT_LIBRARY: AtomicU32 = AtomicU32::new(0);

fn known() -> impl Iterator<Item = &'static Known> {
    let mut at: *const Known = KNOWN.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: each pointer in the list is null or was leaked by `remember`.
        let node = unsafe { at.as_ref() }?;
        at = node.next;
        Some(node)
    })
}

/// Takes `count` export ids for something other than functions, such as ops. Returns the first id.
pub fn take_exports(count: u32) -> u32 {
    NEXT_EXPORT.fetch_add(count, Ordering::Relaxed)
}

/// Takes a library id for something without exports, such as a virtual machine.
pub fn take_library() -> u32 {
    NEXT_LIBRARY.fetch_add(1, Ordering::Relaxed)
}

pub fn for_each_known(mut body: impl FnMut(&Described, &[u8])) {
    known().for_each(|known| body(known.host, &known.frame));
}

/// Assigns ids to the exports of a library and, if the library is new, to the library itself. If an
/// equal library was seen before (a module that was loaded again), this library gets the same
/// export ids, and the function returns `None`. Otherwise, it returns the library's frame (its
/// metadata as bytes). The caller must write this frame to the profile, after the description of
/// the library's host.
pub fn remember(
    library: &mut Library,
    host: &'static Described,
    ticks: u64,
    _: &Lock,
) -> Option<&'static [u8]> {
    library.host = host.number();
    let identity = xxh64(&Frame::Library(library.clone()).to_bytes());
    let seen = known().find(|k| k.identity == identity);
    let count = library.exports.len() as u32;
    let first = match seen {
        Some(known) => known.first_export,
        None => NEXT_EXPORT.fetch_add(count, Ordering::Relaxed),
    };
    for (i, export) in library.exports.iter_mut().enumerate() {
        export.id = first + i as u32;
    }
    if seen.is_some() {
        return None;
    }
    library.id = NEXT_LIBRARY.fetch_add(1, Ordering::Relaxed);
    library.ticks = ticks;
    let node = Box::leak(Box::new(Known {
        identity,
        first_export: first,
        host,
        frame: Frame::Library(library.clone()).to_bytes(),
        next: KNOWN.load(Ordering::Acquire),
    }));
    KNOWN.store(node, Ordering::Release);
    Some(&node.frame)
}
