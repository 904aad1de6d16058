//! The common part of the adapters for hosts that call ops: TVM's virtual machine, PyTorch, and
//! hosts that announce themselves.
//!
//! | module | purpose |
//! |---|---|
//! | [`bracket`] | begins and ends ops, runs, regions and tasks; records their values |
//! | [`op`] | maps a call to the id of its export, without allocation |
//! | [`short`] | a faster way to begin an op whose entry is known |
//! | [`vm`] | registers machines that call ops |
//! | [`nowhere`] | a machine without a host, for calibration |
//! | [`watching`] | decides whether a machine's calls are watched at present |
//! | [`text`] | spells data types, shapes and devices |

pub mod bracket;
pub mod nowhere;
pub mod op;
pub mod short;
pub mod text;
pub mod vm;
pub mod watching;
