//! What the views of a profile share: tables, layout, units, losses, what stands above and below a
//! table. A view is a command that shows a profile; none uses another one's module.

pub mod columns;
pub mod csv;
pub mod first;
pub mod head;
pub mod losses;
pub mod names;
pub mod price;
pub mod shades;
pub mod source;
pub mod statistics;
pub mod table_csv;
pub mod tracks;
pub mod units;
