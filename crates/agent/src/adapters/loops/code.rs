//! Writes to the profile where the machine code of an instrumented module is. If the recording asks
//! for copies, also copies the code, because it may be gone later: executables are unloaded, files
//! are rebuilt, and JIT-compiled code has no file.
//!
//! ```text
//!  descriptor ─► in an object of the dynamic linker ─► its file; deleted or too large: its code in memory
//!             ├► in an executable that IREE mapped ──► its segments in memory
//!             └► in other memory (a JIT) ────────────► the mapping that has the code
//! ```
//!
//! If code that should be copied is not found, is too large or cannot be copied, this is counted as
//! the loss `code_not_kept`.

use std::sync::atomic::{AtomicU64, Ordering};

use abi::loops::Module;
use model::Loss;
use record::loops::{CodeFrame, LoopFrame, code_name};

use super::callees;
use super::modules::Known;
use crate::os::elf;
use crate::os::sys::{self, AppendError, Descriptor};
use crate::process::part::Process;

/// The largest size of one copy in bytes.
const MOST_BYTES: u64 = 64 << 20;
/// The largest size of all copies of a process together, in bytes.
const MOST_IN_ALL: u64 = 512 << 20;
const CHUNK: usize = 1 << 20;
/// The largest number of an object's program headers that are examined.
const MOST_SEGMENTS: usize = 64;

static COPIED: AtomicU64 = AtomicU64::new(0);

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PF_X: u32 = 1;
const PF_W: u32 = 2;
const NT_GNU_BUILD_ID: u32 = 3;

const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { callees::X86_64 };

/// A part of memory: its address and its length in bytes.
type Piece = (u64, u64);

#[derive(Default)]
struct Object {
    /// The load bias: the difference between the address of a byte in memory and its virtual
    /// address in the object's ELF file.
    base: u64,
    /// Address in memory and length of each loaded segment that is executable or not writable.
    pieces: Vec<Piece>,
    build_id: Vec<u8>,
}

/// Writes to the part of `process` (its directory in the profile), once, where the module's code
/// is. `at` is the module's descriptor (the struct that describes the module). If `keep` is set,
/// copies the code, too.
pub fn note(known: &Known, at: &Module, keep: bool, process: &Process) {
    if !known.is_first_note(process) {
        return;
    }
    point!(LoopCode);
    let address = std::ptr::from_ref(at) as u64;
    let object = linked(address).or_else(|| embedded(known.start()));
    let mut frame = CodeFrame {
        module: known.number,
        descriptor: address.wrapping_sub(object.as_ref().map_or(0, |object| object.base)),
        machine: MACHINE,
        build_id: object.as_ref().map(|object| object.build_id.clone()).unwrap_or_default(),
        ..CodeFrame::default()
    };
    let path = sys::path(known.object().to_owned());
    let file = Descriptor::open(&path, libc::O_RDONLY).ok().filter(|_| !path.is_empty());
    if let Some(file) = &file {
        (frame.file_bytes, frame.modified_ns) = file.size_and_time();
    }
    if keep {
        let mut copy = Keeper { process, number: known.number, bytes: 0 };
        let kept = match (&file, object) {
            (Some(file), _) if frame.file_bytes <= MOST_BYTES => copy.file(file, frame.file_bytes),
            (_, Some(object)) => {
                frame.pieces = object
                    .pieces
                    .iter()
                    .map(|(at, n)| (at.wrapping_sub(object.base), *n))
                    .collect();
                copy.memory(&object.pieces)
            }
            (_, None) => match jit_code(address, at) {
                Some(piece) => {
                    frame.pieces = vec![piece];
                    frame.callees = callees::of(frame.machine, piece.0, piece.1);
                    copy.memory(&[piece])
                }
                None => Err(libc::ENOENT),
            },
        };
        match kept {
            Ok(()) => frame.kept = Some(known.number),
            Err(errno) => {
                frame.pieces.clear();
                frame.callees.clear();
                process.lose(Loss::CodeNotKept, 1, errno);
            }
        }
    }
    // `append_loops` counts a failure as a loss.
    let _ = process.append_loops(&LoopFrame::Code(frame).to_bytes());
}

