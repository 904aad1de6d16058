//! The modules of this process. Each has a number, by which threads find their tables. A module is
//! never forgotten: one that is unloaded and loaded again gets its number back, so that a program
//! that loads and unloads a module again and again needs no more memory and writes no more
//! metadata.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use abi::loops::{Entry, Mode, Module};
use record::loops::{Costs, LoopFrame, ModuleFrame};
use record::run_file::LoopOptions;

use super::ticks;
use crate::os::sys;
use crate::process::lock::Lock;
use crate::process::part::Process;

/// A module that was registered. It is leaked: a list to which values are only ever prepended can
/// be walked without a lock, also after a fork in the middle of a change.
pub struct Known {
    /// The module's number, from 1, which is also its index in the tables of threads.
    pub number: u32,
    /// Number of ids that the module has.
    pub ids: u32,
    /// How hits are recorded.
    pub mode: Mode,
    /// The module's identity.
    pub id: [u8; 16],
    /// File of the module's object; empty if the module is in anonymous memory.
    object: String,
    /// Address of the module's object in memory; 0 if it is in anonymous memory, or if the address
    /// is not needed.
    pub base: u64,
    /// Address of the module's object in memory at present; 0 if it is in anonymous memory.
    start: AtomicU64,
    /// Export id of the first function in the module's IREE library.
    export: Option<u32>,
    costs: Option<Costs>,
    /// The part of the profile that contains the module's frame ([`Process::serial`]).
    told: AtomicU32,
    /// The part of the profile that says where the module's code is.
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

/// The object that an address belongs to: its file and its address in memory.
pub struct Place {
    /// The module's file; empty for anonymous memory.
    pub object: String,
    /// The difference between an address in memory and the one in the module's ELF file.
    pub base: u64,
}

/// The place of a module, and the library that it belongs to.
pub struct Origin {
    /// The place of the code.
    pub place: Place,
    /// Export id of the first function of its library, if the module is in an IREE library and the
    /// id is known.
    pub export: Option<u32>,
}

/// Returns the equal module that was registered before, if there is one.
fn find_equal(module: &Module, mode: Mode, origin: &Origin) -> Option<&'static Known> {
    // Return addresses are stored less the base, so in mode log another place in memory makes
    // another module.
    let base = if mode == Mode::Log { origin.place.base } else { 0 };
    known().find(|known| {
        (known.id, known.ids, known.mode, known.base) == (module.id, module.ids, mode, base)
            && (&known.object, known.export) == (&origin.place.object, origin.export)
    })
}

/// Returns whether an equal module was registered before, so that its costs are known.
pub fn is_known(module: &Module, mode: Mode, origin: &Origin) -> bool {
    find_equal(module, mode, origin).is_some()
}

/// Returns the number of a module: that of an equal one which was registered before, or a new one.
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
    /// Returns the address of the module's object in memory, or 0 if it is in anonymous memory.
    pub fn start(&self) -> u64 {
        self.start.load(Ordering::Relaxed)
    }

    /// Returns the file of the module's object; empty if the module is in anonymous memory.
    pub fn object(&self) -> &str {
        &self.object
    }

    /// Returns whether the part of `process` is told for the first time where the module's code is.
    pub fn is_first_note(&self, process: &Process) -> bool {
        self.noted.swap(process.serial(), Ordering::AcqRel) != process.serial()
    }

    /// Writes the module's frame to the part of `process`, unless the part has it.
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
        // A failure is counted as a loss, and not tried again.
        let _ = process.append_loops(&bytes);
        self.told.store(process.serial(), Ordering::Release);
    }
}

/// The largest side table that is copied into a profile, in bytes.
const MOST_TABLE: usize = 1 << 28;

/// Makes a frame with the present time on the clock of instrumented code.
pub fn moment() -> Vec<u8> {
    let (ticks, monotonic_ns) = now();
    LoopFrame::Moment(ticks, monotonic_ns).to_bytes()
}

/// Returns the ticks and `CLOCK_MONOTONIC`, read as closely together as three tries allow.
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

/// An entry in a cache line of its own.
#[repr(C, align(128))]
struct Scratch(Entry);

/// The number of measurements of each kind of empty hit.
const ROUNDS: usize = 101;
/// The number of hits between two readings of the clock, where a single hit is too short.
const HITS: u64 = 64;

/// Measures the cost of empty hits of a module, with the module's own code, in about 0.2 ms.
/// Returns `None` if the module has no rehearsal.
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
    // Makes all hits from now on timed, or none.
    let time = |all: bool| {
        let next = entry.hits.load(Ordering::Relaxed).wrapping_add(1);
        entry.next.store(if all { next } else { 0 }, Ordering::Relaxed);
        // SAFETY: by contract, `at` is a descriptor.
        unsafe { &*at }.first.store(u32::MAX, Ordering::Relaxed);
    };
    // SAFETY: `rehearse` is the module's own function. Its contract wants the descriptor and an
    // entry, and `pointer` is an entry of ours.
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

/// Returns the 10th percentile, the median and the 90th percentile.
pub fn spread(mut all: Vec<f64>) -> Option<[f64; 3]> {
    all.sort_unstable_by(f64::total_cmp);
    let at = |tenths: usize| all.get(all.len() * tenths / 10).copied();
    Some([at(1)?, at(5)?, at(9)?])
}

/// Returns the object that contains an address.
pub fn place_of(address: usize) -> Place {
    let Some(base) = base_of(address) else {
        return Place { object: String::new(), base: 0 };
    };
    let object = sys::file_at(address).map(sys::lossy).unwrap_or_default();
    Place { object, base }
}

/// Returns the difference between addresses in memory and in the file, for the dynamic linker's
/// object that contains this address; `None` if there is none.
fn base_of(address: usize) -> Option<u64> {
    let mut found: (usize, Option<u64>) = (address, None);
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: usize,
        found: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: `dl_iterate_phdr` passes a valid description and the pointer to the result that
        // `look` was registered with.
        let (info, found) = unsafe { (&*info, &mut *found.cast::<(usize, Option<u64>)>()) };
        // SAFETY: the linker's description gives the address and the length of its own array.
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
