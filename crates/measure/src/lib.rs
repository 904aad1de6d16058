//! Counting a piece of your own program.
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
//! Names are those of `counterpoint list`. All counters of one list are one group: counted and
//! read together, so that they may be divided by one another. What does not fit the machine is
//! refused when it is opened, with the set that fits; nothing is narrowed, left out or scaled
//! silently. A value that could not be had is `None`, never 0.
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
//! Begin and end allocate nothing, take no lock, and make one system call each per group, or none
//! where the processor's counters can be read in user mode ([`Counters::user_reads`]).
//!
//! Only what the thread that opened does is counted, from opening on, wherever it runs. For other
//! threads: [`Builder::thread`].
//!
//! | module | what |
//! |---|---|
//! | `open` | [`Counters`] and [`Builder`]: counters by name, and reading them |
//! | `measurement` | [`Measurement`]: what was counted between a begin and an end |
//! | [`collector`] | [`Collector`](collector::Collector): values of your own for each op of a model |
//! | `error` | why counters could not be opened or read |

pub mod collector;

mod error;
mod measurement;
mod open;

pub use counters::{Coverage, OpenError, OpenErrorKind, Plan, PlanError, Target};
pub use error::{Error, ErrorKind, ReadError};
pub use measurement::{Count, Measurement};
pub use open::{Builder, Counters};
