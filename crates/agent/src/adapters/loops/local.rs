//! The data of a thread about its tables: a few words in the static TLS block, like the recorder's
//! ([`crate::recorder::thread`]), so that finding a table needs no call and no allocation.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use abi::loops::Entry;

/// The thread-local.
#[repr(C)]
pub struct Local {
    /// The thread's places of tables, in memory that a forked child finds zeroed; null if there are
    /// none.
    pub places: *mut Places,
    /// The data that the thread owns ([`super::tables`]), of which a forked child has a copy; null
    /// if there is none.
    pub owned: *mut c_void,
    /// The hits for which counters were read at their start ([`super::counters`]); null if there
    /// are none.
    pub stack: *mut c_void,
    /// Number of times that the thread's exit was noticed.
    pub lives: u32,
}

const _: () = assert!(size_of::<Local>() == 32);

/// The address that stands for a table for which there was no room.
pub const NOTHING: usize = 1;

/// The addresses of tables, by the numbers of their modules. A forked child finds this memory
/// zeroed.
#[repr(C)]
pub struct Places {
    /// The epoch that the tables belong to; 0 if there are none.
    pub epoch: AtomicU32,
    /// The number of tables.
    pub count: u32,
    /// The first of `count` tables.
    pub first: [*mut Entry; 0],
}

impl Places {
    /// Returns the table of a module: null if there is none of this epoch, [`NOTHING`] if there
    /// will be none.
    ///
    /// # Safety
    /// The memory after this struct must have room for `count` tables.
    #[inline(always)]
    pub unsafe fn get(&self, number: usize, epoch: u32) -> *mut Entry {
        if self.epoch.load(Ordering::Relaxed) != epoch || number >= self.count as usize {
            return std::ptr::null_mut();
        }
        // SAFETY: `number` is below `count`, and by contract the memory has room for `count`
        // tables.
        unsafe { self.first.as_ptr().add(number).read() }
    }
}

/// Returns how many tables fit into this many bytes.
pub fn count_in(bytes: usize) -> u32 {
    ((bytes - size_of::<Places>()) / size_of::<*mut Entry>()) as u32
}

#[cfg(target_arch = "x86_64")]
mod place {
    use super::Local;

    std::arch::global_asm!(
        ".pushsection .tbss.cp_loops,\"awT\",@nobits",
        ".balign 16",
        ".globl cp_loops",
        ".hidden cp_loops",
        ".type cp_loops,@object",
        ".size cp_loops,32",
        "cp_loops:",
        ".zero 32",
        ".popsection",
    );

    #[inline(always)]
    pub fn get() -> *mut Local {
        let at: *mut Local;
        // SAFETY: the x86-64 TLS ABI: fs:0 holds the thread pointer, the GOT the offset.
        unsafe {
            std::arch::asm!(
                "mov {0}, qword ptr fs:0",
                "add {0}, qword ptr [rip + cp_loops@GOTTPOFF]",
                out(reg) at,
                options(nostack, readonly),
            );
        }
        at
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod place {
    use super::Local;
    use std::cell::UnsafeCell;

    thread_local! {
        static LOCAL: UnsafeCell<Local> = const {
            UnsafeCell::new(Local {
                places: std::ptr::null_mut(),
                owned: std::ptr::null_mut(),
                stack: std::ptr::null_mut(),
                lives: 0,
            })
        };
    }

    #[inline(always)]
    pub fn get() -> *mut Local {
        LOCAL.with(UnsafeCell::get)
    }
}

/// Returns the calling thread's own thread-local.
#[inline(always)]
pub fn get() -> *mut Local {
    place::get()
}
