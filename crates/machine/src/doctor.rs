//! Examines everything about this machine that matters to counting and recording, and finds out
//! what each finding prevents.

mod facts;
mod limit;
mod limits;

use std::path::Path;
use std::{fs, io};

use model::{Counter, PerfAttr, Source, Unit};

use crate::check::check;
use crate::files::{DEVICES, Machine, TRACEFS};
use crate::killer;
use counters::perf::Target;
pub use limit::Limit;

model::named! {
    /// The importance of a finding.
    pub enum Level {
        /// The machine is as it should be.
        Ok = "ok",
        /// Something is limited.
        Note = "note",
        /// Something does not work.
        Problem = "problem",
    }
}

/// One fact about the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The name of the fact, which is also its key in machine-readable output.
    pub name: &'static str,
    pub state: String,
    /// The importance of the finding.
    pub level: Level,
    /// What the finding prevents or limits; `None` at [`Level::Ok`].
    pub prevents: Option<String>,
    /// The cause of the limitation, from which the advice is chosen; `None` at [`Level::Ok`].
    pub limit: Option<Limit>,
}

impl Finding {
    fn ok(name: &'static str, state: impl Into<String>) -> Self {
        Self { name, state: state.into(), level: Level::Ok, prevents: None, limit: None }
    }

    fn at(self, level: Level, prevents: impl Into<String>, limit: Limit) -> Self {
        Self { level, prevents: Some(prevents.into()), limit: Some(limit), ..self }
    }
}

/// The counters that the kernel lets this process open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Whether counters of our own threads in user mode may be opened.
    pub user: bool,
    /// Whether counters of our own threads that also count the kernel may be opened.
    pub kernel: bool,
    /// Whether counters of all threads of a processor may be opened.
    pub system: bool,
}

impl Allowed {
    /// Tries to open `page-faults`. Returns `None` if `perf_event_open` does not reach the kernel's
    /// permission checks, because of a seccomp filter or a kernel without perf.
    pub fn here(machine: &Machine) -> Option<Self> {
        killer::reaches_the_kernel().ok()?;
        let opens = |user_only: bool, target: Target| {
            let attr = PerfAttr {
                kind: 1,
                config: 2,
                exclude_kernel: user_only,
                exclude_hv: user_only,
                ..PerfAttr::default()
            };
            killer::try_open(&attr, target).is_ok()
        };
        let cpu = machine.online_cpus().first().map_or(0, |cpu| cpu.cast_signed());
        Some(Self {
            user: opens(true, Target::CALLING_THREAD),
            kernel: opens(false, Target::CALLING_THREAD),
            system: opens(false, Target { pid: -1, cpu }),
        })
    }
}

/// Returns all findings, in the order in which they are shown. `library` is the path at which the
/// agent's library should be.
pub fn examine(machine: &Machine, library: Option<&Path>) -> Vec<Finding> {
    let allowed = if machine.is_here() { Allowed::here(machine) } else { None };
    examine_allowed(machine, library, allowed)
}

/// Like [`examine`], but `allowed` says which counters may be opened, or is `None` if this is not
/// known.
pub fn examine_allowed(
    machine: &Machine,
    library: Option<&Path>,
    allowed: Option<Allowed>,
) -> Vec<Finding> {
    let mut all = vec![kernel(machine), virtualisation(machine), pmu(machine)];
    all.extend(nmi_watchdog(machine));
    all.extend(user_reads(machine));
    all.extend([
        paranoid(machine, allowed),
        capabilities(machine),
        seccomp(machine),
        container(machine),
    ]);
    if machine.is_here() {
        all.push(software(machine));
    }
    all.push(clock(machine));
    all.extend(limits::examine(machine));
    all.push(tracefs(machine));
    all.extend(facts::glibc().map(glibc));
    all.push(agent(library));
    all
}

/// The first version of Linux with `MADV_WIPEONFORK`, without which a forked child would write into
/// the records of its parent.
const OLDEST: (u32, u32) = (4, 14);

