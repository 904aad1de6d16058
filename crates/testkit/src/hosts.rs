//! The hosts (frameworks) that Counterpoint supports. Profiles that tests make from scripts contain
//! the same descriptions of hosts as recorded profiles, because both use the source files of the
//! agent (the recorder's library).

#[path = "../../agent/src/adapters/iree/description.rs"]
mod iree;
#[path = "../../agent/src/adapters/torch/description.rs"]
mod torch;
#[path = "../../agent/src/adapters/tvm/description.rs"]
mod tvm;

use record::host::Host;

/// The number that means IREE in scripts.
pub const IREE: u8 = 0;
/// The number that means TVM in scripts.
pub const TVM: u8 = 1;
/// The number that means PyTorch in scripts.
pub const TORCH: u8 = 2;

/// Returns the number and the description of each host.
pub(crate) fn known() -> [(u8, Host); 3] {
    [(IREE, iree::HOST), (TVM, tvm::HOST), (TORCH, torch::HOST)]
}
