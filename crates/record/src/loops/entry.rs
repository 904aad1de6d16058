//! Defines the words of an entry (a thread's counts for one loop or function), and the records of
//! mode log. A record is the start or the end of a *hit* (one execution of the loop or function).

pub const ENTRY_WORDS: usize = 16;
/// Size of a record of mode log in bytes.
pub const EVENT_BYTES: usize = 24;

/// The positions of the words of an entry.
pub mod word {
    /// Number of hits: how often the loop or function was entered.
    pub const HITS: usize = 0;
    /// Mode sampled: the value of [`HITS`] at which the next hit will be timed.
    pub const NEXT: usize = 1;
    /// Mode sampled: the state of the generator of random numbers.
    pub const RANDOM: usize = 2;
    /// Number of timed hits that began.
    pub const BEGUN: usize = 3;
    /// Number of timed hits that ended.
    pub const ENDED: usize = 4;
    /// The sum of the durations of the timed hits that ended, in ticks.
    pub const TICKS: usize = 5;
    /// Mode timed: the part of [`TICKS`] that was spent in loops directly inside this one. Mode
    /// sampled: the longest duration in [`TICKS`].
    pub const CHILD_TICKS: usize = 6;
    pub const ITERATIONS: usize = 7;
    /// The low word of the sum of the squares of the durations, in ticks; the high word follows.
    pub const SQUARES: usize = 8;
    /// The value of [`ENDED`] when the first randomly chosen hit began.
    pub const FIRST_ENDED: usize = 10;
    /// The value of [`TICKS`] at the moment of [`FIRST_ENDED`].
    pub const FIRST_TICKS: usize = 11;
    /// The value of [`SQUARES`] at the moment of [`FIRST_ENDED`].
    pub const FIRST_SQUARES: usize = 12;
    /// Number of hits whose iterations are known.
    pub const ITERATED: usize = 14;
    /// The address of the statistics of the iterations per hit ([`super::Trips`]); 0 if there are
    /// none. In mode log, the runtime stores a pointer of its own in this word.
    pub const TRIPS: usize = 15;
}

/// Statistics of the iterations per hit: `counterpoint_loops_trips_t` in the C header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trips {
    /// The smallest number of iterations of a hit.
    pub least: u64,
    /// The largest number of iterations of a hit.
    pub most: u64,
    /// Mode sampled: the sum of the iterations of the hits that ended before the first randomly
    /// chosen hit began.
    pub first: u64,
    /// A histogram of the hits by their numbers of iterations. Bucket 0 counts the hits with 0
    /// iterations, and bucket `b` those with 2^(b-1) to 2^b - 1. Bucket 63 also counts all hits
    /// with more iterations. Empty buckets at the end are left out. The vector is empty if there is
    /// no histogram.
    pub buckets: Vec<u64>,
}

/// A record of mode log: the start or the end of a hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event {
    pub id: u32,
    pub end: bool,
    /// The time of the event, in ticks of the loops' clock.
    pub ticks: u64,
    /// The return address of the call to the runtime's handler, minus the load address of the
    /// module's object.
    pub address: u64,
}

const END: u64 = 1 << 63;

impl Event {
    /// Returns the words of the event in a block.
    #[inline(always)]
    pub fn to_words(self) -> [u64; 3] {
        [u64::from(self.id) | if self.end { END } else { 0 }, self.ticks, self.address]
    }

    pub(super) fn from_words([first, ticks, address]: [u64; 3]) -> Self {
        Self { id: first as u32, end: first & END != 0, ticks, address }
    }
}
