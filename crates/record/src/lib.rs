//! Defines the binary formats: the bytes that the agent (the library in the profiled process)
//! writes, and that readers read afterwards, even if the bytes are incomplete.
//!
//! ```text
//!  counterpoint run          process that is profiled                     counterpoint report
//!  ──────────────            ───────────────────────────                  ───────────────────
//!  run file  ──────────────► obeyed at the first executable
//!  pool (tmpfs) ───────────► one 64 KiB page per thread, mapped, written
//!                            in place; a full page is appended to ─────► pages.cps ─┐
//!                            names, clocks, calibration ───────────────► meta.cps  ─┼─► profile
//!  what is left in the pool after exit or SIGKILL ─────────────────────────────────┘
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`wire`] | little-endian encoder and decoder, prefix varints, XXH64 |
//! | [`page`] | a page: header, records of calls, their values and thread clocks |
//! | [`pool`] | the file that the processes of a run share: which pages are claimed, and the losses of each process |
//! | [`meta`] | frames of a process's metadata file |
//! | [`role`] | the kinds of calls |
//! | [`host`] | the description of a kind of host |
//! | [`counts`] | tables of counts of calls, in runs with a budget (a limit for the cost of recording) |
//! | [`loops`] | tables of instrumented loops, and the file to which they are moved |
//! | [`run_file`] | the settings that `run` resolved and that the agent follows |
//! | [`preloadable`] | which programs can load the preloaded library; not a format |
//! | [`clock`] | ticks, snapshots, and the conversion between ticks and nanoseconds |
//! | [`usage`] | what the kernel counts for every thread anyway: CPU time, page faults and context switches |
//! | [`job`] | the place of a process in a distributed job |
//! | [`thread_times`] | the processor time of each thread of a process, at its end |
//! | [`brackets`] | how long the recorder's work before and after a call takes |
//!
//! A record is valid as soon as `committed` in its page's header includes it. So a crash leaves
//! earlier records readable. Damaged bytes must not make a reader panic.

pub mod brackets;
pub mod clock;
pub mod counts;
pub mod host;
pub mod job;
pub mod loops;
pub mod meta;
pub mod page;
pub mod pool;
pub mod preloadable;
pub mod role;
pub mod run_file;
pub mod thread_times;
pub mod usage;
pub mod wire;

pub use clock::{ClockKind, Granularity, Snapshot, Timeline, UtcClock};
pub use page::{Call, Drawn, GroupLayout, PageHeader, PageReader, PageWriter, Record};
pub use pool::Pool;
pub use run_file::RunFile;
pub use usage::Usage;
