//! A profile taken apart and put together again, with nothing rounded: what an export in another
//! format carries beside its events, so that an import makes the same profile of it.
//!
//! ```text
//!  Profile ─► PassFacts, ProcessFacts ─ JSON ─►┐
//!  pages ─► PageFacts + calls ─────── JSON ─►──┴─► Parts ─► processes/*/…, ledgers
//! ```
//!
//! Losses are written last ([`settle`]): those that a reader finds again by itself (a gap in the
//! pages, calls in progress) are not written into ledgers a second time.

mod meta;
mod part;

pub use meta::{CalibrationFacts, ExportFacts, LibraryFacts, OpFacts, ProcessFacts, ValueFacts};
pub use part::{PageFacts, Parts, RawCalls, settle, write_losses};
pub use record::page::Call as RawCall;
