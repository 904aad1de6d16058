//! Defines the contents of a block: the words of an entry, and the records of mode log.

pub const ENTRY_WORDS: usize = 16;
/// Bytes of a record of mode log.
pub const EVENT_BYTES: usize = 24;

/// The words of an entry, in the order of the entry.
pub mod word {
    /// Number of times that the loop or function was entered.
    pub const HITS: usize = 0;
    /// Mode sampled: the number of the hit that is timed next.
    pub const NEXT: usize = 1;
    /// Mode sampled: the state of the random numbers.
    pub const RANDOM: usize = 2;
    /// Number of timed hits that began.
    pub const BEGUN: usize = 3;
    /// Number of timed hits that ended.
    pub const ENDED: usize = 4;
    /// The ticks of the timed hits that ended.
    pub const TICKS: usize = 5;
    /// Mode timed: the part of [`TICKS`] that was spent in loops directly inside. Mode sampled: the
    /// longest of the times in [`TICKS`].
    pub const CHILD_TICKS: usize = 6;
    pub const ITERATIONS: usize = 7;
    /// The sum of the squares of the ticks, low and high word.
    pub const SQUARES: usize = 8;
    /// The value of [`ENDED`] when the first random hit began.
    pub const FIRST_ENDED: usize = 10;
    /// The value of [`TICKS`] at that time.
    pub const FIRST_TICKS: usize = 11;
    /// The value of [`SQUARES`] at that time.
    pub const FIRST_SQUARES: usize = 12;
    /// Number of hits whose iterations are known.
    pub const ITERATED: usize = 14;
    /// The address of the iterations of single hits; in mode log, a pointer of the runtime.
    pub const TRIPS: usize = 15;
}

/// The iterations of single hits: `counterpoint_loops_trips_t`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trips {
    /// The smallest number of iterations of a hit.
    pub least: u64,
    /// The largest number of iterations of a hit.
    pub most: u64,
    /// Mode sampled: the iterations of the hits that ended before the first random one began.
    pub first: u64,
    /// Number of hits by the bits of their iterations: bucket 0 has the hits of 0 iterations, and
    /// bucket `b` those of 2^(b-1) to 2^b - 1. The last bucket is not 0. Empty if there is no
    /// histogram.
    pub buckets: Vec<u64>,
}

/// A record of mode log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    pub id: u32,
    pub end: bool,
    /// The time of the event.
    pub ticks: u64,
    /// The return address of the handler's call, less the address of its object.
    pub address: u64,
}

/// The bit of an event's first word that marks an end.
const END: u64 = 1 << 63;

impl Event {
    /// Returns the three words of the event in a block.
    #[inline(always)]
    pub fn to_words(self) -> [u64; 3] {
        [u64::from(self.id) | if self.end { END } else { 0 }, self.ticks, self.address]
    }

    pub(super) fn from_words([first, ticks, address]: [u64; 3]) -> Self {
        Self { id: first as u32, end: first & END != 0, ticks, address }
    }
}