/// Returns the dynamic linker's object (program or library) that contains this address.
fn linked(address: u64) -> Option<Object> {
    let mut search: (u64, Option<Object>) = (address, None);
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: usize,
        search: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: `dl_iterate_phdr` passes a valid description and its own second argument, the
        // address of `search`.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<(u64, Option<Object>)>()) };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: the linker's description gives the address and the length of its own array, and
        // the address is not null.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let headers = headers.iter().map(|h| (h.p_type, h.p_flags, h.p_vaddr, h.p_memsz));
        let holds = headers.clone().any(|(kind, _, start, bytes)| {
            kind == PT_LOAD && search.0.wrapping_sub(info.dlpi_addr.wrapping_add(start)) < bytes
        });
        if holds {
            search.1 = Some(Object::new(info.dlpi_addr, headers));
        }
        holds.into()
    }
    // SAFETY: `look` has the type that `dl_iterate_phdr` calls, and `search` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.1
}

/// Returns the executable that IREE has mapped at this address.
fn embedded(base: u64) -> Option<Object> {
    let headers = elf::program_headers(usize::try_from(base).ok().filter(|base| *base != 0)?)?;
    let headers = headers.iter().map(|h| (h[0] as u32, (h[0] >> 32) as u32, h[2], h[5]));
    Some(Object::new(base, headers))
}

impl Object {
    /// The headers are given as type, flags, address and length.
    fn new(base: u64, headers: impl Iterator<Item = (u32, u32, u64, u64)>) -> Self {
        let mut object = Self { base, ..Self::default() };
        for (kind, flags, address, bytes) in headers.take(MOST_SEGMENTS) {
            let at = base.wrapping_add(address);
            match kind {
                PT_LOAD if flags & PF_W == 0 || flags & PF_X != 0 => {
                    object.pieces.push((at, bytes))
                }
                PT_NOTE if object.build_id.is_empty() => object.build_id = build_id(at, bytes),
                _ => {}
            }
        }
        object
    }
}

/// Returns the build id in a range of notes, or nothing if there is none.
fn build_id(at: u64, bytes: u64) -> Vec<u8> {
    let mut notes = vec![0; bytes.min(1 << 16) as usize];
    let read = sys::copy_memory(at as usize, &mut notes);
    notes.truncate(read);
    let word =
        |at: usize| notes.get(at..)?.first_chunk().map(|word| u32::from_ne_bytes(*word) as usize);
    let mut at = 0;
    let mut next = || {
        let (name, description, kind) = (word(at)?, word(at + 4)?, word(at + 8)?);
        let text = at + 12;
        let start = text.checked_add(name)?.checked_next_multiple_of(4)?;
        let end = start.checked_add(description)?;
        at = end.checked_next_multiple_of(4)?;
        let ours = kind == NT_GNU_BUILD_ID as usize && notes.get(text..text + 4)? == b"GNU\0";
        Some((ours, notes.get(start..end)?))
    };
    while let Some((ours, description)) = next() {
        if ours && description.len() <= 64 {
            return description.to_vec();
        }
    }
    Vec::new()
}

/// For a module that neither the dynamic linker nor IREE has loaded, returns the mapping that
/// probably has the module's code. It is an executable mapping without a file: the one that
/// contains the descriptor's function `rehearse`, or else the one nearest to the descriptor.
fn jit_code(address: u64, module: &Module) -> Option<Piece> {
    let maps = sys::read_file(c"/proc/self/maps").ok()?;
    let lines = maps.split(|b| *b == b'\n').filter_map(sys::Mapping::parse);
    let code = lines.filter(|map| map.executable && map.path.is_empty());
    let inside = module.rehearse.map(|function| function as usize as u64);
    let distance = |map: &sys::Mapping<'_>| match inside {
        Some(inside) if (map.start..map.end).contains(&inside) => 0,
        _ => map.start.abs_diff(address).min(map.end.abs_diff(address)),
    };
    let found = code.min_by_key(distance)?;
    // The code must be within 2 GiB of the descriptor, because it may refer to the descriptor by
    // relative addresses of 32 bits.
    (distance(&found) < 1 << 31).then_some((found.start, found.end - found.start))
}

