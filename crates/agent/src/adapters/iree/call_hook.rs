//! The two functions that a runtime built with `IREE_HAL_EXECUTABLE_LIBRARY_CALL_HOOK` calls before
//! and after each workgroup, if a library exports them.
//!
//! Usually, the agent replaces the functions in the export tables of executable libraries (compiled
//! code) by stubs, which record the calls. The functions in this file record calls that have no
//! stub: those of libraries that are loaded without `mprotect` and `dlsym`, such as libraries
//! linked into the program. At each call, the functions look whether the export table contains a
//! stub, so that no call is recorded twice.
//!
//! The runtime tells the hook which function it calls, but not for which workgroup. So these calls
//! are recorded with a workgroup count of 0,0,0, which no real dispatch has. The recorded time of a
//! call includes a few nanoseconds in which the first function returns to the runtime and the
//! runtime calls the second.

use std::mem::offset_of;
use std::sync::atomic::{AtomicPtr, Ordering};

use abi::iree::{CallHook, ExportTableV5, ExportTableV6, LibraryHead, LibraryV5, LibraryV6};
use model::Loss;

use crate::adapters::iree::{library, patch, probe, slots};
use crate::os::sys::ErrnoGuard;
use crate::process::load;
use crate::process::lock::Lock;
use crate::process::panics::{guarded, guarded_apart};
use crate::process::part::Process;
use crate::state::epoch;

// The table of functions must be at the same offset in both versions of IREE's interface.
const _: () = assert!(offset_of!(LibraryV5, exports) == offset_of!(LibraryV6, exports));
const _: () = assert!(offset_of!(ExportTableV5, count) == offset_of!(ExportTableV6, count));
const _: () = assert!(offset_of!(ExportTableV5, ptrs) == offset_of!(ExportTableV6, ptrs));
/// The exported functions have this type, but are written in assembly.
const _: Option<CallHook> = None;

/// Stored instead of an export's id if the user's filter excludes the export.
const NOT_RECORDED: u32 = u32::MAX;

/// A library that was first seen in a call of the hook. It is never freed. A later call finds it by
/// two addresses: that of the library and that of its table of functions. If a library were
/// unloaded and another one loaded at the same place, the second would be mistaken for the first.
/// But runtimes unload only libraries that they have loaded, and such libraries normally have stubs
/// and are not stored here.
struct Known {
    library: usize,
    pointers: usize,
    /// Export ids by ordinal.
    exports: Vec<u32>,
    next: *const Known,
}

static KNOWN: AtomicPtr<Known> = AtomicPtr::new(std::ptr::null_mut());

// The assembly code adds a fifth argument: the value that the stack pointer has when the hook is
// entered. The functions that the runtime calls between the two calls of the hook have their stack
// frames below this address. So calls that an exception left without an end can be distinguished
// from nested calls.
#[cfg(target_arch = "x86_64")]
macro_rules! exported {
    ($name:ident, $body:ident) => {
        /// See the module's documentation.
        ///
        /// # Safety
        /// The requirements of [`CallHook`] apply: the library must be loaded.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            std::arch::naked_asm!("endbr64", "mov r8, rsp", "jmp {body}", body = sym $body)
        }
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! exported {
    ($name:ident, $body:ident) => {
        /// See the module's documentation.
        ///
        /// # Safety
        /// The requirements of [`CallHook`] apply: the library must be loaded.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            std::arch::naked_asm!("bti c", "mov x4, sp", "b {body}", body = sym $body)
        }
    };
}

exported!(iree_hal_executable_library_call_hook_begin, begin);
exported!(iree_hal_executable_library_call_hook_end, end);

unsafe extern "C" fn begin(
    _name: usize,
    _length: usize,
    library: *const LibraryHead,
    ordinal: usize,
    frame: usize,
) {
    guarded(|| {
        point!(CallHookBegin);
        // SAFETY: the runtime calls this hook with a library that it has loaded.
        if let Some(export) = unsafe { export_of(library, ordinal, true) } {
            // SAFETY: the runtime calls this hook on the thread that will call the function next.
            unsafe { probe::begin_hooked(export, frame) };
        }
    });
}

unsafe extern "C" fn end(
    _name: usize,
    _length: usize,
    library: *const LibraryHead,
    ordinal: usize,
    _frame: usize,
) {
    guarded(|| {
        point!(CallHookEnd);
        // SAFETY: the runtime calls this hook with a library that it has loaded.
        if let Some(export) = unsafe { export_of(library, ordinal, false) } {
            // SAFETY: the runtime calls this hook on the thread that called the function.
            unsafe { probe::end_hooked(export) };
        }
    });
}

/// Returns the id of the called export, or `None` if a stub records this call or if it is not
/// recorded at all. If `take_in` is set, registers a library that is not known yet.
///
/// # Safety
/// `library` must be null or a library that is loaded.
#[inline(always)]
unsafe fn export_of(library: *const LibraryHead, ordinal: usize, take_in: bool) -> Option<u32> {
    if !epoch::wanted() || library.is_null() {
        return None;
    }
    // SAFETY: by contract, the library is loaded. A library whose header has one of these versions
    // has the tables that are read here. Of any other library, only the header is read.
    let pointers = unsafe {
        let header = (*library).header;
        if header.is_null() || !abi::iree::VERSIONS.contains(&(*header).version) {
            return None;
        }
        let table = &raw const (*library.cast::<LibraryV6>()).exports;
        let (count, pointers) = ((*table).count as usize, (*table).ptrs);
        if ordinal >= count || pointers.is_null() || slots::is_stub(*pointers.add(ordinal) as usize)
        {
            return None;
        }
        pointers as usize
    };
    let known = find(library as usize, pointers);
    let known = match known {
        Some(known) => known,
        None if take_in => meet(library, pointers)?,
        None => return None,
    };
    known.exports.get(ordinal).copied().filter(|export| *export != NOT_RECORDED)
}

fn find(library: usize, pointers: usize) -> Option<&'static Known> {
    let mut at: *const Known = KNOWN.load(Ordering::Acquire);
    // SAFETY: each pointer in the list is null or was leaked by `meet`, so it is valid for ever.
    while let Some(known) = unsafe { at.as_ref() } {
        if known.library == library && known.pointers == pointers {
            return Some(known);
        }
        at = known.next;
    }
    None
}

#[cold]
#[inline(never)]
fn meet(library: *const LibraryHead, pointers: usize) -> Option<&'static Known> {
    let _errno = ErrnoGuard::new();
    guarded_apart(|| {
        let run = load::load()?;
        let lock = Lock::take()?;
        point!(CallHookMeet);
        // Another thread may have added the library first.
        if let Some(known) = find(library as usize, pointers) {
            return Some(known);
        }
        let process = Process::current_locked(run, &lock)?;
        let exports = match library::read(library) {
            Some(mut found) => {
                patch::introduce(&mut found, run, &process, &lock);
                let id = |e: &record::meta::Export| if e.recorded { e.id } else { NOT_RECORDED };
                found.library.exports.iter().map(id).collect()
            }
            None => {
                process.lose(Loss::LibraryRejected, 1, 0);
                Vec::new()
            }
        };
        let known = Box::leak(Box::new(Known {
            library: library as usize,
            pointers,
            exports,
            next: KNOWN.load(Ordering::Acquire),
        }));
        KNOWN.store(known, Ordering::Release);
        Some(&*known)
    })
    .flatten()
}
