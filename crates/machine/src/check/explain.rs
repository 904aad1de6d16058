//! What the kernel's error number means for a counter on this machine, and the remedy.

use model::{Counter, Scope, Source};

use super::{Privilege, Problem, has_filter, needs, probe_one, user_only};
use crate::files::Machine;
use crate::killer;
use counters::perf::{OpenError, OpenErrorKind};

/// Says what the kernel's number means here.
pub(super) fn explain(counter: &Counter, error: OpenError, machine: &Machine) -> Problem {
    let (why, remedy) = why(counter, error, machine);
    let place = match &counter.scope {
        Scope::Thread => "on this thread",
        Scope::Cpus(_) => "for all threads of a CPU",
    };
    let message = match why.as_str() {
        "" => format!("open {} {place}: {error}", counter.name),
        why => format!("open {} {place}: {error} ({why})", counter.name),
    };
    let remedy = Some(remedy).filter(|r| !r.is_empty());
    Problem { message, why, remedy, error: Some(error) }
}

/// The docker flag that lets the default seccomp filter and the kernel agree to counting.
pub(crate) const CONTAINER_REMEDY: &str = "start the container with --cap-add PERFMON (Docker, \
     Podman; in Kubernetes securityContext.capabilities.add), or with a seccomp profile that \
     allows perf_event_open";

/// How to give a command CAP_PERFMON. Not by `setcap` on the program: one that gets rights from its
/// file drops the preloaded library (ld.so(8), secure execution); ambient ones do not do that.
const WITH_PERFMON: &str = "run as root, or with CAP_PERFMON: sudo setpriv --reuid=$(id -u) \
     --regid=$(id -g) --init-groups --inh-caps=+perfmon --ambient-caps=+perfmon COMMAND";

/// What allows the kernel's part.
pub(super) fn kernel_part(machine: &Machine) -> String {
    format!("{}; or {WITH_PERFMON}", machine.sysctl("kernel.perf_event_paranoid=1"))
}

/// No PMU, so no hardware counter works: why, and what to do.
fn no_pmu(machine: &Machine) -> (String, String) {
    match machine.virtualisation() {
        Some(_) => (
            "no PMU in this virtual machine".into(),
            "hardware counters need a PMU that the hypervisor passes on (QEMU/KVM: -cpu \
             host,pmu=on; clouds: metal or whole-socket sizes); software counters work: \
             leave out -e"
                .into(),
        ),
        None => (
            "the kernel knows no PMU of this machine".into(),
            "software counters work: leave out -e".into(),
        ),
    }
}

