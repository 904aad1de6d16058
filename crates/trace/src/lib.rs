//! Reads and writes trace formats of other programs.
//!
//! ```text
//!  profile ─► export::calls, export::tracks ─► TimelineSink ─┬─ chrome::write::Writer ───► .json
//!                                                            └─ perfetto::write::Writer ─► .pftrace
//!  .json ────► chrome::read ───┐
//!  .pftrace ─► perfetto::read ─┴► events ─► import ─► profile ─► export::activities ─► .json, .pftrace
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`timeline`] | the parts of a timeline, and [`timeline::TimelineSink`], which receives one |
//! | [`export`] | timelines from profiles: of recorded calls, time series and imported activities |
//! | [`import`] | profiles from traces of other programs |
//! | [`merge`] | merges several traces into one, on one clock |
//! | [`chrome`] | Chrome's JSON with Kineto's schema: reading, writing, checking |
//! | [`iree`] | reads recordings of IREE's own profiler |
//! | [`perfetto`] | Perfetto's protobuf format: reading, writing, checking |
//! | [`stacks`] | stacks with values, for programs that show flame graphs: writing |
//! | [`check`] | problems in a trace file, each with its byte offset |
//! | [`kind`] | recognises the format of a file |
//! | [`text`] | strings and numbers of JSON |
//!
//! Invariants. While calls are exported, one page (block) of calls of each thread is decoded in
//! memory. The writers escape strings, except for strings that are already JSON in an imported
//! trace. Times are integer nanoseconds.
#![forbid(unsafe_code)]

pub mod check;
pub mod chrome;
pub mod export;
mod hash;
pub mod import;
pub mod iree;
pub mod kind;
pub mod merge;

pub mod perfetto;
pub mod stacks;
pub mod text;
pub mod timeline;
