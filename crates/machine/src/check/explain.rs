//! Finds out why the kernel refused a counter on this machine, from its error number.

use model::{Counter, Scope, Source};

use super::{Cause, Privilege, Problem, has_filter, needs, probe_one, user_only};
use crate::files::Machine;
use crate::killer;
use counters::perf::{OpenError, OpenErrorKind};

pub(super) fn explain(counter: &Counter, error: OpenError, machine: &Machine) -> Problem {
    let (why, cause) = why(counter, error, machine);
    let place = match &counter.scope {
        Scope::Thread => "on this thread",
        Scope::Cpus(_) => "for all threads of a CPU",
    };
    let message = match why.as_str() {
        "" => format!("open {} {place}: {error}", counter.name),
        why => format!("open {} {place}: {error} ({why})", counter.name),
    };
    Problem { message, why, cause, error: Some(error) }
}

fn no_pmu(machine: &Machine) -> (String, Cause) {
    let is_virtual = machine.virtualisation().is_some();
    let why = match is_virtual {
        true => "no PMU in this virtual machine",
        false => "the kernel knows no PMU of this machine",
    };
    (why.into(), Cause::NoPmu { is_virtual })
}

fn why(counter: &Counter, error: OpenError, machine: &Machine) -> (String, Cause) {
    if machine.is_filtered() && killer::reaches_the_kernel() == Err(error) {
        let does = match error.kind {
            OpenErrorKind::NoSystemCall => "hides perf",
            OpenErrorKind::Killed => "kills any process that calls perf_event_open",
            _ => "forbids perf",
        };
        return (format!("a seccomp filter {does}"), Cause::Filtered);
    }
    let hardware = matches!(&counter.source, Source::Perf(attr) if matches!(attr.kind, 0 | 3 | 4));
    let has_pmu = !machine.core_pmus().is_empty();
    match error.kind {
        OpenErrorKind::NoSuchCounter | OpenErrorKind::NoDevice | OpenErrorKind::Unsupported => {
            if hardware && !has_pmu {
                return no_pmu(machine);
            }
            let what = if hardware { "this machine's PMU" } else { "this kernel" };
            (format!("{what} has no such counter"), Cause::NoSuchCounter)
        }
        OpenErrorKind::AccessDenied | OpenErrorKind::NotPermitted => {
            let level = machine.paranoid();
            let why = level.map_or_else(String::new, |l| format!("perf_event_paranoid={l}"));
            // The kernel checks permissions before it looks for the PMU. With more rights, the
            // error would be about the PMU.
            if hardware && !has_pmu {
                let (missing, cause) = no_pmu(machine);
                return (format!("{why}; and {missing}"), cause);
            }
            if let Some(narrow) = user_only(counter).filter(|c| probe_one(c).is_ok()) {
                return (why, Cause::KernelForbidden { user_only: narrow.name });
            }
            (why, forbidden(counter, machine))
        }
        OpenErrorKind::NoSystemCall => ("this kernel has no perf".into(), Cause::NoPerf),
        OpenErrorKind::ProcessDescriptors => {
            let limit = descriptor_limit().map_or_else(|| "?".to_owned(), |n| n.to_string());
            (format!("RLIMIT_NOFILE={limit}"), Cause::ProcessDescriptors)
        }
        OpenErrorKind::SystemDescriptors => {
            ("the whole system has run out of descriptors".into(), Cause::SystemDescriptors)
        }
        OpenErrorKind::NoSlot => {
            ("all hardware breakpoints are in use".into(), Cause::BreakpointsInUse)
        }
        OpenErrorKind::Busy => {
            ("another process has exclusive use of the PMU".into(), Cause::ExclusivePmu)
        }
        OpenErrorKind::Invalid if has_filter(counter) => {
            ("the kernel rejects the filter".into(), Cause::BadFilter)
        }
        OpenErrorKind::Invalid if counter.name.contains(':') => {
            ("this counter cannot be counted in this way".into(), Cause::BadModifiers)
        }
        OpenErrorKind::Invalid => ("the machine cannot count this".into(), Cause::Unknown),
        // 524 is the kernel's ENOTSUPP, from arch_uprobe_analyze_insn.
        OpenErrorKind::Other if error.errno == 524 && is_uprobe(counter) => {
            ("the kernel cannot put a probe on this instruction".into(), Cause::NotProbeable)
        }
        OpenErrorKind::Other => {
            let meaning = match model::errno::kernel_only(error.errno) {
                Some((_, meaning)) => meaning.to_owned(),
                None => std::io::Error::from_raw_os_error(error.errno).to_string(),
            };
            (meaning, Cause::Unknown)
        }
        _ => (String::new(), Cause::Unknown),
    }
}

fn forbidden(counter: &Counter, machine: &Machine) -> Cause {
    let user_only = matches!(&counter.source, Source::Perf(attr) if attr.exclude_kernel);
    let paranoid = match needs(counter, machine) {
        Privilege::Anyone => return Cause::Unknown,
        // No level of perf_event_paranoid is enough (perf_uprobe_event_init, Linux 6.18).
        Privilege::PerfMon => None,
        Privilege::User if user_only => Some(2),
        Privilege::User | Privilege::Kernel => Some(1),
        Privilege::System => Some(0),
    };
    Cause::Forbidden { paranoid }
}

fn is_uprobe(counter: &Counter) -> bool {
    matches!(&counter.source, Source::Perf(attr) if attr.path.is_some())
}

/// Returns the soft `RLIMIT_NOFILE`.
fn descriptor_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit writes to `limit`, which outlives the call.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    (failed == 0).then_some(limit.rlim_cur)
}
