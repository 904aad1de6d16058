//! Replaces `GOMP_parallel` in the tables through which loaded libraries call it.
//!
//! A library calls a function of another library through a slot that the dynamic linker fills in.
//! libtorch_cpu has such a slot for `GOMP_parallel`, and so has each model that torch.compile has
//! compiled for the CPU. Replacing the content of the slots also works if the agent was not
//! preloaded. The alternative was to export a `GOMP_parallel` that the linker finds before
//! libgomp's. This would need preloading, and the exported function would have to find out which of
//! several OpenMP libraries its caller uses. If it began a region in the wrong library, the
//! barriers inside the region would fail.
//!
//! A slot is replaced if it contains the address of `GOMP_parallel` in the OpenMP library of
//! libtorch_cpu, or if the linker has not filled it in yet.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use abi::torch::ops::parallel::{ABSENT, REFUSED, WATCHED};

use crate::adapters::torch::openmp::{self, NAMES};
use crate::os::sys::{self, ErrnoGuard};
use crate::process::lock::Lock;
use crate::process::panics::{guarded, guarded_apart};

/// The library that launches the regions of PyTorch's own ops. If its slot cannot be replaced,
/// [`watch_parallel`] returns `REFUSED`.
const TORCH: &[u8] = b"libtorch_cpu.so";

#[cfg(target_arch = "x86_64")]
const SLOT_KINDS: [u32; 2] = [7, 6]; // R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT
#[cfg(not(target_arch = "x86_64"))]
const SLOT_KINDS: [u32; 2] = [1026, 1025]; // R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT

const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;

/// The total number of library loads in this process up to the latest run of [`scan`].
static SEEN: AtomicU64 = AtomicU64::new(0);
/// The total number of library unloads up to the latest run of [`scan`].
static GONE: AtomicU64 = AtomicU64::new(0);
/// Number of libraries in the linker's list at the latest run of [`scan`]. As long as no library is
/// unloaded, new ones are appended to the list.
static KNOWN: AtomicUsize = AtomicUsize::new(0);
/// Number of times that [`scan`] has replaced a slot of libtorch_cpu or found it replaced already.
/// If this is 0, libtorch_cpu's regions are not seen.
static OF_TORCH: AtomicUsize = AtomicUsize::new(0);

/// Replaces the slots for `GOMP_parallel` in all loaded libraries. The shim calls this function.
pub extern "C" fn watch_parallel() -> i32 {
    let _errno = ErrnoGuard::new();
    let watched = guarded_apart(|| {
        point!(TorchWatch);
        if !find_real() {
            return ABSENT;
        }
        let Some(_lock) = Lock::take() else { return REFUSED };
        KNOWN.store(0, Ordering::Relaxed);
        scan();
        if OF_TORCH.load(Ordering::Relaxed) > 0 { WATCHED } else { REFUSED }
    });
    watched.unwrap_or(REFUSED)
}

/// Does what [`watch_parallel`] does, for libraries that were loaded after it ran. If there are
/// none, this costs one call of `dl_iterate_phdr`.
pub fn look_again() {
    if OF_TORCH.load(Ordering::Relaxed) == 0 {
        return;
    }
    if added() != SEEN.load(Ordering::Relaxed) {
        guarded_apart(|| Lock::take().map(|_lock| scan()));
    }
}

/// Looks up the functions of the OpenMP library that libtorch_cpu uses, as the dynamic linker does:
/// first in the global scope (the program, the libraries that it is linked with, and those loaded
/// with RTLD_GLOBAL), then in the libraries that libtorch_cpu itself needs. Returns whether all
/// were found.
fn find_real() -> bool {
    if !openmp::real().is_null() {
        return true;
    }
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
    // SAFETY: the name is a C string. With RTLD_NOLOAD, a library that is not loaded stays
    // unloaded.
    let torch = unsafe { libc::dlopen(c"libtorch_cpu.so".as_ptr(), flags) };
    if torch.is_null() {
        return false;
    }
    let find = |name: &CStr| {
        // SAFETY: `name` is a C string, and `torch` is an open handle.
        unsafe {
            let global = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
            if global.is_null() { libc::dlsym(torch, name.as_ptr()) } else { global }
        }
    };
    let found = NAMES.map(find);
    // SAFETY: `torch` was opened above. The functions that were found stay valid, because PyTorch
    // is never unloaded.
    unsafe { libc::dlclose(torch) };
    if found.iter().any(|at| at.is_null()) {
        return false;
    }
    openmp::set_real(found);
    true
}

fn added() -> u64 {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker passes a complete struct, and `data` is the pointer to a number that
        // `added` passed.
        unsafe { *data.cast::<u64>() = (*info).dlpi_adds };
        1
    }
    let mut added = 0u64;
    // SAFETY: `first` has the type that `dl_iterate_phdr` calls, and `added` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut added).cast()) };
    added
}

/// Replaces the slots of the libraries that were loaded after the previous call, or of all
/// libraries if one was unloaded. The linker holds its lock meanwhile, so no library is unloaded
/// during the call.
fn scan() {
    unsafe extern "C" fn each(
        info: *mut libc::dl_phdr_info,
        _: usize,
        number: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker passes the description of a library that stays loaded meanwhile, and
        // `number` is the pointer that `scan` passed.
        guarded(|| unsafe {
            let (info, number) = (&*info, &mut *number.cast::<usize>());
            if *number == 0 && GONE.swap(info.dlpi_subs, Ordering::Relaxed) != info.dlpi_subs {
                KNOWN.store(0, Ordering::Relaxed);
            }
            SEEN.store(info.dlpi_adds, Ordering::Relaxed);
            *number += 1;
            if *number > KNOWN.load(Ordering::Relaxed)
                && let Some(library) = Library::read(info)
            {
                library.replace();
            }
        });
        0
    }
    let mut number = 0usize;
    // SAFETY: `each` has the type that `dl_iterate_phdr` calls, and `number` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut number).cast()) };
    KNOWN.store(number, Ordering::Relaxed);
}

