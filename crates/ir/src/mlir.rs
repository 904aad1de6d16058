//! Does for MLIR's `llvm` dialect what the rest of the crate does for LLVM IR. The text is what
//! `iree-compile --compile-to=executable-targets` prints.
//!
//! ```text
//!  module {                                   anything: not looked at, and not changed
//!    hal.executable.variant … {
//!      builtin.module attributes {llvm.target_triple = …} {      one of our modules: a descriptor
//!        llvm.func @dispatch(…) {                                hooks on the edges of its loops
//!        ^bb1(%53: i64):
//!          llvm.cond_br %54, ^bb2(%25 : i64), ^bb8
//! ```
//!
//! The inserted text calls small internal functions (`begin`, `end`, …), which LLVM inlines. The
//! calls for a loop are in new blocks on the edges into and out of the loop. Each new block passes
//! on the arguments of its edge. A hit keeps its values on the function's stack, and LLVM moves
//! them into registers. So recursion and threads need no special care.
//!
//! | module | what |
//! |---|---|
//! | [`instrument`] | instruments a whole text |
//! | [`scan`] | brackets, strings, comments and statements |
//! | [`read`] | the modules and functions of a text |
//! | [`body`] | the blocks of a function |
//! | [`rewrite`] | inserts hooks on the edges of loops |
//! | [`hooks`] | the functions that hooks call |
//! | [`descriptor`] | the descriptor and the rehearsal |
//! | [`iterations`] | the number of iterations of a loop |
//! | [`place`] | source locations |

pub mod body;
pub mod descriptor;
pub mod hooks;
pub mod instrument;
pub mod iterations;
pub mod place;
pub mod read;
pub mod rewrite;
pub mod scan;
