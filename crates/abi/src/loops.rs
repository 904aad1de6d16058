//! The interface between instrumented loops and the runtime that records them:
//! `include/counterpoint/loops.h`, in Rust.

use core::ffi::CStr;
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

/// The first eight bytes of a module's descriptor ([`Module`]).
pub const MAGIC: [u8; 8] = *b"CPLOOPS1";
/// The version of the layouts below.
pub const VERSION: u32 = 1;
/// The name of the function by which a module's constructor registers the module.
pub const REGISTER_SYMBOL: &CStr = c"counterpoint_loops_register";
/// The name under which a runtime exports the function of [`Module::unregister`].
pub const UNREGISTER_SYMBOL: &CStr = c"counterpoint_loops_unregister";
/// The prefix of the name of a function that a module exports. A loader that runs no constructors
/// calls this function to register the module. The rest of the name is the module's id in
/// hexadecimal.
pub const ATTACH_PREFIX: &CStr = c"counterpoint_loops_attach_";
/// The name of the ELF section that contains a module's note.
pub const NOTE_SECTION: &CStr = c".note.counterpoint.loops";
/// The name in the ELF note.
pub const NOTE_NAME: &CStr = c"Counterpoint";
/// The type of the ELF note: "LOOP".
pub const NOTE_TYPE: u32 = 0x4c4f_4f50;

/// The ways in which hits (calls of functions and executions of loops) can be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Mode {
    /// Every hit is counted; the first ones are timed, then random ones.
    Sampled = 0,
    /// Every hit is counted and timed.
    Timed = 1,
    /// Every hit is counted, and no hit is timed.
    Count = 2,
    /// Each begin and each end of a hit calls [`Module::log`].
    Log = 3,
}

impl Mode {
    /// All modes, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Sampled, Self::Timed, Self::Count, Self::Log];

    /// Returns the mode that has this number in a descriptor.
    pub fn from_u32(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| *mode as u32 == number)
    }

    /// Returns the name of the mode on the command line and in a side table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sampled => "sampled",
            Self::Timed => "timed",
            Self::Count => "count",
            Self::Log => "log",
        }
    }
}

/// `counterpoint_loops_entry_t`: the counts of one loop or function on one thread. Only this thread
/// writes to the entry; other threads may read it.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Entry {
    /// Number of hits.
    pub hits: AtomicU64,
    /// Sampled mode: the value of `hits` at which the next hit is timed.
    pub next: AtomicU64,
    /// Sampled mode: state of the generator of random numbers (xorshift64), never 0.
    pub random: AtomicU64,
    /// Number of timed hits that began.
    pub begun: AtomicU64,
    /// Number of timed hits that ended.
    pub ended: AtomicU64,
    /// Sum of the inclusive times of the timed hits that ended, in ticks.
    pub ticks: AtomicU64,
    /// Timed mode: the part of `ticks` that was spent in the loops directly inside this loop or
    /// function. Sampled mode: the longest of the times in `ticks`.
    pub child_ticks: AtomicU64,
    /// Number of iterations of the hits that `iterated` counts.
    pub iterations: AtomicU64,
    /// Sum of the squares of the times in `ticks`: the low and the high 64 bits.
    pub squares: [AtomicU64; 2],
    /// Sampled mode: the value of `ended` when the first randomly chosen hit began.
    pub first_ended: AtomicU64,
    /// Sampled mode: the value of `ticks` when the first randomly chosen hit began.
    pub first_ticks: AtomicU64,
    /// Sampled mode: the value of `squares` when the first randomly chosen hit began.
    pub first_squares: [AtomicU64; 2],
    /// Number of hits whose iterations are known.
    pub iterated: AtomicU64,
    /// The address of a [`Trips`], or 0. In mode log, only the runtime knows the field's meaning.
    pub trips: AtomicU64,
}

