//! `repr(C)` mirrors of the C interfaces that Counterpoint uses in other people's processes.
//! Layouts are asserted at compile time against offsets that were measured with a C compiler. The
//! crate is `no_std` and has neither dependencies nor behaviour.

#![warn(missing_docs)]
#![no_std]
#![forbid(unsafe_code)]

pub mod agent;
pub mod collector;
pub mod dlpack;
pub mod host;
pub mod iree;
pub mod kineto;
pub mod loops;
pub mod torch;
pub mod tvm_ffi;