fn kernel(machine: &Machine) -> Finding {
    let release = machine.read_trimmed("proc/sys/kernel/osrelease");
    let finding = Finding::ok("kernel", release.as_deref().unwrap_or("unknown"));
    let version = release.as_deref().and_then(|release| {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    match machine.paranoid() {
        _ if version.is_some_and(|version| version < OLDEST) => finding.at(
            Level::Problem,
            "recording: Linux 4.14 or newer is needed (MADV_WIPEONFORK)",
            Limit::OldKernel,
        ),
        Some(_) => finding,
        None => finding.at(
            Level::Problem,
            "every counter: this kernel has no perf (no kernel.perf_event_paranoid)",
            Limit::NoPerf,
        ),
    }
}

fn virtualisation(machine: &Machine) -> Finding {
    match machine.virtualisation() {
        Some(kind) => Finding::ok("virtualisation", kind),
        None => Finding::ok("virtualisation", "not detected"),
    }
}

fn pmu(machine: &Machine) -> Finding {
    let pmus = machine.core_pmus();
    if pmus.is_empty() {
        let is_virtual = machine.virtualisation().is_some();
        return Finding::ok("pmu", "none").at(
            Level::Note,
            "hardware counters (cycles, instructions, cache-misses, …): ENOENT",
            Limit::NoPmu { is_virtual },
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
    let name = "nmi watchdog";
    let on = machine.read_trimmed("proc/sys/kernel/nmi_watchdog")? == "1";
    if machine.core_pmus().is_empty() {
        return None;
    }
    if !on {
        return Some(Finding::ok(name, "off"));
    }
    let prevents = "one hardware counter is always taken";
    Some(Finding::ok(name, "on").at(Level::Note, prevents, Limit::NmiWatchdog))
}

/// On x86, the file `rdpmc` of the core's PMU in sysfs says whether programs may read hardware
/// counters without a system call (arch/x86/events/core.c). On Arm, the sysctl `perf_user_access`
/// says whether they may (Documentation/arch/arm64/perf.rst).
fn user_reads(machine: &Machine) -> Option<Finding> {
    let name = "user-space reads";
    let slower = "reading hardware counters without a system call; each reading takes about ten times \
                  as long";
    let x86 = machine.core_pmus().into_iter().find_map(|pmu| {
        let path = format!("{}/{pmu}/rdpmc", DEVICES);
        Some((machine.read_trimmed(&path)?, path))
    });
    if let Some((value, path)) = x86 {
        let finding = match value.as_str() {
            "0" => Finding::ok(name, "rdpmc=0: forbidden").at(
                Level::Note,
                slower,
                Limit::NoRdpmc { file: path },
            ),
            "1" => Finding::ok(name, "rdpmc=1: allowed while a counter is open"),
            "2" => Finding::ok(name, "rdpmc=2: always allowed"),
            other => Finding::ok(name, format!("rdpmc={other}")),
        };
        return Some(finding);
    }
    let value = machine.read_trimmed("proc/sys/kernel/perf_user_access")?;
    let finding = Finding::ok(name, format!("perf_user_access={value}"));
    Some(match value.as_str() {
        "0" => finding.at(Level::Note, slower, Limit::NoUserAccess),
        _ => finding,
    })
}

/// Numbers of capabilities (linux/capability.h).
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;

/// Returns whether this process may count regardless of `perf_event_paranoid`.
fn may_everything(machine: &Machine) -> bool {
    let caps = machine.capabilities().unwrap_or(0);
    let capable = caps >> CAP_PERFMON & 1 == 1 || caps >> CAP_SYS_ADMIN & 1 == 1;
    capable && !machine.in_user_namespace()
}

/// The value of `perf_event_paranoid` alone does not say what is forbidden. A value above 2 forbids
/// users every counter in kernels with a patch of Debian, Ubuntu or Android, and means the same as
/// 2 in other kernels. Capabilities and security modules also matter. So opening counters decides.
fn paranoid(machine: &Machine, allowed: Option<Allowed>) -> Finding {
    let name = "perf_event_paranoid";
    let Some(level) = machine.paranoid() else {
        return Finding::ok(name, "not readable").at(
            Level::Note,
            "to know what may be counted",
            Limit::ParanoidUnknown,
        );
    };
    // If no counter was tried, the level is taken to mean what it means in kernels without patches.
    let allowed = allowed.unwrap_or_else(|| match may_everything(machine) {
        true => Allowed { user: true, kernel: true, system: true },
        false => Allowed { user: level <= 2, kernel: level <= 1, system: level <= 0 },
    });
    match allowed {
        Allowed { user: false, .. } => Finding::ok(name, level.to_string()).at(
            Level::Problem,
            "every counter, for users without CAP_PERFMON",
            Limit::NothingAllowed,
        ),
        Allowed { kernel: false, .. } => {
            let state = match level {
                3.. => format!("{level}, which this kernel treats as 2"),
                _ => level.to_string(),
            };
            Finding::ok(name, state).at(
                Level::Note,
                "counting in the kernel: counters need :u",
                Limit::KernelForbidden,
            )
        }
        Allowed { system: true, .. } if level > 0 => {
            Finding::ok(name, format!("{level}, which does not apply to us"))
        }
        _ => Finding::ok(name, level.to_string()),
    }
}

fn capabilities(machine: &Machine) -> Finding {
    let name = "capabilities";
    let caps = machine.capabilities().unwrap_or(0);
    let named = [(CAP_PERFMON, "CAP_PERFMON"), (CAP_SYS_ADMIN, "CAP_SYS_ADMIN")];
    let have: Vec<_> = named.iter().filter(|(b, _)| caps >> b & 1 == 1).map(|(_, n)| *n).collect();
    let state = match have.is_empty() {
        true => "neither CAP_PERFMON nor CAP_SYS_ADMIN".to_owned(),
        false => have.join(", "),
    };
    if have.is_empty() || !machine.in_user_namespace() {
        return Finding::ok(name, state);
    }
    let finding = Finding::ok(name, format!("{state}, but only in a user namespace"));
    match machine.paranoid() {
        Some(2..) => finding.at(
            Level::Note,
            "what perf_event_paranoid forbids: the kernel asks for the capabilities in the initial namespace",
            Limit::NamespaceCapabilities,
        ),
        _ => finding,
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
        return finding.at(Level::Note, limits, Limit::Filter { forbids: false });
    }
    match killer::reaches_the_kernel() {
        Ok(()) => Finding::ok("seccomp", format!("{state} and lets perf_event_open pass")),
        Err(error) => finding.at(
            Level::Problem,
            format!("perf_event_open ({error}): every counter"),
            Limit::Filter { forbids: true },
        ),
    }
}

fn container(machine: &Machine) -> Finding {
    match machine.container() {
        None => Finding::ok("container", "not detected"),
        Some(sign) if may_everything(machine) => Finding::ok("container", sign),
        Some(sign) => Finding::ok("container", sign).at(
            Level::Note,
            "counters, where the container's limits forbid them",
            Limit::Container,
        ),
    }
}

fn software(machine: &Machine) -> Finding {
    let name = "counting";
    // `PERF_COUNT_SW_PAGE_FAULTS` and `PERF_COUNT_SW_TASK_CLOCK` (linux/perf_event.h).
    let user = |config| PerfAttr {
        kind: 1,
        config,
        exclude_kernel: true,
        exclude_hv: true,
        ..PerfAttr::default()
    };
    let counters = [
        Counter::new("page-faults:u", Unit::Count, 0, Source::Perf(user(2))),
        Counter::new("task-clock:u", Unit::Nanoseconds, 0, Source::Perf(user(1))),
    ];
    match check(&counters, machine).problem() {
        None => Finding::ok(name, "page-faults:u,task-clock:u opens and counts"),
        Some(problem) => Finding::ok(name, problem.message.clone()).at(
            Level::Problem,
            "every counter",
            Limit::NoCounting(problem.cause.clone()),
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
            Limit::VariableClock { is_virtual: machine.virtualisation().is_some() },
        ),
        (
            "tsc" | "arch_sys_counter" | "unknown" | "kvm-clock" | "hyperv_clocksource_tsc_page",
            _,
        ) => finding,
        _ => finding.at(
            Level::Note,
            "cheap clock_gettime: the kernel does not trust the time-stamp counter",
            Limit::DistrustedClock,
        ),
    }
}

/// A tracepoint that every kernel with tracepoints has.
const A_TRACEPOINT: &str = "sched/sched_switch";

fn tracefs(machine: &Machine) -> Finding {
    let name = "tracefs";
    let prevents = "tracepoints (syscalls:sys_enter_openat)";
    // The files of tracepoints can be closed to this user even if everybody can read their
    // directories.
    let events = |at: &&str| {
        fs::read_dir(machine.path(&format!("{at}/events")))?;
        match machine.read(&format!("{at}/events/{A_TRACEPOINT}/id")) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
            _ => Ok(()),
        }
    };
    if let Some(at) = TRACEFS.iter().find(|at| events(at).is_ok()) {
        return Finding::ok(name, format!("/{at}"));
    }
    let denied = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    let at = TRACEFS[0];
    match events(&at).is_err_and(denied) {
        true => Finding::ok(name, format!("/{at}, we may not read it (EACCES)")).at(
            Level::Note,
            prevents,
            Limit::ClosedTracefs,
        ),
        false => Finding::ok(name, "not mounted").at(Level::Note, prevents, Limit::NoTracefs),
    }
}

fn glibc(version: String) -> Finding {
    let finding = Finding::ok("glibc", version.clone());
    match version.strip_prefix("2.").and_then(|minor| minor.parse::<u32>().ok()) {
        Some(..17) => finding.at(Level::Problem, "run: the library needs 2.17", Limit::OldGlibc),
        _ => finding,
    }
}

fn agent(library: Option<&Path>) -> Finding {
    let name = "agent library";
    let nothing = "run: nothing to load into programs";
    match library {
        Some(path) if path.is_file() => Finding::ok(name, path.display().to_string()),
        Some(path) => Finding::ok(name, format!("{} is not there", path.display())).at(
            Level::Problem,
            nothing,
            Limit::NoAgent,
        ),
        None => Finding::ok(name, "not found next to the program").at(
            Level::Problem,
            nothing,
            Limit::NoAgent,
        ),
    }
}
