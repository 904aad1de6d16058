//! The thread-local data about a thread's tables (its counts of loops): a few words in the static
//! TLS block, so that the agent finds a table without a call or an allocation.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use abi::loops::Entry;

#[repr(C)]
pub struct Local {
    /// The addresses of the thread's tables, or null.
    pub places: *mut Places,
    /// The address of the thread's [`super::tables::Owned`] (the data about its tables), or null. A
    /// forked child has a copy of this data.
    pub owned: *mut c_void,
    /// The open hits at whose start counters were read ([`super::counters`]), or null.
    pub stack: *mut c_void,
    /// Number of times that the agent has handled an exit of this thread.
    pub lives: u32,
}

const _: () = assert!(size_of::<Local>() == 32);

/// Stored instead of a table's address if there was no memory for the table.
pub const NOTHING: usize = 1;

/// The addresses of a thread's tables, by the numbers of their modules. In a forked child, this
/// memory is zeroed.
#[repr(C)]
pub struct Places {
    /// The epoch (number of the recording) that the tables belong to; 0 if there are none.
    pub epoch: AtomicU32,
    /// The number of addresses that the memory has space for.
    pub count: u32,
    /// The first of `count` addresses of tables.
    pub first: [*mut Entry; 0],
}

impl Places {
    /// Returns the table of a module: null if the thread has none yet in this epoch, [`NOTHING`] if
    /// it will get none.
    ///
    /// # Safety
    /// The memory after this struct must contain `count` addresses.
    #[inline(always)]
    pub unsafe fn get(&self, number: usize, epoch: u32) -> *mut Entry {
        if self.epoch.load(Ordering::Relaxed) != epoch || number >= self.count as usize {
            return std::ptr::null_mut();
        }
        // SAFETY: `number` is below `count`, and by contract the memory contains `count` addresses.
        unsafe { self.first.as_ptr().add(number).read() }
    }
}

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
        // SAFETY: the x86-64 TLS ABI: fs:0 contains the thread pointer, and the GOT contains the
        // offset.
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

#[inline(always)]
pub fn get() -> *mut Local {
    place::get()
}
