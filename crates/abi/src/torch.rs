//! The tables of functions through which the *shim* (a small library inside PyTorch's process)
//! calls `libcounterpoint.so`. `include/counterpoint/torch.h` describes what the tables have in
//! common. Each table also has its own header.

pub mod log;
pub mod ops;
pub mod plugins;
