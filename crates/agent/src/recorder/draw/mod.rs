//! Draws the calls that are timed, in a run with a budget, and counts all of them.
//!
//! ```text
//!  every call   entry.calls += 1 ─► below entry.next? ─► jump to the original      only counted
//!                                        │ no
//!  drawn call   period, gap to the next one ─► bracket, with or without counters ─► record
//!                                                          └─► what it cost ─► account
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | [`state`] | what a thread has for drawing: counts a call, and draws it |
//! | [`calls`] | begins and ends calls that are drawn |
//! | [`ops`] | ops of virtual machines and PyTorch, which the host ends even if they are only counted |
//! | [`table`] | the thread's counts, in pages of the pool |
//! | [`random`] | random numbers and gaps |
//! | [`watch`] | runs of a model whose calls are known, so that the host need not tell us of them |
//! | [`account`] | what recording costs, and what it may cost |
//! | `replay` | tests: draws from recorded programs |
//!
//! A call is due if its number has reached `next`. So counting and deciding are one increment and
//! one comparison, and the count is exact at every instruction. How many calls were only counted
//! before a drawn one follows from their numbers.
//!
//! A counter that is open slows down each context switch of its thread, even while it is disabled
//! (measured with Linux 6.18: 2.1 µs for a switch without, 3.1 with one counter, 2.8 with one that is
//! disabled, 2.2 with one that was closed). So counters are only open during calls in which they are
//! read.

pub mod account;
pub mod calls;
pub mod ops;
pub mod random;
#[cfg(test)]
mod replay;
pub mod state;
pub mod table;
pub mod watch;
