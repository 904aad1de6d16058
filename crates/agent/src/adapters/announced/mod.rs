//! The adapter for hosts that announce themselves and their calls through the agent's table of
//! functions. `include/counterpoint/host.h` documents the interface.
//!
//! ```text
//!  host_machine ──► a description and a machine
//!  op_begin · op · op_end ──────────────────────── role op, run or range
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | [`machines`] | copies the descriptions of hosts, and registers machines |
//! | [`calls`] | records calls |

pub mod calls;
pub mod machines;

use crate::recorder::adapter::Adapter;

pub static ADAPTER: Adapter = Adapter {
    rehearse: calls::rehearse,
    // These hosts can have bookkeeping ops (which only manage the host's data). By default, no
    // counters are read for bookkeeping ops.
    has_uncounted: true,
    ..Adapter::NOTHING
};
