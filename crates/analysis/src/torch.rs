//! Adds up the ops in recordings of PyTorch's profiler: by module, by line of Python code, and by
//! the shapes of the inputs. This needs the arguments of PyTorch's events, which only activities
//! contain. So the tables are computed from the activities of a Counterpoint profile, not from its
//! calls.
//!
//! ```text
//!  activities ─ slices ─► ops and modules of each row, nested ─┬─► by_shape
//!                         arrows from forward to backward ─────┴─► by_module
//! ```
//!
//! A *slice* is an event with a start and a duration. An *op* is a slice of the category `cpu_op`
//! or `user_annotation`, as in PyTorch's own tables. A *module* is a call of an `nn.Module`, which
//! PyTorch records with `with_stack=True`. Python functions are not ops: an op's self time contains
//! the Python code that runs inside of it.

mod flops;
mod modules;
mod shapes;
mod slices;

pub use modules::{ModuleRow, Modules, by_line, by_module};
pub use shapes::{SHAPE_COUNTERS, ShapeRow, Shapes, by_shape};
