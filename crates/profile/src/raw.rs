//! Takes a profile apart and puts it together again without rounding anything. An export in another
//! format carries these facts besides its events, so that an import makes the same profile of it.
//!
//! ```text
//!  Profile ─► PassFacts, ProcessFacts ─ JSON ─►┐
//!  pages ─► PageFacts + calls ─────── JSON ─►──┴─► Parts ─► processes/*/…, ledgers
//! ```
//!
//! Losses are written last ([`settle`]). Losses that a reader finds again by itself (a gap in the
//! pages, calls in progress) are not written to ledgers a second time.

mod meta;
mod part;

pub use meta::{
    CalibrationFacts, CountsFacts, ExportFacts, LibraryFacts, OpFacts, ProcessFacts, ValueFacts,
};
pub use part::{PageFacts, Parts, RawCalls, settle, write_losses};
pub use record::page::Call as RawCall;
pub use record::page::Drawn;
