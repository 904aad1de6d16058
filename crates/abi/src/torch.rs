//! The tables that connect PyTorch's process with `libcounterpoint.so`:
//! `include/counterpoint/torch.h` and one header for each part.

pub mod log;
pub mod ops;
pub mod plugins;
