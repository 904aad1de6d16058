//! What a thread knows about its tables: two words in the static TLS block, as the recorder's
//! ([`crate::recorder::thread`]), so that finding a table needs no call and no allocation.

use super::tables::{Owned, Places};

/// The thread-local.
#[repr(C)]
pub struct Local {
    /// Where the thread's tables are, in memory that a forked child finds zeroed. Null: nowhere.
    pub places: *mut Places,
    /// What the thread owns; a forked child finds a copy. Null: nothing.
    pub owned: *mut Owned,
    /// How often the thread's exit was noticed.
    pub lives: u32,
}

const _: () = assert!(size_of::<Local>() == 24);

#[cfg(target_arch = "x86_64")]
mod place {
    use super::Local;

    std::arch::global_asm!(
        ".pushsection .tbss.cp_loops,\"awT\",@nobits",
        ".balign 16",
        ".globl cp_loops",
        ".hidden cp_loops",
        ".type cp_loops,@object",
        ".size cp_loops,24",
        "cp_loops:",
        ".zero 24",
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
                lives: 0,
            })
        };
    }

    #[inline(always)]
    pub fn get() -> *mut Local {
        LOCAL.with(UnsafeCell::get)
    }
}

/// The calling thread's own.
#[inline(always)]
pub fn get() -> *mut Local {
    place::get()
}
