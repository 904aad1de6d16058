//! Writes the text above and below a table: what was recorded, how reliable the numbers are, what
//! recording cost, and the most important findings.

pub mod across;
pub mod answer;
pub mod between;
pub mod critical;
pub mod explained;
pub mod first;
pub mod head;
pub mod held_back;
pub mod inside;
pub mod lengths;
pub mod losses;
pub mod notes;
pub mod overview;
pub mod preempted;
pub mod price;
pub mod ranks;
pub mod roles;
pub mod sampled;
pub mod tracks;
pub mod usage;
