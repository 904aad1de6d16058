//! What the views of a profile share: tables, layout, units, losses, and what is printed above and
//! below a table. A view is a command that shows a profile. No view uses another view's module.

pub mod answer;
pub mod columns;
pub mod critical;
pub mod csv;
pub mod explained;
pub mod first;
pub mod forest;
pub mod head;
pub mod held_back;
pub mod keys;
pub mod labels;
pub mod layout;
pub mod loops;
pub mod losses;
pub mod markdown;
pub mod metrics;
pub mod names;
pub mod notes;
pub mod open;
pub mod ops;
pub mod overview;
pub mod price;
pub mod ranks;
pub mod rights;
pub mod sampled;
pub mod shades;
pub mod source;
pub mod statistics;
pub mod table;
pub mod text;
pub mod tracks;
pub mod units;
pub mod usage;
pub mod variables;
pub mod wrap;
