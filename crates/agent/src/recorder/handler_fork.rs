//! Handles a fork by a signal handler that has interrupted the recorder. When the handler returns
//! in the child, the recorder continues to write a record that it had begun in the parent. But the
//! child cannot use the parent's memory for this: thread states are wiped in a forked child, and
//! the record's page belongs to the parent. (Pages are parts of the pool, the memory that
//! `counterpoint run` shares with the processes of a run.)
//!
//! ```text
//!  before the fork    copy the thread's state                    (its memory will be wiped)
//!  in the child       put the copy back, marked as detached      (the interrupted code finishes in it)
//!                     map private memory over the parent's page  (its writes go nowhere)
//!  at the next call   attach again, as every forked child does
//! ```
//!
//! The agent cannot distinguish a fork by a handler from a fork by the program itself. So it takes
//! these steps whenever a thread that is being recorded forks. In the parent, they cost one mapping
//! and one copy. Longer work than writing a record, such as attaching and flushing, cannot be
//! interrupted by a handler, because signals are blocked meanwhile.
//!
//! If a handler makes the system call `clone` directly, none of this code runs. In this case, the
//! child must not return from the handler.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use model::MAX_COUNTERS;
use record::pool::MOST_PAGES;

use crate::os::sys::{self, ErrnoGuard};
use crate::os::{own_image, own_stack};
use crate::recorder::thread::{self, Thread};
use crate::state::run::{self, Run};

#[repr(C)]
pub(crate) struct Saved {
    thread: MaybeUninit<Thread>,
    /// Addresses of the pages through which counters are read without a system call. Linux does not
    /// map these pages in the child.
    counter_pages: [usize; MAX_COUNTERS],
}

const SAVED_BYTES: usize = size_of::<Saved>().next_multiple_of(4096);

/// One bit for each page of the pool, set if private memory is mapped over the page in this
/// process.
static PRIVATE: [AtomicU64; MOST_PAGES / 64] = [const { AtomicU64::new(0) }; MOST_PAGES / 64];

unsafe extern "C" {
    /// The function that `pthread_atfork` calls. It is used here because glibc provides
    /// `pthread_atfork` only in a static library.
    fn __register_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
        library: *mut c_void,
    ) -> c_int;
}

pub fn watch() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.swap(true, Ordering::Relaxed) {
        // SAFETY: the functions stay valid, because this library is never unloaded.
        unsafe {
            __register_atfork(Some(before), Some(in_parent), Some(in_child), std::ptr::null_mut())
        };
    }
}

extern "C" fn before() {
    let _errno = ErrnoGuard::new();
    let thread = thread::current();
    // SAFETY: `thread` is null or the calling thread's own state. If this runs in a signal handler,
    // the interrupted code continues only afterwards.
    unsafe {
        if thread.is_null() || (*thread).epoch.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Ok(place) = sys::map_present(SAVED_BYTES) else { return };
        let saved = place.cast::<Saved>();
        (&raw mut (*saved).thread).cast::<Thread>().copy_from_nonoverlapping(thread, 1);
        let pages = &mut (*saved).counter_pages;
        for (place, page) in pages.iter_mut().zip((*thread).counters.user_pages()) {
            *place = page;
        }
        thread::set_saved(place.cast());
    }
}

extern "C" fn in_parent() {
    let _errno = ErrnoGuard::new();
    let saved = thread::take_saved();
    if !saved.is_null() {
        sys::unmap(saved.cast(), SAVED_BYTES);
    }
    if run::current().is_some_and(|run| run.counter_mask != 0) {
        own_image::make_own();
    }
}

/// The function that an adapter has registered with [`call_in_child`], or null.
static ADAPTERS_OWN: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Registers a function that is called in each forked child, on the child's only thread, before the
/// agent's own work there. At most one adapter may call this.
pub fn call_in_child(function: fn()) {
    ADAPTERS_OWN.store(function as *mut (), Ordering::Release);
}

extern "C" fn in_child() {
    let function = ADAPTERS_OWN.load(Ordering::Acquire);
    if !function.is_null() {
        let _errno = ErrnoGuard::new();
        // SAFETY: only `call_in_child` stores to this pointer, and it stores a `fn()`.
        unsafe { std::mem::transmute::<*mut (), fn()>(function)() };
    }
    let saved = thread::take_saved().cast::<Saved>();
    if saved.is_null() {
        return;
    }
    let _errno = ErrnoGuard::new();
    let thread = thread::current();
    // SAFETY: the state's memory is mapped and wiped, and there is no other thread in this process.
    // The copy was made from this thread's state, which is plain data.
    unsafe {
        thread.copy_from_nonoverlapping((*saved).thread.as_ptr(), 1);
        (*thread).epoch.store(0, Ordering::Relaxed);
        (*thread).memory = 0;
        (*thread).draws.part();
        let (pool, page) = ((*thread).run.pool, (*thread).page_number());
        if pool.stand_in(page).is_ok() {
            PRIVATE[page / 64 % PRIVATE.len()].fetch_or(1 << (page % 64), Ordering::Relaxed);
        }
        for page in (*saved).counter_pages.iter().filter(|page| **page != 0) {
            // A page of zeros says that the counter is not running on a CPU.
            let _ = sys::map_zeros_at(*page, 4096);
        }
    }
    sys::unmap(saved.cast(), SAVED_BYTES);
}

/// Forgets which pages of the pool are replaced by private memory. Called when a session (a
/// recording that the program itself asks for) begins, because those pages are in the pools of
/// earlier sessions.
pub fn forget_private_pages() {
    PRIVATE.iter().for_each(|word| word.store(0, Ordering::Relaxed));
}

/// Maps the shared page again if private memory is mapped over this page of the pool. Called before
/// a claimed page is used. Returns false if the shared page cannot be mapped.
pub fn share(run: &Run, page: usize) -> bool {
    let (word, bit) = (&PRIVATE[page / 64 % PRIVATE.len()], 1 << (page % 64));
    if word.load(Ordering::Relaxed) & bit == 0 {
        return true;
    }
    let shared = run.pool.share_again(page, &run.pool_path).is_ok();
    if shared {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
    shared
}

/// glibc's `_Fork`, which exists since glibc 2.34.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

pub fn prepare() {
    // SAFETY: the name is a C string. With RTLD_NEXT, dlsym finds the definition that comes after
    // this library's.
    let look = || unsafe { libc::dlsym(libc::RTLD_NEXT, c"_Fork".as_ptr()) };
    let real = own_stack::run(look).unwrap_or(std::ptr::null_mut());
    REAL.store(real, Ordering::Relaxed);
}

/// Replaces `_Fork`, the async-signal-safe fork, because it does not run the handlers of
/// `pthread_atfork`.
///
/// # Safety
/// The requirements of `_Fork(3)` apply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Fork() -> libc::pid_t {
    if REAL.load(Ordering::Relaxed).is_null() {
        prepare();
    }
    let real = REAL.load(Ordering::Relaxed);
    if real.is_null() {
        sys::set_errno(libc::ENOSYS);
        return -1;
    }
    before();
    // SAFETY: `real` is the C library's `_Fork`, which has this type.
    let child = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> libc::pid_t>(real)()
    };
    if child == 0 {
        in_child();
    } else {
        in_parent();
    }
    child
}