/// What must be known about a loaded library to replace its slots. Addresses are absolute.
struct Library {
    base: usize,
    is_torch: bool,
    code: std::ops::Range<usize>,
    /// The range that the linker has made read-only (RELRO).
    sealed: std::ops::Range<usize>,
    symbols: usize,
    strings: usize,
    /// Tables of relocations: address and size in bytes.
    tables: [(usize, usize); 2],
}

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

#[repr(C)]
struct Symbol {
    name: u32,
    _kind: u32,
    _address: usize,
    _bytes: usize,
}

#[repr(C)]
struct Relocation {
    offset: usize,
    info: u64,
    _addend: i64,
}

impl Library {
    /// # Safety
    /// `info` must describe a loaded library.
    unsafe fn read(info: &libc::dl_phdr_info) -> Option<Self> {
        let base = info.dlpi_addr as usize;
        if info.dlpi_phdr.is_null() {
            return None;
        }
        // SAFETY: by contract, `info` describes a loaded library, so it contains the address, which
        // is not null, and the number of the library's headers.
        let headers =
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let range = |header: &libc::Elf64_Phdr| {
            let from = base.wrapping_add(header.p_vaddr as usize);
            from..from.wrapping_add(header.p_memsz as usize)
        };
        let of = |kind: u32| headers.iter().find(|header| header.p_type == kind);
        let executable = |header: &&libc::Elf64_Phdr| {
            header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0
        };
        let code = headers.iter().find(executable).map(range)?;
        let sealed = of(libc::PT_GNU_RELRO).map_or(0..0, range);
        let mut at = range(of(libc::PT_DYNAMIC)?).start as *const Dynamic;
        let name = match info.dlpi_name.is_null() {
            true => &[],
            // SAFETY: by contract, `info` describes a loaded library, and the linker stores its
            // name as a C string.
            false => unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes(),
        };
        let is_torch = name.rsplit(|b| *b == b'/').next() == Some(TORCH);
        let (mut symbols, mut strings, mut tables) = (0, 0, [(0, 0); 2]);
        // SAFETY: `at` is the library's dynamic section, which ends with a null tag.
        unsafe {
            while (*at).tag != 0 {
                // glibc has converted these addresses to absolute ones, except in the kernel's own
                // library (the vDSO).
                let value = (*at).value;
                let address = if value < base { base.wrapping_add(value) } else { value };
                match (*at).tag {
                    DT_STRTAB => strings = address,
                    DT_SYMTAB => symbols = address,
                    DT_JMPREL => tables[0].0 = address,
                    DT_PLTRELSZ => tables[0].1 = value,
                    DT_RELA => tables[1].0 = address,
                    DT_RELASZ => tables[1].1 = value,
                    _ => {}
                }
                at = at.add(1);
            }
        }
        let complete = symbols != 0 && strings != 0;
        complete.then_some(Self { base, is_torch, code, sealed, symbols, strings, tables })
    }

    /// # Safety
    /// The library must be loaded, and must stay loaded during the call.
    unsafe fn replace(&self) {
        for (at, bytes) in self.tables {
            if at == 0 {
                continue;
            }
            for i in 0..bytes / size_of::<Relocation>() {
                // SAFETY: by contract, the library is loaded. Each of its tables has this many
                // entries, which refer to the symbols and strings of the same library.
                unsafe {
                    let relocation = &*(at as *const Relocation).add(i);
                    if !SLOT_KINDS.contains(&(relocation.info as u32)) {
                        continue;
                    }
                    let symbol =
                        (self.symbols as *const Symbol).add((relocation.info >> 32) as usize);
                    let name = (self.strings + (*symbol).name as usize) as *const _;
                    if CStr::from_ptr(name) == NAMES[0] {
                        self.replace_slot(self.base.wrapping_add(relocation.offset));
                    }
                }
            }
        }
    }

    /// # Safety
    /// `slot` must be the address of a slot of this library.
    unsafe fn replace_slot(&self, slot: usize) {
        let (real, ours) = (openmp::real() as usize, openmp::parallel as *const () as usize);
        // SAFETY: by contract, `slot` is a slot of a loaded library. Slots are aligned words. The
        // linker, too, may write to the slot at any time.
        let place = unsafe { &*(slot as *const AtomicUsize) };
        let now = place.load(Ordering::Relaxed);
        // A slot that the linker has not filled in yet contains the address of code in the library
        // itself. This code calls the linker. Such a slot is replaced, too: the linker would find
        // the same function as for libtorch_cpu, because that function is usually in the global
        // scope.
        if now != ours && (now == real || self.code.contains(&now)) {
            let (page, bytes) = (sys::page_of(slot), sys::page_size());
            let sealed = self.sealed.contains(&slot);
            if sealed && sys::protect(page, bytes, libc::PROT_READ | libc::PROT_WRITE).is_err() {
                return;
            }
            place.store(ours, Ordering::Release);
            if sealed {
                let _ = sys::protect(page, bytes, libc::PROT_READ);
            }
        }
        if self.is_torch && place.load(Ordering::Relaxed) == ours {
            OF_TORCH.fetch_add(1, Ordering::Relaxed);
        }
    }
}
