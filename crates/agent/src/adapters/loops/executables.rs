//! Finds the descriptors of instrumented modules in executables of IREE (a descriptor is the struct
//! that describes a module). An executable may not import symbols and has no constructors, so it
//! cannot register its modules itself. Instead, the agent searches the executable's writable data.

use std::sync::atomic::Ordering;

use abi::loops::{MAGIC, Module};
use model::Loss;

use super::modules::{Origin, Place};
use super::register::register;
use crate::os::{elf, sys};
use crate::process::losses;
use crate::state::run;

const PT_LOAD: u32 = 1;
const PT_GNU_RELRO: u32 = 0x6474_e552;
const PF_X: u32 = 1;
const PF_W: u32 = 2;

/// Alignment of a descriptor, in bytes.
const ALIGN: usize = 64;
/// The largest number of bytes of writable data that are searched in one executable.
const MOST_BYTES: usize = 64 << 20;
const CHUNK: usize = 1 << 16;

type Range = std::ops::Range<usize>;

#[derive(Default)]
struct Image {
    base: usize,
    loaded: Vec<Range>,
    text: Vec<Range>,
    writable: Vec<Range>,
    /// The ranges that become read-only after all relocations.
    relro: Vec<Range>,
}

/// Returns whether loops are being recorded. If not, executables are not searched until a session
/// that records loops begins.
pub fn wanted() -> bool {
    run::current().is_some_and(|run| run.loops.is_some())
}

/// Registers the instrumented modules of the embedded ELF at `base`, if loops are being recorded.
/// `export` is the id of the ELF's first export (a function that IREE can call).
pub fn embedded(base: usize, export: Option<u32>) {
    if let Some(headers) = wanted().then(|| elf::program_headers(base)).flatten() {
        let headers = headers.iter();
        let pieces = headers.map(|h| (h[0] as u32, (h[0] >> 32) as u32, h[2], h[5]));
        look(&Image::new(base, pieces), export);
    }
}

/// Registers the instrumented modules of the shared object that contains `function`, if loops are
/// being recorded. `export` is the id of the object's first export.
pub fn system(function: usize, export: Option<u32>) {
    if !wanted() {
        return;
    }
    let mut search = (function, None);
    unsafe extern "C" fn look_for(
        info: *mut libc::dl_phdr_info,
        _: usize,
        search: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: `dl_iterate_phdr` passes a valid description and its own second argument, the
        // address of `search`.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<(usize, Option<Image>)>()) };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: the linker's description gives the address and the length of its own array, and
        // the address is not null.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let pieces = headers.iter().map(|h| (h.p_type, h.p_flags, h.p_vaddr, h.p_memsz));
        let image = Image::new(info.dlpi_addr as usize, pieces);
        let found = image.loaded.iter().any(|range| range.contains(&search.0));
        if found {
            search.1 = Some(image);
        }
        found.into()
    }
    // SAFETY: `look_for` has the type that `dl_iterate_phdr` calls, and `search` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look_for), (&raw mut search).cast()) };
    if let Some(image) = search.1 {
        look(&image, export);
    }
}

impl Image {
    /// The headers are given as type, flags, address and length.
    fn new(base: usize, headers: impl Iterator<Item = (u32, u32, u64, u64)>) -> Self {
        let mut image = Self { base, ..Self::default() };
        for (kind, flags, address, bytes) in headers {
            let start = base.wrapping_add(address as usize);
            let Some(end) = start.checked_add(bytes as usize) else { continue };
            match kind {
                PT_LOAD => {
                    image.loaded.push(start..end);
                    if flags & PF_W != 0 {
                        image.writable.push(start..end);
                    }
                    if flags & PF_X != 0 {
                        image.text.push(start..end);
                    }
                }
                PT_GNU_RELRO => image.relro.push(start..end),
                _ => {}
            }
        }
        image
    }

    /// Returns whether the descriptor that was read at `at` belongs to this executable.
    fn owns(&self, at: usize, module: &Module) -> bool {
        let within = |ranges: &[Range], from: usize, bytes: usize| {
            let to = from.checked_add(bytes);
            to.is_some_and(|to| ranges.iter().any(|r| r.start <= from && to <= r.end))
        };
        let table = module.table as usize;
        let rehearse = module.rehearse.map_or(0, |function| function as usize);
        let bytes = usize::try_from(module.table_bytes).unwrap_or(usize::MAX);
        within(&self.writable, at, size_of::<Module>())
            && (table == 0 || within(&self.loaded, table, bytes))
            && (rehearse == 0 || within(&self.text, rehearse, 1))
    }
}

fn look(image: &Image, export: Option<u32>) {
    let mut budget = MOST_BYTES;
    let mut chunk = vec![0u8; CHUNK];
    for range in &image.writable {
        let mut at = range.start.next_multiple_of(ALIGN);
        while at < range.end && budget > 0 {
            let wanted = (range.end - at).min(chunk.len()).min(budget);
            let count = sys::copy_memory(at, &mut chunk[..wanted]);
            for (place, _) in chunk[..count]
                .chunks(ALIGN)
                .enumerate()
                .filter(|(_, line)| line.starts_with(&MAGIC))
            {
                found(image, at + place * ALIGN, export);
            }
            budget -= wanted;
            at += wanted.next_multiple_of(ALIGN);
        }
    }
}

/// Registers the module whose descriptor is at this address, if the descriptor belongs to this
/// executable.
fn found(image: &Image, at: usize, export: Option<u32>) {
    // The fields that refer to a table and to a function are checked before anything uses them.
    let Some(copy) = sys::read_value::<[u64; size_of::<Module>() / 8]>(at) else { return };
    // SAFETY: the array has as many bytes as a `Module`. A `Module` consists of integers, pointers
    // and an optional function, for which all bytes are valid values.
    let copy: Module = unsafe { std::mem::transmute(copy) };
    let size = size_of::<Module>();
    if copy.size as usize != size || !image.owns(at, &copy) {
        return;
    }
    if copy.enter.load(Ordering::Relaxed).is_null() {
        let end = at + size;
        let frozen = image.relro.iter().any(|range| range.start < end && at < range.end);
        // The agent must write to the descriptor. It cannot if the descriptor becomes read-only,
        // and it must not if other processes share the descriptor's memory.
        if frozen || !make_writable(at, size) {
            losses::lose(Loss::LoopModuleRefused, 1, 0);
            return;
        }
    }
    let place = Place { object: String::new(), base: image.base as u64 };
    // SAFETY: the memory at `at` begins with a descriptor's magic number and is as large as a
    // descriptor. It is writable private memory of a loaded executable, which also contains the
    // table and the function.
    unsafe { register(at as *mut Module, Some(Origin { place, export })) };
}

/// Makes this memory writable. Returns false if that is impossible, or if other processes share the
/// memory.
fn make_writable(at: usize, bytes: usize) -> bool {
    let size = sys::page_size();
    let end = (at + bytes).next_multiple_of(size);
    (sys::page_of(at)..end).step_by(size).all(|page| match sys::mapping_of(page) {
        Some((_, true)) | None => false,
        Some((protection, _)) if protection & libc::PROT_WRITE != 0 => true,
        Some((protection, _)) => sys::protect(page, size, protection | libc::PROT_WRITE).is_ok(),
    })
}
