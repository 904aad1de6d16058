//! What about this machine matters to counting and recording, what each finding prevents, and
//! the command that changes it.

mod facts;

use std::path::Path;

use crate::check::{CONTAINER_REMEDY, check};
use crate::machine::Machine;
use crate::names::{Resolver, TRACEFS};
use crate::perf;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Ok,
    /// Something is limited.
    Note,
    /// Something does not work.
    Problem,
}

impl Level {
    /// `ok`, `note`, `problem`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Problem => "problem",
        }
    }
}

/// One fact about the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at: the key of schemas.
    pub name: &'static str,
    /// How it is.
    pub state: String,
    /// How much that matters.
    pub level: Level,
    /// What it prevents or limits.
    pub prevents: Option<String>,
    /// What to type or change.
    pub remedy: Option<String>,
}

impl Finding {
    fn ok(name: &'static str, state: impl Into<String>) -> Self {
        Self { name, state: state.into(), level: Level::Ok, prevents: None, remedy: None }
    }

    fn at(self, level: Level, prevents: &str, remedy: &str) -> Self {
        let some = |s: &str| Some(s.to_owned()).filter(|s| !s.is_empty());
        Self { level, prevents: some(prevents), remedy: some(remedy), ..self }
    }
}

/// Looks at everything, in the order of the screen. `library` is where the agent should be.
pub fn examine(machine: &Machine, library: Option<&Path>) -> Vec<Finding> {
    let mut all = vec![kernel(machine), virtualisation(machine), pmu(machine)];
    all.extend(nmi_watchdog(machine));
    all.extend([paranoid(machine), capabilities(machine), seccomp(machine), container(machine)]);
    if machine.is_here() {
        all.push(software(machine));
    }
    all.extend([clock(machine), shared_memory(machine), open_files(machine), file_size(machine)]);
    all.push(tracefs(machine));
    all.extend(facts::glibc().map(glibc));
    all.push(agent(library));
    all
}

fn kernel(machine: &Machine) -> Finding {
    let release = machine.read_trimmed("proc/sys/kernel/osrelease");
    let finding = Finding::ok("kernel", release.as_deref().unwrap_or("unknown"));
    match machine.paranoid() {
        Some(_) => finding,
        None => finding.at(
            Level::Problem,
            "every counter: this kernel has no perf (no kernel.perf_event_paranoid)",
            "a kernel with CONFIG_PERF_EVENTS; timing works without: -e none",
        ),
    }
}

fn virtualisation(machine: &Machine) -> Finding {
    match machine.virtualisation() {
        Some(kind) => Finding::ok("virtualisation", kind),
        None => Finding::ok("virtualisation", "no sign of it"),
    }
}

fn pmu(machine: &Machine) -> Finding {
    let pmus = machine.core_pmus();
    if pmus.is_empty() {
        let remedy = match machine.virtualisation() {
            Some(_) => {
                "let the hypervisor pass the PMU on (QEMU/KVM: -cpu host,pmu=on; clouds: metal \
                 or whole-socket sizes)"
            }
            None => "a kernel with the driver of this processor's PMU",
        };
        return Finding::ok("pmu", "none").at(
            Level::Note,
            "hardware counters (cycles, instructions, cache-misses, …): ENOENT",
            remedy,
        );
    }
    let counters = facts::hardware_counters().filter(|_| machine.is_here());
    let state = match counters {
        Some(n) => format!("{}, {n} counters", pmus.join(", ")),
        None => pmus.join(", "),
    };
    Finding::ok("pmu", state)
}

fn nmi_watchdog(machine: &Machine) -> Option<Finding> {
    let on = machine.read_trimmed("proc/sys/kernel/nmi_watchdog")? == "1";
    if !on || machine.core_pmus().is_empty() {
        return None;
    }
    Some(Finding::ok("nmi watchdog", "on").at(
        Level::Note,
        "one hardware counter is always taken",
        "sudo sysctl kernel.nmi_watchdog=0",
    ))
}

/// Bits of linux/capability.h.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;

fn may_everything(machine: &Machine) -> bool {
    let caps = machine.capabilities().unwrap_or(0);
    caps >> CAP_PERFMON & 1 == 1 || caps >> CAP_SYS_ADMIN & 1 == 1
}

fn paranoid(machine: &Machine) -> Finding {
    let name = "perf_event_paranoid";
    let Some(level) = machine.paranoid() else {
        return Finding::ok(name, "not readable").at(Level::Note, "", "");
    };
    let finding = Finding::ok(name, level.to_string());
    match level {
        _ if may_everything(machine) => Finding::ok(name, format!("{level}, does not bind us")),
        ..=1 => finding,
        2 => finding.at(
            Level::Note,
            "counting in the kernel: counters need :u",
            "sudo sysctl kernel.perf_event_paranoid=1",
        ),
        3.. => finding.at(
            Level::Problem,
            "every counter, for users without CAP_PERFMON",
            "sudo sysctl kernel.perf_event_paranoid=2 (:u only) or 1 (the kernel's part too)",
        ),
    }
}

fn capabilities(machine: &Machine) -> Finding {
    let caps = machine.capabilities().unwrap_or(0);
    let named = [(CAP_PERFMON, "CAP_PERFMON"), (CAP_SYS_ADMIN, "CAP_SYS_ADMIN")];
    let have: Vec<_> = named.iter().filter(|(b, _)| caps >> b & 1 == 1).map(|(_, n)| *n).collect();
    match have.is_empty() {
        true => Finding::ok("capabilities", "neither CAP_PERFMON nor CAP_SYS_ADMIN"),
        false => Finding::ok("capabilities", have.join(", ")),
    }
}

