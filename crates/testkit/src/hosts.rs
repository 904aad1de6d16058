//! The descriptions of the hosts (frameworks) that Counterpoint supports. These descriptions come
//! from the source files of the agent's adapters, so profiles from scripts have the same
//! descriptions as recorded profiles.

#[path = "../../agent/src/adapters/iree/description.rs"]
mod iree;
#[path = "../../agent/src/adapters/torch/description.rs"]
mod torch;
#[path = "../../agent/src/adapters/tvm/description.rs"]
mod tvm;

use record::host::Host;

/// The number of IREE in scripts. Libraries belong to IREE unless a test says otherwise.
pub const IREE: u8 = 0;
/// The number of TVM in scripts.
pub const TVM: u8 = 1;
/// The number of PyTorch in scripts.
pub const TORCH: u8 = 2;

/// Returns the number and the description of each host.
pub(crate) fn known() -> [(u8, Host); 3] {
    [(IREE, iree::HOST), (TVM, tvm::HOST), (TORCH, torch::HOST)]
}
