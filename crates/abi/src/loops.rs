//! What instrumented loops and their runtime share: `include/counterpoint/loops.h`, in Rust.

use core::ffi::CStr;
use core::mem::offset_of;
use core::sync::atomic::{AtomicPtr, AtomicU64};

/// The first eight bytes of a descriptor.
pub const MAGIC: [u8; 8] = *b"CPLOOPS1";
/// The version of the layouts below.
pub const VERSION: u32 = 1;
/// What a module's constructor looks up.
pub const REGISTER_SYMBOL: &CStr = c"counterpoint_loops_register";
/// The function that [`Module::unregister`] is, as a runtime exports it.
pub const UNREGISTER_SYMBOL: &CStr = c"counterpoint_loops_unregister";
/// The start of the exported function for loaders without constructors; the id in hexadecimal follows.
pub const ATTACH_PREFIX: &CStr = c"counterpoint_loops_attach_";
/// The section of a module's ELF note.
pub const NOTE_SECTION: &CStr = c".note.counterpoint.loops";
/// The name in that note.
pub const NOTE_NAME: &CStr = c"Counterpoint";
/// The type of that note: "LOOP".
pub const NOTE_TYPE: u32 = 0x4c4f_4f50;

/// How hits are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Mode {
    /// Every hit is counted; the first ones are timed, then random ones.
    Sampled = 0,
    /// Every hit is counted and timed.
    Timed = 1,
    /// Every hit is counted, none is timed.
    Count = 2,
    /// Every begin and every end calls a function.
    Log = 3,
}

impl Mode {
    /// All modes, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Sampled, Self::Timed, Self::Count, Self::Log];

    /// The mode with this number in a descriptor.
    pub fn from_u32(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| *mode as u32 == number)
    }

    /// The name on the command line and in a side table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sampled => "sampled",
            Self::Timed => "timed",
            Self::Count => "count",
            Self::Log => "log",
        }
    }
}

/// `counterpoint_loops_entry_t`. Only the thread that owns it writes; others may read each number.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Entry {
    /// Times entered.
    pub hits: AtomicU64,
    /// Sampled: the value of `hits` at which the next hit is timed.
    pub next: AtomicU64,
    /// Sampled: state of xorshift64, never 0.
    pub random: AtomicU64,
    /// Timed hits that began.
    pub begun: AtomicU64,
    /// Timed hits that ended.
    pub ended: AtomicU64,
    /// Inclusive time of the hits that ended, in ticks.
    pub ticks: AtomicU64,
    /// Timed mode: the part of `ticks` that was spent in loops directly inside. Sampled mode: the longest
    /// of the times in `ticks`.
    pub child_ticks: AtomicU64,
    /// Iterations of the hits in `iterated`.
    pub iterations: AtomicU64,
    /// Sum of the squares of the times in `ticks`: low and high 64 bits.
    pub squares: [AtomicU64; 2],
    /// Sampled: `ended` when the first random hit began.
    pub first_ended: AtomicU64,
    /// Sampled: `ticks` when the first random hit began.
    pub first_ticks: AtomicU64,
    /// Sampled: `squares` when the first random hit began.
    pub first_squares: [AtomicU64; 2],
    /// Hits whose iterations are known.
    pub iterated: AtomicU64,
    /// The address of a [`Trips`], or 0. Mode log: the runtime's own.
    pub trips: AtomicU64,
}

/// `counterpoint_loops_trips_t`: what is known of the iterations of single hits. `mask + 1` buckets of
/// 64 bits follow.
#[repr(C)]
#[derive(Debug)]
pub struct Trips {
    /// The smallest number of iterations of a hit; [`u64::MAX`] where there was none.
    pub least: AtomicU64,
    /// The largest.
    pub most: AtomicU64,
    /// Sampled: the iterations of all hits that ended before the first random one began.
    pub first: AtomicU64,
    /// 63, or 0 for a single bucket.
    pub mask: u64,
}

/// Buckets of a histogram of iterations. Bucket 0 has the hits of 0 iterations, bucket `b` those of
/// 2^(b-1) to 2^b - 1.
pub const TRIP_BUCKETS: usize = 64;

/// `counterpoint_loops_module_t`.
#[repr(C)]
#[derive(Debug)]
pub struct Module {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// Bytes of this struct.
    pub size: u32,
    /// [`VERSION`].
    pub version: u32,
    /// How many ids there are, and entries in a table.
    pub ids: u32,
    /// A [`Mode`].
    pub mode: u32,
    /// Identity of the instrumented text and its side table.
    pub id: [u8; 16],
    /// The side table, or null.
    pub table: *const u8,
    /// Bytes of the side table.
    pub table_bytes: u64,
    /// Runs that many empty hits on an entry of the caller's.
    pub rehearse: Option<unsafe extern "C" fn(*mut Self, *mut Entry, u64)>,
    /// An `extern "C" fn(*mut Module) -> *mut Entry`, or null.
    pub enter: AtomicPtr<()>,
    /// An `extern "C" fn(*mut Entry, u32) -> u64`, or null.
    pub begin: AtomicPtr<()>,
    /// An `extern "C" fn(*mut Entry, u32, u64)`, or null.
    pub end: AtomicPtr<()>,
    /// An `extern "C" fn(*mut Entry, u32, u32)`, or null.
    pub log: AtomicPtr<()>,
    /// Sampled: how many hits are timed before the random ones.
    pub first: u32,
    /// Sampled: gaps are 1 + (random & mask).
    pub gap_mask: u32,
    /// The runtime's own.
    pub handle: AtomicU64,
    /// An `extern "C" fn(*mut Module)`, which the module's destructor calls, or null.
    pub unregister: AtomicPtr<()>,
    /// Zero.
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
