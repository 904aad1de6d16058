//! The tests of the command line: one program, because each would compile and link the same
//! support and the same libraries.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod call_hook;
mod carry;
mod commands;
mod doctor;
mod half_written;
mod hook;
mod inject;
mod iree_v5;
mod kept;
mod kills;
mod leftovers;
mod locked;
mod metrics;
mod multiplex;
mod ops;
mod ops_oracle;
mod outside;
mod parquet;
mod passes;
mod places;
mod programs;
mod recover;
mod report;
mod seccomp;
mod session;
mod stats;
mod stats_oracle;
mod stock_iree;
mod storm;
mod support;
mod trace;
mod trace_foreign;
mod trace_forged;
mod trace_import;
mod trace_merge;
mod trace_perfetto;
mod trace_restore;
mod trace_round;
mod tracks;
mod tvm;
mod tvm_stock;
mod two;
