//! Advice about a counter, or a set of counters, that does not work.

use machine::Machine;
use machine::check::{Cause, Problem};

use super::{CONTAINER, WITH_PERFMON, sysctl};

/// Returns what to type or change so that the counters work; `None` if nothing is known to help.
pub fn for_problem(problem: &Problem, machine: &Machine) -> Option<String> {
    for_cause(&problem.cause, machine)
}

pub fn for_cause(cause: &Cause, machine: &Machine) -> Option<String> {
    let advice = match cause {
        Cause::Unknown => return None,
        Cause::AlwaysZero => format!(
            "count the kernel's part too; if that is forbidden: {}; or {WITH_PERFMON}",
            sysctl("kernel.perf_event_paranoid=1", machine)
        ),
        Cause::TooMany { fits, refused, can_take_turns } => {
            let estimate = if *can_take_turns { ", or estimate: --multiplex" } else { "" };
            let refused = match refused.as_slice() {
                [one] => one.clone(),
                several => format!("{{{}}}", several.join(",")),
            };
            format!(
                "{{{}}} fit together; count {refused} in another run (run --passes makes the runs \
                 that are needed){estimate}",
                fits.join(",")
            )
        }
        Cause::SharedPmu => "something else uses the PMU's counters (another profiler, the NMI \
             watchdog: sudo sysctl kernel.nmi_watchdog=0); or estimate: --multiplex"
            .into(),
        Cause::NeverScheduled => "something else holds the PMU's counters (the NMI watchdog: sudo \
             sysctl kernel.nmi_watchdog=0; another profiler), or the group is too large for it"
            .into(),
        Cause::Unreadable => {
            "a pinned counter (:D) cannot be read while it does not have its hardware".into()
        }
        Cause::Filtered => CONTAINER.into(),
        Cause::NoPmu { is_virtual: true } => {
            "hardware counters need a PMU that the hypervisor passes on (QEMU/KVM: -cpu \
             host,pmu=on; clouds: metal or whole-socket sizes); software counters work: -e page-faults,task-clock"
                .into()
        }
        Cause::NoPmu { is_virtual: false } => "software counters work: -e page-faults,task-clock".into(),
        Cause::NoSuchCounter => "counterpoint list shows which counters open here".into(),
        Cause::KernelForbidden { user_only } => format!(
            "count user mode only: {user_only}; or allow the kernel's part: {}",
            sysctl("kernel.perf_event_paranoid=1", machine)
        ),
        Cause::Forbidden { paranoid } => permission(*paranoid, machine),
        Cause::NoPerf => {
            "use a kernel with CONFIG_PERF_EVENTS; without it times are recorded: -e none".into()
        }
        Cause::ProcessDescriptors => "ulimit -n 65536".into(),
        Cause::SystemDescriptors => "sudo sysctl fs.file-max=…".into(),
        Cause::BreakpointsInUse => {
            "end the debugger or profiler that holds them, or ask for fewer".into()
        }
        Cause::ExclusivePmu => {
            "end the other profiler (or the hypervisor's own profiling) first".into()
        }
        Cause::BadFilter => "for example filter=\"count > 100 && fd == 3\"; the tracepoint's file \
             `format` lists its fields"
            .into(),
        Cause::BadModifiers => "try it without modifiers, because not every PMU can separate user \
             from kernel; the address of a breakpoint must be a multiple of its length"
            .into(),
        Cause::NotProbeable => "an offset must be the first byte of an instruction (see objdump \
             -d), and not every instruction can be probed; the entry of a function always can: \
             uprobe:PATH:FUNCTION"
            .into(),
    };
    Some(advice)
}

/// Returns how this user can get the right to count: with a lower `perf_event_paranoid` (at most
/// `paranoid`), with a capability, or as root outside of the user namespace. `paranoid` is `None`
/// if no level of `perf_event_paranoid` is low enough.
fn permission(paranoid: Option<i32>, machine: &Machine) -> String {
    let contained = machine.is_filtered() || machine.container().is_some();
    let capability = if contained { CONTAINER } else { WITH_PERFMON };
    let Some(level) = paranoid else {
        return match machine.in_user_namespace() {
            true => {
                "run it as root outside of the user namespace, because rights inside of a user \
                 namespace do not help"
                    .into()
            }
            false => capability.into(),
        };
    };
    if machine.paranoid().is_some_and(|now| now <= level) {
        return capability.into();
    }
    let sysctl = sysctl(&format!("kernel.perf_event_paranoid={level}"), machine);
    match machine.in_user_namespace() {
        true => format!("{sysctl} (rights inside of a user namespace do not help)"),
        false => format!("{sysctl}; or {capability}"),
    }
}
