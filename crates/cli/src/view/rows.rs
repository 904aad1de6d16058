//! Makes the rows and columns of a table: their identity, labels and order, and the values in their
//! cells.

pub mod columns;
pub mod forest;
pub mod keys;
pub mod labels;
pub mod metrics;
pub mod source;
pub mod variables;