fn why(counter: &Counter, error: OpenError, machine: &Machine) -> (String, String) {
    let filtered = machine.is_filtered();
    if filtered && killer::reaches_the_kernel() == Err(error) {
        let does = match error.kind {
            OpenErrorKind::NoSystemCall => "hides perf",
            OpenErrorKind::Killed => "kills any process that calls perf_event_open",
            _ => "forbids perf",
        };
        return (format!("a seccomp filter {does}"), CONTAINER_REMEDY.into());
    }
    let hardware = matches!(&counter.source, Source::Perf(attr) if matches!(attr.kind, 0 | 3 | 4));
    let has_pmu = !machine.core_pmus().is_empty();
    match error.kind {
        OpenErrorKind::NoSuchCounter | OpenErrorKind::NoDevice | OpenErrorKind::Unsupported => {
            if hardware && !has_pmu {
                return no_pmu(machine);
            }
            let what = if hardware { "this machine's PMU" } else { "this kernel" };
            let remedy = "counterpoint list shows which counters open here";
            (format!("{what} has no such counter"), remedy.into())
        }
        OpenErrorKind::AccessDenied | OpenErrorKind::NotPermitted => {
            let level = machine.paranoid();
            let why = level.map_or_else(String::new, |l| format!("perf_event_paranoid={l}"));
            // The kernel looks at permissions first: whoever lifts them would be told next.
            if hardware && !has_pmu {
                let (missing, remedy) = no_pmu(machine);
                return (format!("{why}; and {missing}"), remedy);
            }
            if let Some(narrow) = user_only(counter).filter(|c| probe_one(c).is_ok()) {
                let remedy = format!(
                    "count user mode only: {}; or allow the kernel's part: {}",
                    narrow.name,
                    machine.sysctl("kernel.perf_event_paranoid=1")
                );
                return (why, remedy);
            }
            (why, permission(counter, filtered, machine))
        }
        OpenErrorKind::NoSystemCall => (
            "this kernel has no perf".into(),
            "a kernel with CONFIG_PERF_EVENTS; timing works without: -e none".into(),
        ),
        OpenErrorKind::ProcessDescriptors => {
            let limit = descriptor_limit().map_or_else(|| "?".to_owned(), |n| n.to_string());
            (format!("RLIMIT_NOFILE={limit}"), "ulimit -n 65536".into())
        }
        OpenErrorKind::SystemDescriptors => (
            "the whole system has run out of descriptors".into(),
            "sudo sysctl fs.file-max=…".into(),
        ),
        OpenErrorKind::NoSlot => (
            "all hardware breakpoints are in use".into(),
            "end the debugger or profiler that holds them, or ask for fewer".into(),
        ),
        OpenErrorKind::Busy => (
            "another process has exclusive use of the PMU".into(),
            "end the other profiler (or the hypervisor's own profiling) first".into(),
        ),
        OpenErrorKind::Invalid if has_filter(counter) => (
            "the kernel rejects the filter".into(),
            "for example filter=\"count > 100 && fd == 3\"; the tracepoint's file `format` lists \
             its fields"
                .into(),
        ),
        OpenErrorKind::Invalid if counter.name.contains(':') => (
            "this counter cannot be counted in this way".into(),
            "try it without modifiers, because not every PMU can separate user from kernel; the \
             address of a breakpoint must be a multiple of its length"
                .into(),
        ),
        OpenErrorKind::Invalid => ("the machine cannot count this".into(), String::new()),
        // The kernel's ENOTSUPP, from where it copies the probed instruction
        // (arch_uprobe_analyze_insn).
        OpenErrorKind::Other if error.errno == 524 && is_uprobe(counter) => (
            "the kernel cannot put a probe on this instruction".into(),
            "an offset must be the first byte of an instruction (see objdump -d), and not every \
             instruction can be probed; the entry of a function always can: uprobe:PATH:FUNCTION"
                .into(),
        ),
        OpenErrorKind::Other => {
            let meaning = match model::errno::kernel_only(error.errno) {
                Some((_, meaning)) => meaning.to_owned(),
                None => std::io::Error::from_raw_os_error(error.errno).to_string(),
            };
            (meaning, String::new())
        }
        _ => (String::new(), String::new()),
    }
}

/// What allows a counter that is forbidden to us.
fn permission(counter: &Counter, filtered: bool, machine: &Machine) -> String {
    let capability = match filtered || machine.container().is_some() {
        true => CONTAINER_REMEDY,
        false => WITH_PERFMON,
    };
    let user_only = matches!(&counter.source, Source::Perf(attr) if attr.exclude_kernel);
    // The highest level of perf_event_paranoid at which any user may open it.
    let enough = match needs(counter, machine) {
        Privilege::Anyone => return String::new(),
        // No level of perf_event_paranoid is enough (perf_uprobe_event_init, Linux 6.18).
        Privilege::PerfMon if machine.in_user_namespace() => {
            return "run it as root outside of the user namespace: rights inside of one do not help"
                .into();
        }
        Privilege::PerfMon => return capability.into(),
        Privilege::User if user_only => 2,
        Privilege::User | Privilege::Kernel => 1,
        Privilege::System => 0,
    };
    let sysctl = machine.sysctl(&format!("kernel.perf_event_paranoid={enough}"));
    match machine.in_user_namespace() {
        _ if machine.paranoid().is_some_and(|level| level <= enough) => capability.into(),
        true => format!("{sysctl} (rights inside of a user namespace do not help)"),
        false => format!("{sysctl}; or {capability}"),
    }
}

fn is_uprobe(counter: &Counter) -> bool {
    matches!(&counter.source, Source::Perf(attr) if attr.path.is_some())
}

/// The soft `RLIMIT_NOFILE`.
fn descriptor_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: writes the struct that it is given.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    (failed == 0).then_some(limit.rlim_cur)
}
