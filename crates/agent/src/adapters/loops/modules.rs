//! The instrumented modules of this process: compiled code to which `counterpoint loops instrument`
//! has added counting code. Each module has a number, with which threads find their tables. If a
//! module is unloaded and loaded again, it gets the same number again (in mode log, only if it is
//! loaded at the same address). So reloading such a module needs no more memory and writes no more
//! metadata.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use abi::loops::{Entry, Mode, Module};
use record::loops::{Costs, LoopFrame, ModuleFrame};
use record::run_file::LoopOptions;

use super::ticks;
use crate::os::sys;
use crate::process::lock::Lock;
use crate::process::part::Process;

/// A module that was registered. It is an element of a linked list. Elements are never freed, and
/// new ones are added at the front. So the list can be read without a lock, even in a child that
/// was forked during a change.
pub struct Known {
    /// The first module has number 1. The number is also the index of the module's table in each
    /// thread's list of tables ([`super::local::Places`]).
    pub number: u32,
    /// The number of the module's ids (one for each instrumented function or loop).
    pub ids: u32,
    pub mode: Mode,
    /// The identity of the module's instrumented text and side table ([`Module::id`]).
    pub id: [u8; 16],
    /// The file of the module's object (the ELF file or memory that contains the module); empty for
    /// anonymous memory.
    object: String,
    /// In mode log: the base of the module's object ([`Place::base`]). Otherwise 0.
    pub base: u64,
    /// The present base of the module's object ([`Place::base`]), also in other modes than log.
    start: AtomicU64,
    /// Export id of the first function in the IREE library that contains the module.
    export: Option<u32>,
    costs: Option<Costs>,
    /// Serial number ([`Process::serial`]) of the part of the profile (the directory of one
    /// process) that contains the module's metadata.
    told: AtomicU32,
    /// Serial number of the part of the profile that contains the place of the module's code.
    noted: AtomicU32,
    next: *const Known,
}

static KNOWN: AtomicPtr<Known> = AtomicPtr::new(std::ptr::null_mut());

fn known() -> impl Iterator<Item = &'static Known> {
    let mut at: *const Known = KNOWN.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: each pointer in the list is null or was leaked by `remember`.
        let node = unsafe { at.as_ref() }?;
        at = node.next;
        Some(node)
    })
}

pub fn find(number: u32) -> Option<&'static Known> {
    known().find(|known| known.number == number)
}

/// The object that contains an address.
pub struct Place {
    /// The object's file; empty for anonymous memory.
    pub object: String,
    /// The load bias: the difference between the address of a byte in memory and its virtual
    /// address in the object's ELF file.
    pub base: u64,
}

/// The object that contains a module, and the module's IREE library, if any.
pub struct Origin {
    pub place: Place,
    /// If the module is in an IREE library: export id of the library's first function.
    pub export: Option<u32>,
}

/// Returns the module that was registered before and has the same code, number of ids, mode, file
/// and library.
fn find_equal(module: &Module, mode: Mode, origin: &Origin) -> Option<&'static Known> {
    // In mode log, return addresses are stored as differences from the base, so a module at another
    // address is a different module.
    let base = if mode == Mode::Log { origin.place.base } else { 0 };
    known().find(|known| {
        (known.id, known.ids, known.mode, known.base) == (module.id, module.ids, mode, base)
            && (&known.object, known.export) == (&origin.place.object, origin.export)
    })
}

/// Returns whether an equal module was registered before. If so, its costs need not be measured
/// again.
pub fn is_known(module: &Module, mode: Mode, origin: &Origin) -> bool {
    find_equal(module, mode, origin).is_some()
}

