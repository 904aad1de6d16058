//! In a run with a budget (a limit for the cost of recording), counts all calls and *draws* some of
//! them (chooses them at random). Most calls that are not drawn are only counted.
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
//! | [`sampling`] | counts a call, and decides whether it is drawn |
//! | [`calls`] | begins and ends calls that are drawn |
//! | [`ops`] | ops whose host calls the agent even if they are only counted |
//! | [`table`] | the thread's counts, in memory that `counterpoint run` shares with the processes of a run |
//! | [`random`] | random numbers and gaps |
//! | [`steps`] | handles hosts that announce their ops only in some steps of a program |
//! | [`watch`] | counts the calls of a model's runs without announcements, if each run makes the same calls |
//! | [`account`] | the cost of recording, and how much it may cost |
//! | `replay` | tests: draws calls from recorded programs |
//!
//! # The algorithm
//!
//! For each export *e* (recorded function), each thread has one entry in its table. For a call that
//! is only counted, the entry's fields `calls` and `next` are used. `drawn` is the value of `calls`
//! at the last drawn call. On average, one in `period` calls is drawn. `timed` is the number of
//! drawn calls that have ended, and `ticks` their total time. The thread's account contains the
//! share of the calls' time that may be spent on timing.
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
//! A period depends only on calls before the gap for which it is used. Within such a gap, each call
//! is drawn with the same probability, whatever the program did before. So estimates are unbiased,
//! also for programs that repeat the same calls regularly. If a call was drawn but cannot be
//! recorded, its draw is given back: the next drawn call also represents this call.
//!
//! To count a call and to decide whether it is drawn takes one increment and one comparison. The
//! count is exact even if a signal handler interrupts the thread at any instruction. Each call has
//! a number, so the numbers of two drawn calls give the number of calls between them.
//!
//! An open performance counter slows down each context switch of its thread, even while it is
//! disabled. With Linux 6.18, a switch takes 2.1 µs without counters, 3.1 µs with one open counter,
//! 2.8 µs if that counter is disabled, and 2.2 µs after it was closed. So counters are only open
//! during calls in which they are read.

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
