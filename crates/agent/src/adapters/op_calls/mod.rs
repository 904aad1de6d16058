//! The common part of the adapters for hosts that call ops: TVM's virtual machine, PyTorch, and
//! hosts that announce themselves.
//!
//! | module | purpose |
//! |---|---|
//! | [`bracket`] | begins and ends ops; records their values |
//! | [`inside`] | begins and ends runs, regions and tasks |
//! | [`op`] | finds or makes the entry of an op (the data about it, with its id in a profile) |
//! | [`short`] | begins an op whose entry the adapter already knows, with less work |
//! | [`vm`] | registers machines that call ops |
//! | [`nowhere`] | makes a machine that is used only for calibration |
//! | [`watching`] | stores whether a machine announces each op of its present run |
//! | [`text`] | spells data types, shapes and devices |

pub mod bracket;
pub mod inside;
pub mod nowhere;
pub mod op;
pub mod short;
pub mod text;
pub mod vm;
pub mod watching;