/// Returns the registered module that is equal to `module`, or registers `module` under a new
/// number.
pub fn remember(
    module: &Module,
    mode: Mode,
    origin: Origin,
    costs: Option<Costs>,
    _: &Lock,
) -> &'static Known {
    if let Some(known) = find_equal(module, mode, &origin) {
        known.start.store(origin.place.base, Ordering::Relaxed);
        return known;
    }
    let base = if mode == Mode::Log { origin.place.base } else { 0 };
    let newest = KNOWN.load(Ordering::Acquire);
    // SAFETY: `newest` is null or was leaked by an earlier call.
    let number = unsafe { newest.as_ref() }.map_or(1, |newest| newest.number + 1);
    let node = Box::leak(Box::new(Known {
        number,
        ids: module.ids,
        mode,
        id: module.id,
        start: AtomicU64::new(origin.place.base),
        object: origin.place.object,
        base,
        export: origin.export,
        costs,
        told: AtomicU32::new(0),
        noted: AtomicU32::new(0),
        next: newest,
    }));
    KNOWN.store(node, Ordering::Release);
    node
}

impl Known {
    pub fn start(&self) -> u64 {
        self.start.load(Ordering::Relaxed)
    }

    /// Returns the file of the module's object; empty for anonymous memory.
    pub fn object(&self) -> &str {
        &self.object
    }

    /// Returns true at the first call for the part of `process` (its directory in the profile). The
    /// caller then writes where the module's code is.
    pub fn is_first_note(&self, process: &Process) -> bool {
        self.noted.swap(process.serial(), Ordering::AcqRel) != process.serial()
    }

    /// Writes the module's metadata to the part of `process` (its directory in the profile), once.
    pub fn announce(&self, module: &Module, options: LoopOptions, process: &Process) {
        if self.told.load(Ordering::Acquire) == process.serial() {
            return;
        }
        let Some(_lock) = Lock::take() else { return };
        if self.told.load(Ordering::Acquire) == process.serial() {
            return;
        }
        let length = usize::try_from(module.table_bytes).unwrap_or(0);
        let table = match module.table.is_null() || length > MOST_TABLE {
            true => Vec::new(),
            // SAFETY: the descriptor of a loaded module states the address and the length of its
            // table.
            false => unsafe { std::slice::from_raw_parts(module.table, length) }.to_vec(),
        };
        let frame = ModuleFrame {
            number: self.number,
            id: self.id,
            mode: self.mode as u32,
            ids: self.ids,
            ticks_per_second: ticks::per_second(),
            first: options.first,
            gap_mask: options.gap_mask,
            object: self.object.clone(),
            table,
            costs: self.costs,
            export: self.export,
        };
        let mut bytes = moment();
        bytes.extend_from_slice(&LoopFrame::Module(frame).to_bytes());
        // `append_loops` counts a failure as a loss. After a failure, the metadata are not written
        // later.
        let _ = process.append_loops(&bytes);
        self.told.store(process.serial(), Ordering::Release);
    }
}

/// The size in bytes of the largest side table ([`Module::table`]) that is copied into a profile.
const MOST_TABLE: usize = 1 << 28;

/// Returns a frame (a record for the file of loops) with the present time.
pub fn moment() -> Vec<u8> {
    let (ticks, monotonic_ns) = now();
    LoopFrame::Moment(ticks, monotonic_ns).to_bytes()
}

/// Returns the present time on two clocks: that of instrumented code (in ticks) and
/// `CLOCK_MONOTONIC` (in nanoseconds). Both clocks are read three times, and the fastest reading is
/// returned.
pub fn now() -> (u64, u64) {
    let one = || {
        let before = ticks::now();
        let ns = record::clock::monotonic_ns();
        let took = ticks::now().wrapping_sub(before);
        (took, before.wrapping_add(took / 2), ns)
    };
    let tries = [one(), one(), one()];
    let best = tries.iter().min_by_key(|(took, ..)| *took).unwrap_or(&tries[0]);
    (best.1, best.2)
}

/// An entry that shares no cache line with other data.
#[repr(C, align(128))]
struct Scratch(Entry);

/// The number of times that each kind of empty hit is measured.
const ROUNDS: usize = 101;
/// The number of hits between two readings of the clock. A single hit would be too short to
/// measure.
const HITS: u64 = 64;

