//! Reads and writes datasets: the recordings of many ranks of a job, as Parquet files for query
//! engines.
//!
//! ```text
//!  Profile ─ analysis::summarize, exact ─► rows ─► file ──► DATASET/TABLE/run=R/rank=N/part-K-H.parquet
//!           (the one account)                               DATASET/parts/run=R/rank=N/part-K.json
//!                                                           DATASET/dataset.json
//!  DATASET, DATASET, … ─ open ─► merge ─► a new directory with one file per table and run
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | [`schema`] | the tables, their columns and types |
//! | [`layout`] | names of files; parts, which list the files that belong together |
//! | [`open`](mod@open) | opens a dataset, and finds what is incomplete in it |
//! | [`across`](mod@across) | reads the rows of all ranks, for `analysis::across` |
//! | [`export`](mod@export) | adds the recording of one rank to a dataset, as a part |
//! | `rows`, `calls` | make the rows of the tables from a profile |
//! | `pages` | decides which pages (blocks of recorded calls) an export adds to `calls` |
//! | `keys` | keys of ops: the same op has the same key in all ranks |
//! | `lock` | lets only one process at a time write the parts of a rank |
//! | [`merge`](mod@merge) | merges datasets; each recording is taken once |
//! | `file` | writes files that are either complete or do not exist |
//! | `footer` | compares the footer of a Parquet file with the file's part |
//! | [`gaps`] | describes in words what is incomplete in a dataset |
//! | [`own`] | distinguishes a dataset's own files from other files |
//! | [`steps`] | places at which tests kill or stop a writer |
//! | [`error`] | the error type |
//!
//! Without the feature `write`, the crate contains only what a reader needs, and does not depend on
//! Arrow: `counterpoint-query` uses another version of Arrow.
//!
//! Invariants: a part exists if its JSON file exists. That file is written after the Parquet files
//! that it lists, and replaced as a whole. So a writer that is killed leaves the old or the new
//! part, and perhaps files that no part lists. An export does not replace a part by an earlier
//! state of the same recording, except to remove names. No file outside of the dataset's directory
//! is read, whatever paths its JSON files contain.
#![forbid(unsafe_code)]

// `counterpoint-query` includes `footer.rs` as well. That file imports from a crate `dataset`, so
// this crate must have that name inside of itself, too.
#[cfg(feature = "write")]
extern crate self as dataset;

#[cfg(feature = "write")]
pub mod across;
#[cfg(feature = "write")]
mod calls;
pub mod error;
#[cfg(feature = "write")]
pub mod export;
#[cfg(feature = "write")]
mod file;
#[cfg(feature = "write")]
mod footer;
pub mod gaps;
#[cfg(feature = "write")]
mod keys;
pub mod layout;
#[cfg(feature = "write")]
mod lock;
#[cfg(feature = "write")]
pub mod merge;
pub mod open;
pub mod own;
#[cfg(feature = "write")]
mod pages;
#[cfg(feature = "write")]
mod rows;
pub mod schema;
#[cfg(feature = "write")]
pub mod steps;

#[cfg(feature = "write")]
pub use across::{Only, across};
pub use error::{Error, Result};
#[cfg(feature = "write")]
pub use export::{Exported, Options, export};
pub use gaps::Gap;
pub use layout::{Member, Part};
#[cfg(feature = "write")]
pub use merge::{Merged, merge};
pub use model::buckets;
pub use open::Dataset;
pub use schema::Table;
