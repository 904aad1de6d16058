//! The fifth layer of the agent: one folder for each adapter, and [`op_calls`], which several
//! adapters use. Most adapters find the calls to record in one kind of host (profiled program), and
//! call the recorder for each of these calls. [`crate::entry::adapters`] lists the adapters.
//!
//! | module | purpose |
//! |---|---|
//! | [`announced`] | handles hosts that announce themselves and their ops through agent.h |
//! | [`iree`] | handles executable libraries of stock IREE runtimes: a stub for each exported function |
//! | [`op_calls`] | the code that the adapters for hosts with ops share |
//! | [`loops`] | counts loops of modules that `counterpoint loops instrument` has rewritten |
//! | [`plugins`] | loads profiler plugins and drives them |
//! | [`torch`] | handles stock PyTorch: ops, ranges and parallel regions, and profiler plugins inside its own profiler |
//! | [`tvm`] | handles TVM's Relax virtual machine: instrument, entry functions, parallel regions |

pub mod announced;
pub mod iree;
pub mod loops;
mod op_calls;
pub mod plugins;
pub mod torch;
pub mod tvm;
