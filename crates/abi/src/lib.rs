//! `repr(C)` mirrors of the C interfaces that Counterpoint uses in profiled processes. Assertions
//! compare sizes and offsets with those that a C compiler gave.

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
