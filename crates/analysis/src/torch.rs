//! Adds up recordings of PyTorch's profiler by module and by shape. The arguments of the profiler's
//! events are needed for this, so the tables are computed from the profile's activities instead of
//! its calls.
//!
//! ```text
//!  activities ─ slices ─► ops and modules of each row, nested ─┬─► by_shape
//!                         arrows from forward to backward ─────┴─► by_module
//! ```
//!
//! An *op* is a slice of the category `cpu_op` or `user_annotation`, as in PyTorch's own tables. A
//! *module* is a call of an `nn.Module`, which PyTorch records with `with_stack=True`. Python
//! functions are not ops: an op's self time contains the Python code that runs inside of it.

mod flops;
mod modules;
mod shapes;
mod slices;

pub use modules::{ModuleRow, Modules, by_line, by_module};
pub use shapes::{SHAPE_COUNTERS, ShapeRow, Shapes, by_shape};
