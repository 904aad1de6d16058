//! The adapter for stock PyTorch. A shim that is compiled on the user's machine speaks PyTorch's C++
//! ABI, and calls this adapter through one table of functions for each part of the bridge.
//! `include/counterpoint/torch.h` says how the shim and the tables find each other.
//!
//! | module | purpose |
//! |---|---|
//! | [`log`] | takes over the recordings of PyTorch's profiler |
//! | [`plugins`] | runs profiler plugins inside PyTorch's own profiler |

pub mod log;
pub mod plugins;