/// Measures what empty hits of a module cost, with the module's own function for this (`rehearse`),
/// in about 0.2 ms. Returns `None` without such a function, or in mode log.
///
/// # Safety
/// `at` must be a descriptor that no thread uses yet.
pub unsafe fn measure(at: *mut Module, mode: Mode) -> Option<Costs> {
    // SAFETY: by contract, `at` is a descriptor.
    let rehearse = unsafe { (*at).rehearse }?;
    if mode == Mode::Log {
        return None;
    }
    let scratch = Scratch(Entry::default());
    let entry = &scratch.0;
    entry.random.store(1, Ordering::Relaxed);
    let pointer = std::ptr::from_ref(entry).cast_mut();
    // Sets the entry so that further hits are all timed, or none.
    let time = |all: bool| {
        let next = entry.hits.load(Ordering::Relaxed).wrapping_add(1);
        entry.next.store(if all { next } else { 0 }, Ordering::Relaxed);
        // SAFETY: by contract, `at` is a descriptor.
        unsafe { &*at }.first.store(u32::MAX, Ordering::Relaxed);
    };
    // SAFETY: `rehearse` is the module's own function. It must be called with the descriptor and an
    // entry; `at` is the descriptor, and `pointer` is an entry of ours.
    let run = |times: u64| unsafe { rehearse(at, pointer, times) };
    let per_hit = |ticks: u64| ticks as f64 / HITS as f64;
    let mut inside = Vec::with_capacity(ROUNDS);
    let mut timed = Vec::with_capacity(ROUNDS);
    let mut counted = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        if mode != Mode::Count {
            time(true);
            run(1);
            let before = entry.ticks.load(Ordering::Relaxed);
            run(1);
            inside.push(entry.ticks.load(Ordering::Relaxed).wrapping_sub(before) as f64);
            let before = ticks::now();
            run(HITS);
            timed.push(per_hit(ticks::now().wrapping_sub(before)));
        }
        if mode != Mode::Timed {
            time(false);
            run(HITS);
            let before = ticks::now();
            run(HITS);
            counted.push(per_hit(ticks::now().wrapping_sub(before)));
        }
    }
    Some(Costs { inside: spread(inside), timed: spread(timed), counted: spread(counted) })
}

/// Returns the 10th percentile, the median and the 90th percentile, if there are values.
pub fn spread(mut all: Vec<f64>) -> Option<[f64; 3]> {
    all.sort_unstable_by(f64::total_cmp);
    let at = |tenths: usize| all.get(all.len() * tenths / 10).copied();
    Some([at(1)?, at(5)?, at(9)?])
}

/// Returns the place of the dynamic linker's object (program or library) that contains this
/// address. Without such an object, the place has no file and base 0.
pub fn place_of(address: usize) -> Place {
    let Some(base) = base_of(address) else {
        return Place { object: String::new(), base: 0 };
    };
    let object = sys::file_at(address).map(sys::lossy).unwrap_or_default();
    Place { object, base }
}

/// Returns the load bias (see [`Place::base`]) of the dynamic linker's object that contains this
/// address.
fn base_of(address: usize) -> Option<u64> {
    let mut found: (usize, Option<u64>) = (address, None);
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: usize,
        found: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: `dl_iterate_phdr` passes a valid description and its own second argument, the
        // address of `found`.
        let (info, found) = unsafe { (&*info, &mut *found.cast::<(usize, Option<u64>)>()) };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: the linker's description gives the address and the length of its own array, and
        // the address is not null.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let holds = headers.iter().any(|header| {
            let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
            header.p_type == libc::PT_LOAD && (found.0 as u64).wrapping_sub(start) < header.p_memsz
        });
        if holds {
            found.1 = Some(info.dlpi_addr);
        }
        holds.into()
    }
    // SAFETY: `look` has the type that `dl_iterate_phdr` calls, and `found` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found.1
}
