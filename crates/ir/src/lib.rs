//! Reads the text that compilers make (LLVM IR), finds its functions and loops, and instruments
//! them. The instrumented text works together with a runtime as `include/counterpoint/loops.h`
//! describes.
//!
//! | module | what |
//! |---|---|
//! | [`table`] | the side table: what each id of an instrumented module is |
#![forbid(unsafe_code)]

pub mod table;
