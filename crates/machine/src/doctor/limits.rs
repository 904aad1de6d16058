//! Examines what the machine allows a program to use: shared memory, descriptors, file sizes,
//! locked memory.

use super::facts;
use super::{Finding, Level, Limit};
use crate::files::Machine;

pub(super) fn examine(machine: &Machine) -> Vec<Finding> {
    let mut all = vec![shared_memory(machine), open_files(machine), file_size(machine)];
    all.extend(locked_memory(machine));
    all
}

const MIB: u64 = 1 << 20;

fn shared_memory(machine: &Machine) -> Finding {
    let name = "/dev/shm";
    let Some((size, free)) = facts::file_system(&machine.path("dev/shm")) else {
        return Finding::ok(name, "not there").at(
            Level::Problem,
            "recording: its pages are kept there",
            Limit::NoSharedMemory,
        );
    };
    let finding = Finding::ok(name, format!("{} MiB, {} MiB free", size / MIB, free / MIB));
    if free >= 64 * MIB {
        return finding;
    }
    let level = if free < 8 * MIB { Level::Problem } else { Level::Note };
    finding.at(
        level,
        "programs with many threads: calls are dropped when no page is free",
        Limit::LittleSharedMemory,
    )
}

fn open_files(machine: &Machine) -> Finding {
    let name = "open files";
    match facts::soft_limit(machine, "Max open files") {
        None => Finding::ok(name, "unknown"),
        Some(None) => Finding::ok(name, "unlimited"),
        Some(Some(n)) if n >= 1024 => Finding::ok(name, n.to_string()),
        Some(Some(n)) => Finding::ok(name, n.to_string()).at(
            Level::Note,
            "counters in many threads: each takes a descriptor per thread",
            Limit::FewDescriptors,
        ),
    }
}

fn file_size(machine: &Machine) -> Finding {
    let name = "file size";
    match facts::soft_limit(machine, "Max file size") {
        None => Finding::ok(name, "unknown"),
        Some(None) => Finding::ok(name, "unlimited"),
        Some(Some(bytes)) => Finding::ok(name, format!("{} MiB", bytes / MIB)).at(
            Level::Note,
            "larger profiles: calls beyond the limit are dropped",
            Limit::FileSize,
        ),
    }
}

/// The bytes that each mapped counter adds to the locked memory of its process and user.
const PAGE: u64 = 4096;
/// The number of mapped counters that is taken to be enough: eight for each of 64 threads.
const PLENTY: u64 = 512;

/// Finds out how many counters can be mapped. All processes of a user together may map as many KiB
/// as `perf_event_mlock_kb` says, for each online processor. In addition, each process may map as
/// much as its `RLIMIT_MEMLOCK` allows (kernel/events/core.c, `perf_mmap`, Linux 6.12).
fn locked_memory(machine: &Machine) -> Option<Finding> {
    let name = "locked memory";
    let per_cpu = machine.read_trimmed("proc/sys/kernel/perf_event_mlock_kb")?;
    let per_cpu_kib: u64 = per_cpu.parse().ok()?;
    let cpus = machine.online_cpus().len() as u64;
    let (own, limit) = match facts::soft_limit(machine, "Max locked memory")? {
        None => (u64::MAX, "unlimited".to_owned()),
        Some(bytes) => (bytes / PAGE, format!("{} KiB", bytes / 1024)),
    };
    let room = own.saturating_add(per_cpu_kib * 1024 / PAGE * cpus);
    let finding = Finding::ok(
        name,
        format!("RLIMIT_MEMLOCK {limit}, perf_event_mlock_kb {per_cpu_kib} × {cpus} CPUs"),
    );
    if room >= PLENTY || machine.core_pmus().is_empty() {
        return Some(finding);
    }
    let prevents = format!(
        "user-space reads of more than {room} hardware counters at once: system calls then"
    );
    Some(finding.at(Level::Note, prevents, Limit::LittleLockedMemory))
}
