//! The description of PyTorch in a profile.

use record::host::Host;
use record::meta::Role;
use std::borrow::Cow::Borrowed;

/// The factors for [`Host::unseen`], in thousandths: the best value, and the lowest and the highest
/// one. A bracket costs more in the program than in the calibration. The measured times show a part
/// of this additional cost, and the factor turns this part into the whole. The measured times leave
/// out the shim's work, and the cost of refilling the caches after the bracket. But taking the
/// times touches cache lines that other brackets do not touch. Measured in a training loop on a
/// busy machine: a profiler's samples showed 313 ns per op in the recorder and the shim, but the
/// times of brackets showed 349 ns.
const UNSEEN: [u32; 3] = [1_000, 1_000, 1_800];

pub const HOST: Host = Host {
    name: Borrowed("torch"),
    title: Borrowed("PyTorch"),
    calls_ops: true,
    dispatches: false,
    // A region, and the task on the thread that launched it, have no counters of their own: the
    // counters of their op include them.
    times_regions_only: true,
    // Between two ops, Python runs the program.
    program_between_ops: true,
    shapes_if_asked: true,
    unseen: UNSEEN,
    ops: Borrowed("the ops of PyTorch"),
    library_key: Borrowed("library"),
    without_calls: Borrowed("PyTorch was seen, but none of its ops was recorded"),
    profiler: Borrowed("torch.profiler"),
    kinds: Borrowed(&[
        (Role::Region, Borrowed("torch.region")),
        (Role::Task, Borrowed("torch.task")),
    ]),
    // Each step of PyTorch's profiler has a different name, which ends with a number. PyTorch's own
    // tables show all steps in one row.
    numbered: Borrowed(&[Borrowed("ProfilerStep#")]),
    ..Host::UNKNOWN
};
