//! The description of PyTorch in a profile.

use record::host::Host;
use record::meta::Role;
use std::borrow::Cow::Borrowed;

/// The values for [`Host::unseen`], in thousandths: the best factor, the lowest, and the highest. A
/// bracket (the recorder's work around a call) costs more in the program than in the calibration.
/// The recorder measures the times of some brackets, which show a part of this additional cost.
/// That part times the factor is the whole additional cost. The times of brackets leave out the
/// shim's work and the cost of refilling the program's caches after the bracket, so the factor may
/// be above 1. But a measured bracket touches cache lines that other brackets do not touch, so its
/// time may also be too long. Measured in a training loop on a busy machine: by a profiler's
/// samples, the recorder and the shim took 313 ns per op; by the times of brackets, 349 ns.
const UNSEEN: [u32; 3] = [1_000, 1_000, 1_800];

pub const HOST: Host = Host {
    name: Borrowed("torch"),
    title: Borrowed("PyTorch"),
    calls_ops: true,
    dispatches: false,
    // The recorder reads no counters for a parallel region, nor for the region's task on the
    // launching thread, because the op's own counts contain theirs.
    times_regions_only: true,
    // Between two ops, the program's own Python code runs.
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
