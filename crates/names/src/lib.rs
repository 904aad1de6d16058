//! Turns the names that a person types into [`model::Counter`]s. The recorder inside a profiled
//! program does not contain this crate.
//!
//! ```text
//!  "{cycles,instructions}:u,page-faults"
//!      │ parse    the syntax: positions, groups, modifiers            ──► List
//!      ▼
//!  Resolver       asks each NameSource in turn what a name means     ──► Vec<Counter>
//!      │  generic   software and hardware names, cache triples, rNNNN
//!      │  papi      the same counters as perf::NAME and PAPI_*
//!      │  tables    a vendor's names, from JSON tables of the user
//!      │  amd       AMD's names for the counters of its cores
//!      │  script    sim/NAME,readings=…/
//!      │  memory    mem:address[/length][:rwx]
//!      │  uprobe    uprobe:path:function
//!      │  sysfs     pmu/term=value,…/ of the PMUs of this machine
//!      │  tracefs   system:name
//!      │  devices   component:::name of accelerators (module `devices`)
//!      │  tables    a vendor's names again, from an installed perf
//!      ▼
//!  near           which names are spelled like an unknown one
//!  NameError      one type for everything that can be wrong, with the byte where it is, and a
//!                 NameCause from which the command line makes advice
//! ```
//!
//! To add a kind of names, write a [`NameSource`] in a new file and add it to the list of sources
//! in `resolve.rs`. The parser need not change if the names have one of the existing forms.

pub mod defaults;
pub mod devices;

mod amd;
mod cause;
mod error;
mod format;
mod generic;
mod memory;
mod near;
mod papi;
mod parse;
mod print;
mod resolve;
mod script;
mod source;
mod syntax;
mod sysfs;
mod tables;
mod tracefs;
mod units;
mod uprobe;
mod vendor;

pub use cause::NameCause;
pub use error::{NameError, NameErrorKind};
pub use parse::{parse, pieces};
pub use resolve::Resolver;
pub use source::{Called, Entry, NameSource, Resolved, Trouble};
pub use syntax::{Access, Entries, Filter, Head, Item, List, Modifiers, Term};
