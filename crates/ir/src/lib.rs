//! Reads LLVM IR or MLIR as text, finds its functions and loops, and instruments them. In this
//! crate, a *text* is a file of LLVM IR or MLIR in textual form. A *hit* is one call of a function,
//! or one execution of a loop from its entry to its exit. A *hook* is the code that is inserted
//! where hits begin and end. `include/counterpoint/loops.h` describes the runtime.
//!
//! | module | what |
//! |---|---|
//! | [`instrument`] | instruments a whole module, from text to text |
//! | [`kept`] | the text of functions in the side table |
//! | [`table`] | the side table: the function or loop of each id of an instrumented module |
//! | [`scan`] | the text as statements and tokens |
//! | [`module`] | the top level of a module: functions, target, attributes, metadata |
//! | [`function`] | the body of a function: blocks, phi nodes, terminators, edges |
//! | [`phi`] | the entries of a phi node |
//! | [`dominators`] | the dominator tree of a control-flow graph |
//! | [`loops`] | natural loops |
//! | [`choice`] | chooses the loops that are instrumented |
//! | [`schedule`] | matches the loops of a text with those of a TVM schedule |
//! | [`header`] | whether the first block of a loop does part of its work, or only decides whether the loop continues |
//! | [`iterations`] | values that count the iterations of a loop |
//! | [`trips`] | the number of iterations of each hit of a loop, if the text determines it |
//! | [`twice`] | functions that return twice (`setjmp`) |
//! | [`source`] | the name of a loop in its source |
//! | [`hit`] | the code of a hit's start and end, for all languages |
//! | [`hooks`] | the code of a hook |
//! | [`rewrite`] | inserts hooks on the edges of a function's loops |
//! | [`attributes`] | removes attributes that instrumentation makes false |
//! | [`descriptor`] | the module's own definitions: descriptor, constructor, rehearsal |
//! | [`mlir`] | the same for the text of MLIR's `llvm` dialect, as IREE's compiler prints it |
//! | [`edit`] | changes to a text, by offset |
#![forbid(unsafe_code)]

pub mod attributes;
pub mod choice;
pub mod descriptor;
pub mod dominators;
pub mod edit;
pub mod error;
pub mod function;
pub mod header;
pub mod hit;
pub mod hooks;
pub mod instrument;
pub mod iterations;
pub mod kept;
pub mod loops;
pub mod mlir;
pub mod module;
pub mod phi;
pub mod rewrite;
pub mod scan;
pub mod schedule;
pub mod source;
pub mod table;
pub mod trips;
pub mod twice;
