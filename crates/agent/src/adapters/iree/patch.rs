//! Registers an executable library: stores its names, and puts stubs into its export table in place
//! of the functions that are to be recorded.

use std::sync::atomic::{AtomicUsize, Ordering};

use abi::iree::{Environment, LibraryHead, Query, VERSIONS};
use model::Loss;

use crate::adapters::iree::HOST;
use crate::adapters::iree::library::{self, Found};
use crate::adapters::iree::slots;
use crate::os::sys::{self, ErrnoGuard};
use crate::process::lock::Lock;
use crate::process::panics::guarded_apart;
use crate::process::part::Process;
use crate::process::{cost, load, losses, names};
use crate::state::epoch;
use crate::state::run::Run;

/// Asks a query function for its library, newest version of the interface first, and registers the
/// library. The query function gets an empty environment, because compiled modules do not use the
/// environment. Returns the id of the library's first export.
pub fn query_and_take_in(query: usize) -> Option<u32> {
    // SAFETY: `query` is the address of a symbol with the query function's name, inside text that
    // its loader has relocated and made executable.
    let query = unsafe { std::mem::transmute::<usize, Query>(query) };
    for version in VERSIONS {
        // SAFETY: the query function of a compiled module only compares the version and returns a
        // constant.
        let library = unsafe { query(version, &Environment::ZERO) };
        if !library.is_null() {
            return take_in(library);
        }
    }
    None
}

/// Calls [`take_in`] from a function that the host called: on a separate stack, without changing
/// `errno`, and without letting a panic reach the host. Then calls `then` with the id of the first
/// export. Does nothing if `head` is null or nothing is being recorded.
pub fn take_in_guarded(head: *const LibraryHead, then: impl FnOnce(Option<u32>)) {
    if head.is_null() || !epoch::wanted() {
        return;
    }
    let _errno = ErrnoGuard::new();
    guarded_apart(|| then(take_in(head)));
}

/// Registers a library. Does not change the entries of the export table that already contain stubs.
/// Returns the id of the first export.
fn take_in(head: *const LibraryHead) -> Option<u32> {
    let run = load::load()?;
    cost::of_loading(|| take_in_now(head, run))
}

fn take_in_now(head: *const LibraryHead, run: &'static Run) -> Option<u32> {
    let Some(lock) = Lock::take() else {
        losses::lose(Loss::LibraryRejected, 1, libc::EDEADLK);
        return None;
    };
    let process = Process::current_locked(run, &lock)?;
    point!(TakeIn);
    let Some(mut found) = library::read(head) else {
        process.lose(Loss::LibraryRejected, 1, 0);
        return None;
    };
    introduce(&mut found, run, &process, &lock);
    patch(&found, &process, &lock);
    found.library.exports.first().map(|export| export.id)
}

/// Decides which exports are recorded, assigns their ids, and writes the description of a new
/// library to the profile.
pub fn introduce(found: &mut Found, run: &Run, process: &Process, lock: &Lock) {
    if found.truncated > 0 {
        process.lose(Loss::NameTruncated, found.truncated, 0);
    }
    for export in &mut found.library.exports {
        export.recorded = run.records(&export.name);
    }
    if let Some(frame) = names::remember(&mut found.library, &HOST, run.clock.begin(), lock) {
        process.tell(&HOST);
        process.append_bytes(frame);
    }
}

fn patch(found: &Found, process: &Process, lock: &Lock) {
    let mut table = Table::default();
    for export in found.library.exports.iter().filter(|e| e.recorded) {
        let place = found.pointers + 8 * export.ordinal as usize;
        let Some(original) = sys::read_value::<usize>(place) else {
            process.lose(Loss::LibraryRejected, 1, libc::EFAULT);
            return;
        };
        if original == 0 || slots::is_stub(original) {
            continue;
        }
        let Some(stub) = slots::claim(original, place, export.id, lock) else {
            process.lose(Loss::SlotsExhausted, 1, 0);
            continue;
        };
        if let Err(errno) = table.store(place, stub) {
            slots::give_back(stub, lock);
            process.lose(Loss::LibraryRejected, 1, errno);
            return;
        }
    }
}

/// Writes to tables of pointers, which may already be read-only (RELRO). The fields are the memory
/// page that was last written to, and the protection of this page.
#[derive(Default)]
struct Table {
    page: usize,
    protection: i32,
}

impl Table {
    fn store(&mut self, place: usize, value: usize) -> Result<(), i32> {
        let page = sys::page_of(place);
        if self.page != page {
            self.protection = sys::protection_of(place).ok_or(libc::EFAULT)?;
            self.page = page;
        }
        let writable = self.protection & libc::PROT_WRITE != 0;
        if !writable {
            sys::protect(page, sys::page_size(), self.protection | libc::PROT_WRITE)?;
        }
        // SAFETY: `place` was just read; it is an entry of a table of functions, and it is writable
        // now. Another thread may read the entry at the same time with a plain load. Because the
        // store is atomic, that thread gets the old pointer or the new one, never a mixture.
        unsafe { &*(place as *const AtomicUsize) }.store(value, Ordering::Release);
        if !writable {
            sys::protect(page, sys::page_size(), self.protection)?;
        }
        Ok(())
    }
}
