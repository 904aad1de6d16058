//! The common part of the adapters for hosts that call ops: TVM's virtual machine and PyTorch.
//!
//! | module | purpose |
//! |---|---|
//! | [`bracket`] | begins and ends ops, runs, regions and tasks, and records their values |
//! | [`op`] | maps a call to the id of its export, without allocation |
//! | [`short`] | the short way to begin an op whose entry is known |
//! | [`vm`] | registers the hosts |
//! | [`nowhere`] | a machine that belongs to nobody, for calibration |
//! | [`watching`] | whether a machine's calls are watched just now |
//! | [`text`] | spells data types, shapes and devices |

pub mod bracket;
pub mod nowhere;
pub mod op;
pub mod short;
pub mod text;
pub mod vm;
pub mod watching;
