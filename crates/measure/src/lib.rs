//! Counts events in a piece of your own program.
//!
//! ```no_run
//! use measure::Counters;
//!
//! let mut counters = Counters::open(["cycles", "instructions"])?;
//! let (sum, m) = counters.measure(|| (0..1_000_000u64).sum::<u64>());
//! println!("{sum}\n{m}");
//! if let (Some(c), Some(i)) = (m.value("cycles"), m.value("instructions")) {
//!     println!("{:.2} instructions per cycle", i as f64 / c as f64);
//! }
//! # Ok::<(), measure::Error>(())
//! ```
//!
//! `counterpoint list` shows the names of all counters. All counters of one list form a group: they
//! are counted and read together, so the value of one may be divided by the value of another.
//! [`Counters::open`] fails if the machine cannot count all of them at the same time; the error
//! names the counters that can be counted together. A value that could not be read is `None`, not
//! 0.
//!
//! In a loop that is itself measured, reuse one [`Measurement`]:
//!
//! ```no_run
//! # let mut counters = measure::Counters::open(["page-faults"])?;
//! let mut m = counters.measurement();
//! let mut most = 0;
//! for _ in 0..1_000 {
//!     counters.begin(&mut m)?;
//!     // … the work …
//!     counters.end(&mut m)?;
//!     most = most.max(m.value("page-faults").unwrap_or(0));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `begin` and `end` allocate nothing and take no lock. Each makes at most one system call per
//! group, and none if the counters can be read in user mode ([`Counters::user_reads`]).
//!
//! The counters count the thread that opened them (or the thread given to [`Builder::thread`]) from
//! the opening on, on every processor on which the thread runs. [`Builder::thread`] counts another
//! thread.
//!
//! | module | what |
//! |---|---|
//! | `open` | [`Counters`] and [`Builder`]: counters by name, and reading them |
//! | `measurement` | [`Measurement`]: the counts between a start and an end |
//! | [`collector`] | [`Collector`](collector::Collector): your own values for each op of a model |
//! | `error` | why counters could not be opened or read |

#![warn(missing_docs)]

pub mod collector;

mod error;
mod measurement;
mod open;

pub use counters::{Coverage, OpenError, OpenErrorKind, Plan, PlanError, Target};
pub use error::{Error, ErrorKind, ReadError};
pub use measurement::{Count, Measurement};
pub use open::{Builder, Counters};
