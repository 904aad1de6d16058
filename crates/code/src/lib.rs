//! Finds and describes the machine code of instrumented functions and loops, in an ELF file or in
//! code that was copied out of a process. For each of these functions and loops, which have ids,
//! the result is a region: ranges of addresses with facts about their code.
//!
//! ```text
//!  bytes ─► image ─► graph ─► values ─► gates ─► region
//!           address   blocks,  where the  hooks    ranges, machine loops,
//!           → bytes   loops    table is   of ids   instructions by class
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`image`] | code and data by address, symbols, unwind tables |
//! | [`insn`] | an instruction: control flow, memory operand, effect on registers, kinds |
//! | [`x86`], [`arm`] | the decoders |
//! | [`graph`] | the blocks and loops of a function |
//! | [`values`] | the values of registers and stack slots |
//! | [`gates`] | where hits (runs of a loop or function) of each id start and end |
//! | [`callees`] | which functions calls reach |
//! | [`region`] | the code of each id |
//! | [`words`] | describes a loop in words |
//!
//! The input may come from anybody: sizes, counts and rounds have limits, and no input may make
//! these functions panic (`tests/damaged.rs`).
#![forbid(unsafe_code)]

pub mod arm;
pub mod callees;
pub mod error;
pub mod gates;
pub mod graph;
pub mod image;
pub mod insn;
pub mod region;
pub mod values;
pub mod words;
pub mod x86;

pub use error::CodeError;
pub use image::Image;
pub use region::{Region, Regions, Wanted, regions};
