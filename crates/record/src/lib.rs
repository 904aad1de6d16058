//! Bytes: what the agent writes inside a foreign process and what readers read afterwards,
//! whole or torn.
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
//! | module | bytes |
//! |---|---|
//! | [`wire`] | little-endian encoder and decoder, prefix varints, XXH64 |
//! | [`page`] | a page: header, call records, thread clock records |
//! | [`pool`] | the shared mapping: page claims, the process table with its losses |
//! | [`meta`] | frames of a process's metadata file |
//! | [`loops`] | tables of instrumented loops, and the file that they end in |
//! | [`run_file`] | what `run` resolved and the agent obeys |
//! | [`carry`] | which programs can carry the preloaded library: none of our bytes, but known to both sides |
//! | [`clock`] | ticks, snapshots, and the line between ticks and nanoseconds |
//! | [`usage`] | what the kernel counts for every thread anyway |
//!
//! Invariants. A record counts once `committed` in its page's header covers it; a crash at any
//! instruction leaves every earlier record readable. Nothing here trusts a byte that it reads:
//! every decoder returns an error, none panics.

pub mod carry;
pub mod clock;
pub mod loops;
pub mod meta;
pub mod page;
pub mod pool;
pub mod run_file;
pub mod usage;
pub mod wire;

pub use clock::{ClockKind, Snapshot, Timeline};
pub use page::{Call, GroupLayout, PageHeader, PageReader, PageWriter, Record};
pub use pool::Pool;
pub use run_file::RunFile;
pub use usage::Usage;
