//! Other people's trace formats.
//!
//! ```text
//!  profile ─► calls, dispatches, counters ─► Sink, which is ─┬─ chrome::write::Writer ───► .json
//!                                                            └─ perfetto::write::Writer ─► .pftrace
//!  .json ────► chrome::read ───┐
//!  .pftrace ─► perfetto::read ─┴► events ─► import ─► profile ─► activities ─► .json, .pftrace
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`event`] | what a timeline consists of, and [`Sink`], what takes it |
//! | [`activities`] | imported traces, written again |
//! | [`calls`] | a profile's calls as a timeline |
//! | [`tracks`] | a profile's time series as a timeline |
//! | [`dispatch`] | which workgroup calls make up a dispatch |
//! | [`filter`] | a part of a timeline: some categories, a window of time |
//! | [`facts`] | what a trace format cannot carry: the object `counterpoint` |
//! | [`raw`], [`restore`] | what an import of our own needs, and the import |
//! | [`chrome`] | Chrome's JSON with Kineto's schema: reading, writing |
//! | [`perfetto`] | Perfetto's protobuf format: reading, writing |
//! | [`check`] | what is wrong with a file, and at which byte |
//! | [`kind`] | what kind of file this is |
//! | [`import`] | a trace as a profile |
//! | [`merge`] | several traces as one, on one clock |
//! | `relay` | a timeline that one thread makes and another one writes |
//! | [`text`] | JSON's strings and numbers |
//!
//! Invariants. Memory does not grow with the number of calls. Every string is escaped, whatever
//! it holds. Times are integers of nanoseconds all the way; only writers know of microseconds.
#![forbid(unsafe_code)]

pub mod activities;
pub mod calls;
pub mod check;
pub mod chrome;
pub mod dispatch;
pub mod event;
pub mod facts;
pub mod filter;
pub mod import;
pub mod kind;
pub mod merge;
mod numbers;
pub mod perfetto;
pub mod raw;
mod relay;
pub mod restore;
pub mod text;
pub mod tracks;

pub use calls::{CallsOptions, export_calls};
pub use event::ThreadRow;
pub use event::{
    Arg, ArgValue, Counter, Flow, FlowEnd, Id, Instant, Label, ProcessRow, Row, Shape, Sink, Slice,
};
pub use tracks::export_tracks;
