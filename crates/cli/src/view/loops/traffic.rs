//! Computes bounds of the number of bytes that loops moved, with `analysis::loops::traffic`. The
//! inputs are the bytes of loads and stores in machine code, the sizes of an op's tensors, and
//! hits, iterations and times.

use analysis::loops::traffic::{Bounds, Requests, bytes_of_arguments, footprint, requested};
use analysis::loops::{Estimate, LoopNode, LoopTree};
use ir::table::Kind;
use record::meta::Role;

use super::code::Found;
use super::{Loops, iterations};

/// Returns the time of all hits in seconds.
fn seconds(loops: &Loops<'_>, tree: &LoopTree, node: &LoopNode) -> Option<Estimate> {
    let time = node.all.times(loops.raw)?.inclusive;
    let ns = tree.ns(1.0)?;
    Some(time.scaled(ns / 1e9))
}

/// Returns bounds of the number of bytes that the loads and stores of a loop requested. `None` if
/// the loop's code or iterations are not known, or if the code contains calls, jumps to unknown
/// places, or not exactly one machine loop.
pub fn of_code(
    loops: &Loops<'_>,
    tree: &LoopTree,
    node: &LoopNode,
    found: &Found,
) -> Option<Bounds> {
    let region = found.as_ref().ok()?.regions.found.get(&node.id)?;
    let [only] = region.loops.as_slice() else { return None };
    if !only.innermost || region.counts.calls > 0 || region.unknown_jumps > 0 {
        return None;
    }
    // These sums do not contain what hooks save from registers to memory, because that is no work
    // of the loop.
    let bytes = |c: &code::region::Counts| c.bytes_loaded + c.bytes_stored;
    let requests = Requests {
        region: bytes(&region.counts),
        machine_loop: bytes(&only.counts),
        is_straight: only.straight,
    };
    let iterations = iterations(tree.entry(node), &node.all)?;
    requested(requests, node.all.hits, iterations, seconds(loops, tree, node))
}

/// Returns bounds of the number of bytes of arguments that the calls of a TVM function touched. The
/// sizes come from the op with the function's name. `None` if the node is a loop, if no op has this
/// name, if ops of this name have different arguments, or if a tensor's size is not known.
pub fn of_arguments(loops: &Loops<'_>, tree: &LoopTree, node: &LoopNode) -> Option<Bounds> {
    let entry = tree.entry(node).filter(|entry| entry.kind == Kind::Function)?;
    let name = entry.function.trim_start_matches("__tvm_ffi_").trim_end_matches("_compute_");
    let mut ops =
        loops.profile.ops.all().iter().filter(|op| op.name == name && op.role == Role::Op);
    let arguments = &ops.next()?.arguments;
    if !ops.all(|other| other.arguments == *arguments) {
        return None;
    }
    footprint(bytes_of_arguments(arguments)?, node.all.hits, seconds(loops, tree, node))
}
