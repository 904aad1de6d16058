//! What PyTorch says about itself in a profile.

use record::host::Host;
use record::meta::Role;
use std::borrow::Cow::Borrowed;

/// The times of a bracket begin when the recorder is called. They leave out the shim, the name that it
/// asks PyTorch for, and what the bracket displaces from the caches, and all of this is as cold as the
/// rest. Measured: 2.2 (1.6 to 2.9), in a training loop on a busy machine, with steps that had our
/// observer, one that does nothing, or none in turn: the bracket cost 1,015 ns (± 280), of which its
/// times showed 467, and 41 in the calibration.
const UNSEEN: [u32; 3] = [1_800, 1_000, 2_900];

/// The description.
pub const HOST: Host = Host {
    name: Borrowed("torch"),
    title: Borrowed("PyTorch"),
    calls_ops: true,
    dispatches: false,
    // Regions, and the task of the thread that launched one, are counted with their op.
    times_regions_only: true,
    // Between two ops, Python runs the program.
    program_between_ops: true,
    unseen: UNSEEN,
    ops: Borrowed("the ops of PyTorch"),
    library_key: Borrowed("library"),
    without_calls: Borrowed("PyTorch was seen, but none of its ops was recorded"),
    profiler: Borrowed("torch.profiler"),
    kinds: Borrowed(&[
        (Role::Region, Borrowed("torch.region")),
        (Role::Task, Borrowed("torch.task")),
    ]),
    // Each step of its profiler has a name of its own; they are one row in its own tables.
    numbered: Borrowed(&[Borrowed("ProfilerStep#")]),
    ..Host::UNKNOWN
};
