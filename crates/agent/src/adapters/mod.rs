//! The fifth layer: one folder for each kind of host. An adapter finds the calls that are to be recorded
//! and hands them to the recorder; [`crate::entry::adapters`] lists all of them.
//!
//! | module | what |
//! |---|---|
//! | [`iree`] | executable libraries of stock IREE runtimes: a trampoline for each exported function |
//! | [`loops`] | modules that `counterpoint loops instrument` has rewritten: counts of loops |
//! | [`tvm`] | TVM's Relax virtual machine: instrument, entry functions, parallel regions |

pub mod iree;
pub mod loops;
pub mod tvm;
