//! Tables and texts: columns and cells, how they fit a terminal, and numbers as people read them.

pub mod csv;
pub mod layout;
pub mod markdown;
pub mod names;
pub mod shades;
pub mod table;
pub mod text;
pub mod units;
pub mod wrap;