/// `counterpoint_loops_trips_t`: statistics about the numbers of iterations of the hits that
/// [`Entry::iterated`] counts. In memory, `mask + 1` buckets of 64 bits follow this struct.
#[repr(C)]
#[derive(Debug)]
pub struct Trips {
    /// The smallest number of iterations of a hit; [`u64::MAX`] before the first hit.
    pub least: AtomicU64,
    /// The largest number of iterations of a hit.
    pub most: AtomicU64,
    /// Sampled mode: the value of [`Entry::iterations`] when the last hit before the randomly
    /// chosen ones ended.
    pub first: AtomicU64,
    /// The number of buckets less 1: 63, or 0 for a single bucket.
    pub mask: u64,
}

/// The number of buckets in a histogram of iterations (unless all hits are counted in a single
/// bucket). Bucket 0 counts the hits of 0 iterations, and bucket `b` the hits of 2^(b-1) to 2^b - 1
/// iterations. The last bucket also counts hits of more iterations.
pub const TRIP_BUCKETS: usize = 64;

/// `counterpoint_loops_module_t`: the descriptor of an instrumented module.
#[repr(C)]
#[derive(Debug)]
pub struct Module {
    /// The bytes [`MAGIC`].
    pub magic: [u8; 8],
    /// Bytes of this struct.
    pub size: u32,
    /// Version of the layout: [`VERSION`].
    pub version: u32,
    /// Number of ids of loops and functions, which is also the length of each thread's array of
    /// entries.
    pub ids: u32,
    /// The number of a [`Mode`].
    pub mode: u32,
    /// Identity of the instrumented text and of its side table.
    pub id: [u8; 16],
    /// The side table (a JSON text that describes the module's functions and loops), or null.
    pub table: *const u8,
    /// Length of the side table in bytes.
    pub table_bytes: u64,
    /// The module's function that runs the given number of empty hits on an entry of the caller, to
    /// measure what a hit costs; or null.
    pub rehearse: Option<unsafe extern "C" fn(*mut Self, *mut Entry, u64)>,
    /// The runtime's function that returns the calling thread's array of entries (one for each id):
    /// an `extern "C" fn(*mut Module) -> *mut Entry`, or null.
    pub enter: AtomicPtr<()>,
    /// The runtime's function that reads counters at the start of a timed hit of a function, or of
    /// a loop of depth 0 or 1: an `extern "C" fn(*mut Entry, u32) -> u64`, or null.
    pub begin: AtomicPtr<()>,
    /// The runtime's function that reads counters at the end of a hit for which `begin` was called,
    /// and gets the result of `begin`: an `extern "C" fn(*mut Entry, u32, u64)`, or null.
    pub end: AtomicPtr<()>,
    /// Mode log: the runtime's function for the start and the end of a hit: an `extern "C" fn(*mut
    /// Entry, u32, u32)`, or null.
    pub log: AtomicPtr<()>,
    /// Sampled mode: number of first hits of an entry that are all timed; later, randomly chosen
    /// hits are timed.
    pub first: AtomicU32,
    /// Sampled mode: a randomly chosen hit comes 1 + (random number & `gap_mask`) hits after the
    /// previous timed hit.
    pub gap_mask: AtomicU32,
    /// A word that only the runtime uses; 0 until the module is registered.
    pub handle: AtomicU64,
    /// The runtime's function that the module's destructor calls: an `extern "C" fn(*mut Module)`,
    /// or null.
    pub unregister: AtomicPtr<()>,
    /// Reserved, 0.
    pub reserved: u64,
}

const _: () = assert!(size_of::<Entry>() == 128 && size_of::<Module>() == 128);
const _: () = assert!(offset_of!(Entry, iterations) == 56 && offset_of!(Entry, squares) == 64);
const _: () = assert!(offset_of!(Entry, first_ended) == 80 && offset_of!(Entry, iterated) == 112);
const _: () = assert!(offset_of!(Entry, trips) == 120 && size_of::<Trips>() == 32);
const _: () = assert!(offset_of!(Trips, first) == 16 && offset_of!(Trips, mask) == 24);
const _: () = assert!(offset_of!(Module, id) == 24 && offset_of!(Module, table) == 40);
const _: () = assert!(offset_of!(Module, rehearse) == 56 && offset_of!(Module, enter) == 64);
const _: () = assert!(offset_of!(Module, log) == 88 && offset_of!(Module, first) == 96);
const _: () = assert!(offset_of!(Module, handle) == 104 && offset_of!(Module, unregister) == 112);
