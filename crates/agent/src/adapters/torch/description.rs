//! The description of PyTorch in a profile.

use record::host::Host;
use record::meta::Role;
use std::borrow::Cow::Borrowed;

/// The times of a bracket begin when the recorder is called. They leave out the shim, and the cost
/// of what the bracket displaces from the caches; on the other hand, taking them touches cache
/// lines that other brackets do not. Measured: in a training loop on a busy machine, a profiler's
/// samples showed 313 ns per op in the recorder and the shim, where the times showed 349.
const UNSEEN: [u32; 3] = [1_000, 1_000, 1_800];

pub const HOST: Host = Host {
    name: Borrowed("torch"),
    title: Borrowed("PyTorch"),
    calls_ops: true,
    dispatches: false,
    // Regions, and the task of the thread that launched one, are counted with their op.
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
    // Each step of PyTorch's profiler has a name of its own; in PyTorch's own tables, the steps are
    // one row.
    numbered: Borrowed(&[Borrowed("ProfilerStep#")]),
    ..Host::UNKNOWN
};
