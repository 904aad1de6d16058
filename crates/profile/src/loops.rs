//! Loops of instrumented modules: what each thread counted for each id of each module.
//! `include/counterpoint/loops.h` says what the numbers of a row mean.

/// A module that was registered in a process. The same module loaded twice has two of these,
/// with the same identity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoopModule {
    /// Index of the process in the profile.
    pub process: usize,
    /// Its number in the process.
    pub number: u32,
    /// Identity of the instrumented text and its side table.
    pub id: [u8; 16],
    /// 0 sampled, 1 timed, 2 count, 3 log.
    pub mode: u32,
    /// How many ids it has.
    pub ids: u32,
    /// The side table, if it was embedded.
    pub table: Option<String>,
    /// File of the executable or shared object that it is in; a JIT's module has none.
    pub object: Option<String>,
    /// Ticks in a second.
    pub ticks_per_second: f64,
    /// What an empty hit costs; missing if the module has no rehearsal.
    pub cost: Option<HitCost>,
}

/// What an empty hit (one begin and one end) of a module costs, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HitCost {
    /// The time that a timed hit measures although there is nothing inside.
    pub inside: f64,
    /// The time that a timed hit takes as a whole.
    pub timed: f64,
    /// The time that a hit takes which is only counted.
    pub counted: f64,
}

/// What one thread counted for one id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoopRow {
    /// Index in the modules.
    pub module: usize,
    /// Index of the thread in the process, if the profile knows the thread.
    pub thread: Option<usize>,
    /// The kernel's number of the thread.
    pub tid: u32,
    /// The id of the function or loop.
    pub id: u32,
    /// Times entered.
    pub hits: u64,
    /// Timed hits that began.
    pub begun: u64,
    /// Timed hits that ended.
    pub ended: u64,
    /// Their inclusive time, in ticks.
    pub ticks: u64,
    /// Sum of the squares of these times.
    pub squares: u128,
    /// The part of `ticks` that was spent in instrumented loops directly inside. Mode timed only.
    pub child_ticks: u64,
    /// Iterations of the hits in `iterated`.
    pub iterations: u64,
    /// Hits whose iterations are known.
    pub iterated: u64,
    /// Of `ended`, those before the first random one. Mode sampled only.
    pub first_ended: u64,
    /// Their time.
    pub first_ticks: u64,
    /// Sum of the squares of their times.
    pub first_squares: u128,
    /// Timed hits for which counters were read.
    pub counted: u64,
    /// What the counters of the run added in these, by counter; empty if none were read.
    pub counters: Vec<u64>,
}

/// A begin or an end of mode log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopEvent {
    /// Index in the modules.
    pub module: usize,
    /// The kernel's number of the thread.
    pub tid: u32,
    /// The id of the function or loop.
    pub id: u32,
    /// Whether it is an end.
    pub end: bool,
    /// Return address of the handler's call, as an offset in its object (file offset semantics of
    /// the ELF virtual address); in anonymous memory the address itself.
    pub address: u64,
    /// When, in ticks.
    pub ticks: u64,
}
