//! Prints tables and texts: columns and cells, their layout in a terminal, and numbers for people.

pub mod csv;
pub mod layout;
pub mod markdown;
pub mod names;
pub mod shades;
pub mod table;
pub mod text;
pub mod units;
pub mod wrap;