struct Keeper<'a> {
    process: &'a Process,
    number: u32,
    bytes: u64,
}

impl Keeper<'_> {
    /// Counts this many bytes as copied, unless that exceeds the limit for one copy or for all
    /// copies.
    fn reserve(&self, bytes: u64) -> Result<(), i32> {
        let within = |all: u64| all.checked_add(bytes).filter(|all| *all <= MOST_IN_ALL);
        let order = Ordering::Relaxed;
        match bytes <= MOST_BYTES && COPIED.fetch_update(order, order, within).is_ok() {
            true => Ok(()),
            false => Err(libc::EFBIG),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), i32> {
        self.bytes += bytes.len() as u64;
        self.process.append_to(&code_name(self.number), bytes).map_err(|error| match error {
            AppendError::FileSizeLimit => libc::EFBIG,
            AppendError::Errno(errno) => errno,
        })
    }

    fn file(&mut self, file: &Descriptor, bytes: u64) -> Result<(), i32> {
        self.reserve(bytes)?;
        let mut chunk = vec![0; CHUNK.min(bytes as usize)];
        while self.bytes < bytes {
            let wanted = chunk.len().min((bytes - self.bytes) as usize);
            match file.read_at(self.bytes, &mut chunk[..wanted]) {
                0 => return Err(libc::EIO),
                read => self.write(&chunk[..read])?,
            }
        }
        Ok(())
    }

    fn memory(&mut self, pieces: &[Piece]) -> Result<(), i32> {
        let sum = pieces.iter().try_fold(0_u64, |sum, (_, bytes)| sum.checked_add(*bytes));
        self.reserve(sum.unwrap_or(u64::MAX))?;
        let mut chunk = vec![0; CHUNK];
        for (at, bytes) in pieces {
            let mut done = 0;
            while done < *bytes {
                let wanted = chunk.len().min((bytes - done) as usize);
                copy((at + done) as usize, &mut chunk[..wanted]);
                self.write(&chunk[..wanted])?;
                done += wanted as u64;
            }
        }
        Ok(())
    }
}

/// Copies memory in which pages may be missing, because loaders leave holes between segments.
/// Missing pages are copied as zeros.
fn copy(from: usize, to: &mut [u8]) {
    let mut done = 0;
    while done < to.len() {
        done += sys::copy_memory(from + done, &mut to[done..]);
        let page_end = sys::page_of(from + done) + sys::page_size();
        let missing = (page_end - (from + done)).min(to.len() - done);
        to[done..done + missing].fill(0);
        done += missing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_after_a_hole_is_copied() {
        let page = sys::page_size();
        let at = sys::map_zeros(4 * page).expect("memory");
        // SAFETY: the four pages were just mapped, and nothing else uses them.
        unsafe { at.write_bytes(7, 4 * page) };
        let from = at as usize;
        for hole in [1, 2] {
            sys::protect(from + hole * page, page, libc::PROT_NONE).expect("protection");
        }
        let mut copied = vec![1; 4 * page - 10];
        copy(from + 10, &mut copied);
        assert!(copied[..page - 10].iter().all(|byte| *byte == 7));
        assert!(copied[page - 10..3 * page - 10].iter().all(|byte| *byte == 0));
        assert!(copied[3 * page - 10..].iter().all(|byte| *byte == 7));
        sys::unmap(at, 4 * page);
    }
}
