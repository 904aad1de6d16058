//! Reads the text that compilers make (LLVM IR), finds its functions and loops, and instruments
//! them. The instrumented text works together with a runtime as `include/counterpoint/loops.h`
//! describes.
//!
//! | module | what |
//! |---|---|
//! | [`instrument`] | a whole module, from text to text |
//! | [`kept`] | the text of functions, as the side table keeps it |
//! | [`table`] | the side table: the function or loop of each id of an instrumented module |
//! | [`scan`] | the text as statements and tokens |
//! | [`module`] | the top level of a module: functions, target, attributes, metadata |
//! | [`function`] | the body of a function: blocks, phi nodes, terminators, edges |
//! | [`phi`] | the entries of a phi node |
//! | [`dominators`] | the dominator tree of a control-flow graph |
//! | [`loops`] | natural loops |
//! | [`choice`] | which loops are instrumented |
//! | [`schedule`] | which loop of a TVM schedule a loop is |
//! | [`header`] | whether the first block of a loop works, or only decides whether it goes on |
//! | [`iterations`] | values that count the iterations of a loop |
//! | [`trips`] | how many iterations each hit of a loop has, where the text says so |
//! | [`twice`] | functions that return twice (`setjmp`) |
//! | [`source`] | the name of a loop in its source |
//! | [`hit`] | the code of a hit's start and end, in whichever language |
//! | [`hooks`] | the code of a hook |
//! | [`rewrite`] | inserts hooks on the edges of a function's loops |
//! | [`attributes`] | removes attributes that become false |
//! | [`descriptor`] | the module's own part: descriptor, constructor, rehearsal |
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
