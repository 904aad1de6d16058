//! The code that the views of a profile share. A view is a command that shows a profile. No view
//! uses the module of another view.
//!
//! | room | what it does |
//! |---|---|
//! | `open`, `rights` | opens a profile, and gives up the rights that a view does not need |
//! | `rows` | chooses rows and columns, and names the rows |
//! | `print` | prints tables, texts and numbers |
//! | `prose` | prints the sentences, notes and losses above and below a table |
//! | `loops`, `ops`, `statistics` | prepares contents that more than one view shows |
//!
//! A room is a directory (or a set of modules) in `view`. Paths in the code leave out the room:
//! `view::table` is the module in `view/print/table.rs`.

pub mod loops;
pub mod open;
pub mod ops;
mod print;
mod prose;
pub mod rights;
mod rows;
pub mod statistics;

pub use print::{csv, layout, markdown, names, shades, table, text, units, wrap};
pub use prose::{
    across, between, critical, explained, head, held_back, inside, lengths, losses, notes,
    overview, preempted, price, ranks, roles, sampled, tracks, usage,
};
pub use rows::{columns, forest, keys, labels, metrics, source, variables};
