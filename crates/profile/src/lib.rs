//! Opens a profile directory and turns raw pages into columns: batches of Arrow arrays for code
//! that writes tables, or reused vectors for code that must be fast.
//!
//! ```text
//!  manifest.json ───────────────► Manifest ─┐
//!  processes/*/meta.cps ─ frames ─► names,  ├─► Profile ─ pages ─► Columns ─► analysis
//!              /pages.cps ─ scan ─► pages   │                        └─ Rows ─► RecordBatch ─► export
//!              /ledger.json ────► losses    │
//!  the pool, while it exists ─── leftovers ─┘
//!  tracks/*/*.arrows ─ stream ────► Tracks ─ Samples
//!                      └─ collect ─► pages.cps, ledger.json; then the pool is deleted
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | [`manifest`] | reads the manifest, and writes it as a whole |
//! | [`collect`](mod@collect) | moves the remaining content of the pool into the profile |
//! | [`drain`] | appends full pages while the program runs |
//! | [`safe_dir`] | opens files of a profile without following links |
//! | [`pools`] | decides where pools are made and who owns them; finds orphaned pools |
//! | [`ledger`] | stores the losses of a process on disk, and adds up losses |
//! | [`live`] | checks whether a process still runs |
//! | [`profile`] | an opened profile: processes, threads, pages |
//! | [`ops`] | exported functions as people know them |
//! | [`demangle`] | readable names of C++ and Rust functions |
//! | [`dispatch`] | finds the calls that make up a dispatch |
//! | [`groups`] | the groups of the counters |
//! | [`columns`], [`visit`] | the calls of a page as columns of numbers; visiting all pages |
//! | [`batch`] | calls as Arrow record batches |
//! | [`merged`] | profiles of several recordings: the ranks of a job |
//! | [`passes`] | profiles of several runs of one program |
//! | [`unfinished`] | removes a directory that did not become a profile |
//! | [`series`] | directories of runs that are compared |
//! | [`activities`] | imported traces, event by event |
//! | [`launches`] | finds the op that launched each activity of a device |
//! | [`counts`] | the exact numbers of calls of a run with a budget |
//! | [`loops`] | counts of instrumented loops |
//! | [`tracks`] | writes time series, and reads them batch by batch |
//! | [`stream`] | files of Arrow batches that may be truncated anywhere |
//! | [`writer`] | writes a profile of calls that happened elsewhere |
//! | [`error`] | the error type, with path and reason |
//!
//! Invariants. Damaged bytes must not make this crate panic. Only records that the page's header
//! counts as committed are used, and a page is used once, however many copies of it exist. Missing
//! or damaged data is counted as a [`model::Loss`]. Opening and reading a profile changes nothing
//! on disk. [`collect()`] changes a profile only if the profile belongs to the caller and the pool
//! belongs to the profile.
#![forbid(unsafe_code)]

pub mod activities;
pub mod batch;
pub mod collect;
pub mod columns;
pub mod counts;
pub mod demangle;
pub mod dispatch;
pub mod drain;
pub mod error;
pub mod groups;
mod homes;
pub mod launches;
pub mod ledger;
mod leftovers;
pub mod live;
pub mod loops;
pub mod manifest;
pub mod merged;
pub mod ops;
pub mod passes;
pub mod pools;
pub mod profile;
pub mod safe_dir;
mod scan;
pub mod series;
mod sparse;
pub mod stream;
pub mod tracks;
pub mod unfinished;
pub mod visit;
pub mod writer;

pub use batch::Batches;
pub use collect::{Closing, Collected, PoolFate, collect, is_over};
pub use columns::{Columns, Status};
pub use counts::{CountedCalls, CountedSteps, ThreadSpent};
pub use error::{Error, ErrorKind, Result};
pub use groups::Groups;
pub use homes::Homes;
pub use ledger::{Ledger, LossCount, merge_losses, write_losses};
pub use leftovers::{PLUGIN_PARTS, PartId};
pub use live::{ProcessId, boot_id};
pub use manifest::{
    Clock, CounterInfo, Exit, Manifest, MetricInfo, Moment, Origin, State, SwitchCost,
};
pub use merged::Member;
pub use ops::{Op, OpId, Ops};
pub use profile::{Process, Profile, Thread};
pub use record::brackets;
pub use record::counts::steps::Steps;
pub use record::host::Host;
pub use record::job::Job;
pub use record::meta::{Calibration, Export, Library, OpExport, Role, ValueKey, ValueKind};
pub use record::page::Drawn;
pub use record::pool::ProfileId;
pub use record::{PageHeader, Timeline, Usage, UtcClock};
pub use tracks::{Sample, Tracks, TracksWriter};
pub use visit::{PageDecoder, PageKey, on_threads};
