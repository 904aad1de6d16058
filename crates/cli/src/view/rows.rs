//! Makes the rows and columns of a table: the identity, label and order of each row, and the values
//! in the cells.

pub mod columns;
pub mod forest;
pub mod keys;
pub mod labels;
pub mod metrics;
pub mod source;
pub mod variables;
