//! From what a person types to [`model::Counter`]s. Offline only (feature `names`).
//!
//! ```text
//!  "{cycles,instructions}:u,page-faults"
//!      │ parse    syntax only: positions, groups, modifiers          ──► List
//!      ▼
//!  Resolver       asks each NameSource in turn what a head means     ──► Vec<Counter>
//!      │  generic   software and hardware names, cache triples, rNNNN
//!      │  sysfs     pmu/term=value,…/ of the PMUs of this machine
//!      │  tracefs   system:name
//!      │  amd       AMD's names for the counters of its cores
//!      │  memory    mem:address[/length][:rwx]
//!      │  script    sim/NAME,readings=…/
//!      ▼
//!  NameError      one type for everything that can be wrong, with the byte where it is
//! ```
//!
//! A further kind of name (JSON tables, PAPI's spellings, an accelerator's counters) is one more
//! [`NameSource`]; the parser and the resolver stay as they are.

mod amd;
mod error;
mod generic;
mod memory;
mod parse;
mod resolve;
mod script;
mod suggest;
mod syntax;
mod sysfs;
mod tracefs;

pub(crate) use sysfs::{DEVICES, parse_cpus};
pub(crate) use tracefs::TRACEFS;

pub use error::{NameError, NameErrorKind};
pub use parse::parse;
pub use resolve::{Entry, NameSource, Resolved, Resolver, Trouble};
pub use syntax::{Access, Entries, Head, Item, List, Modifiers, Term};
