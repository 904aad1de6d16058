//! Prints tables and texts: columns, cells, their layout in a terminal, and readable numbers.

pub mod csv;
pub mod layout;
pub mod markdown;
pub mod names;
mod quantity;
pub mod shades;
pub mod table;
pub mod text;
pub mod units;
pub mod wrap;
