//! Defines Counterpoint's vocabulary, such as counters, metrics, activities, and the ways in which
//! data can be lost. This crate performs no I/O and has no unsafe code and no dependencies, because
//! it is a part of the recorder, which runs inside of other people's processes.
//!
//! | module | content |
//! |---|---|
//! | [`activity`] | kinds of activities, their published names, devices, flows, metadata values |
//! | [`buckets`] | the buckets of the histograms of durations in datasets |
//! | [`columns`] | names of the columns of views, which a user's metric must not use |
//! | [`counter`] | [`Counter`], [`Source`], [`PerfAttr`], [`SimScript`], [`Unit`], [`Scale`], [`Scope`]: a counter whose name was resolved |
//! | [`errno`] | error numbers that are internal to the kernel |
//! | [`glob`] | patterns for names |
//! | [`loss`] | [`Loss`]: the named ways to lose or distort data |
//! | [`metric`] | [`Metric`]: values computed from counters of one group, with units |
//! | [`named!`], [`numbered!`] | macros that define an enum with names and numbers from one list |
//! | [`scale`] | [`scaled`]: an estimate from a counter that ran part of the time |
//! | [`suggest`] | the known names closest to a mistyped one, for "did you mean" |
#![forbid(unsafe_code)]

pub mod activity;
pub mod buckets;
pub mod columns;
pub mod counter;
pub mod errno;
pub mod glob;
pub mod loss;
pub mod metric;
mod named;
pub mod scale;
pub mod suggest;

pub use counter::{
    Counter, MAX_COUNTERS, PerfAttr, Scale, Scope, SimReading, SimScript, Source, Unit,
};
pub use loss::{Loss, Severity};
pub use metric::Metric;
pub use scale::scaled;
