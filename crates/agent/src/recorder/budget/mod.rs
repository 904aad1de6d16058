//! Draws the calls that are timed (chooses them at random), in a run with a budget, and counts all
//! of them.
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
//! | [`sampling`] | which calls are timed: counts a call, and draws it or not |
//! | [`calls`] | begins and ends calls that are drawn |
//! | [`ops`] | ops of virtual machines and PyTorch, which the host ends even if they are only counted |
//! | [`table`] | the thread's counts, in pages of the pool |
//! | [`random`] | random numbers and gaps |
//! | [`steps`] | steps of a program; a host's ops are announced in some of them only |
//! | [`watch`] | runs of a model whose calls are known, so that the host need not tell us of them |
//! | [`account`] | what recording costs, and what it may cost |
//! | `replay` | tests: draws from recorded programs |
//!
//! # The algorithm
//!
//! Each thread has one entry for each export *e*: `calls` and `next` (the only fields that are read for a
//! call that is only counted), `drawn` (the number of the last drawn call), `period` (calls for each that is
//! drawn), and `timed` and `ticks` (the drawn calls so far, and their time). The thread's account says which
//! share of the time of its calls timing may take.
//!
//! ```text
//!  begin(call of e):                                                calls::begin_in_budget, ops::begin_op_in_budget
//!      calls += 1                                                   sampling::count
//!      if calls < next: return only counted                         an op is kept on a stack, for its end (ops)
//!      draw(e), and open the call with or without its counters      calls::open_drawn
//!
//!  draw(e):                                                         sampling::Draws::draw
//!      skipped ← calls − 1 − drawn;  drawn ← calls                  what this call stands for besides itself
//!      p ← period                                                   with which this call was drawn
//!      period ← 1 for the first 8, then timed cost · timed / (share · ticks), rounded    account::period
//!      next ← calls + gap,  P(gap > k) = (1 − 1/period)^k           random::gap
//!      read counters with the probability 1/q                       q likewise, from what counters cost more
//!      return (p, q, skipped)                                       they are in the call's record
//!
//!  end(call):                                                       calls::finish_draw
//!      timed += 1;  ticks += duration                               sampling::Draws::add
//!      account += what the recorder took, if that was measured
//!
//!  every millisecond, with the record of the thread's clocks:       calls::update_account
//!      share ← budget − (what is not drawn, and a part of the debt) / processor time      account::update_share
//! ```
//!
//! A period depends only on calls before the one for which it is used, so estimates stay unbiased;
//! a gap has no memory, so a periodic program cannot hide from it. A call that was drawn and cannot
//! be recorded is given back: the next drawn call then stands for it, too.
//!
//! Counting and deciding are one increment and one comparison, and the count is exact at every instruction.
//! The number of calls that were only counted before a drawn one follows from the numbers of the drawn calls.
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
pub mod sampling;
pub mod steps;
pub mod table;
pub mod watch;