fn seccomp(machine: &Machine) -> Finding {
    let mode = machine.field("proc/self/status", "Seccomp");
    let state = match mode.as_deref() {
        Some("0") => return Finding::ok("seccomp", "off"),
        Some("2") => "a filter is active",
        Some(_) => "strict",
        None => return Finding::ok("seccomp", "unknown"),
    };
    let finding = Finding::ok("seccomp", state);
    if !machine.is_here() {
        let limits = "perf_event_open, if the filter forbids it (EPERM or ENOSYS)";
        return finding.at(Level::Note, limits, CONTAINER_REMEDY);
    }
    match perf::reaches_the_kernel() {
        Ok(()) => Finding::ok("seccomp", format!("{state} and lets perf_event_open pass")),
        Err(error) => finding.at(
            Level::Problem,
            &format!("perf_event_open ({error}): every counter; timing works: -e none"),
            CONTAINER_REMEDY,
        ),
    }
}

fn container(machine: &Machine) -> Finding {
    match machine.container() {
        None => Finding::ok("container", "no sign of one"),
        Some(sign) if may_everything(machine) => Finding::ok("container", sign),
        Some(sign) => Finding::ok("container", sign).at(
            Level::Note,
            "counters, where the container's limits forbid them",
            CONTAINER_REMEDY,
        ),
    }
}

/// Tried, not concluded: the least that must work, in user mode.
fn software(machine: &Machine) -> Finding {
    let name = "counting";
    let list = "page-faults:u,task-clock:u";
    let Ok(counters) = Resolver::new(machine).resolve(list) else {
        return Finding::ok(name, "unknown");
    };
    match check(&counters, machine).problem() {
        None => Finding::ok(name, format!("{list} opens and counts")),
        Some(problem) => Finding::ok(name, problem.message.clone()).at(
            Level::Problem,
            "every counter; timing works: -e none",
            problem.remedy.as_deref().unwrap_or(""),
        ),
    }
}

fn clock(machine: &Machine) -> Finding {
    let base = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = machine.read_trimmed(base).unwrap_or_else(|| "unknown".into());
    let invariant = match machine.is_here() {
        true => facts::invariant_counter(),
        false => machine
            .field("proc/cpuinfo", "flags")
            .map(|f| f.split_whitespace().any(|f| f == "nonstop_tsc")),
    };
    let state = match invariant {
        Some(true) => format!("{source}, invariant time-stamp counter"),
        Some(false) => format!("{source}, time-stamp counter not invariant"),
        None => source.clone(),
    };
    let finding = Finding::ok("clock", state);
    match (source.as_str(), invariant) {
        (_, Some(false)) => finding.at(
            Level::Note,
            "timing by time-stamp counter: each call costs two clock_gettime instead",
            "",
        ),
        (
            "tsc" | "arch_sys_counter" | "unknown" | "kvm-clock" | "hyperv_clocksource_tsc_page",
            _,
        ) => finding,
        _ => finding.at(
            Level::Note,
            "cheap clock_gettime: the kernel does not trust the time-stamp counter",
            "sudo dmesg | grep -i tsc says why",
        ),
    }
}

const MIB: u64 = 1 << 20;

fn shared_memory(machine: &Machine) -> Finding {
    let name = "/dev/shm";
    let Some((size, free)) = facts::file_system(&machine.path("dev/shm")) else {
        return Finding::ok(name, "not there").at(
            Level::Problem,
            "recording: pages live there",
            "sudo mount -t tmpfs tmpfs /dev/shm",
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
        "docker run --shm-size=1g, or sudo mount -o remount,size=1G /dev/shm",
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
            "ulimit -n 65536",
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
            "ulimit -f unlimited",
        ),
    }
}

fn tracefs(machine: &Machine) -> Finding {
    let found = TRACEFS.iter().find(|t| machine.exists(&format!("{t}/events")));
    match found {
        Some(at) => Finding::ok("tracefs", format!("/{at}")),
        None => Finding::ok("tracefs", "not mounted or not readable").at(
            Level::Note,
            "tracepoints (syscalls:sys_enter_openat)",
            "sudo mount -t tracefs tracefs /sys/kernel/tracing",
        ),
    }
}

fn glibc(version: String) -> Finding {
    let finding = Finding::ok("glibc", version.clone());
    match version.strip_prefix("2.").and_then(|minor| minor.parse::<u32>().ok()) {
        Some(..17) => finding.at(Level::Problem, "programs load a library that needs 2.17", ""),
        _ => finding,
    }
}

fn agent(library: Option<&Path>) -> Finding {
    let name = "agent library";
    let remedy = "keep bin/ and lib/ of a build together; from source: cargo xtask dist";
    match library {
        Some(path) if path.is_file() => Finding::ok(name, path.display().to_string()),
        Some(path) => Finding::ok(name, format!("{} is not there", path.display())).at(
            Level::Problem,
            "run: nothing to load into programs",
            remedy,
        ),
        None => Finding::ok(name, "not found beside the program").at(
            Level::Problem,
            "run: nothing to load into programs",
            remedy,
        ),
    }
}
