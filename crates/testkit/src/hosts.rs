//! The hosts (frameworks) that Counterpoint supports. Their descriptions are those of the agent's
//! adapters, so that scripts and recorded profiles have the same.

#[path = "../../agent/src/adapters/iree/description.rs"]
mod iree;
#[path = "../../agent/src/adapters/torch/description.rs"]
mod torch;
#[path = "../../agent/src/adapters/tvm/description.rs"]
mod tvm;

use record::host::Host;

/// The number of IREE in scripts.
pub const IREE: u8 = 0;
/// The number of TVM in scripts.
pub const TVM: u8 = 1;
/// The number of PyTorch in scripts.
pub const TORCH: u8 = 2;

/// Returns the number and the description of each host.
pub(crate) fn known() -> [(u8, Host); 3] {
    [(IREE, iree::HOST), (TVM, tvm::HOST), (TORCH, torch::HOST)]
}
