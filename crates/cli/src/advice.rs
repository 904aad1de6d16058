//! Advice about errors and findings. The other crates report the cause of an error as a value of an
//! enum. This module turns the value into a sentence that tells the user what to do.
//!
//! | module | advice about |
//! |---|---|
//! | `counters` | a counter that does not open or count ([`machine::check::Cause`](::machine::check::Cause)) |
//! | `machine` | what limits counting and recording on this machine ([`machine::doctor::Limit`](::machine::doctor::Limit)) |
//! | `names` | a counter list that cannot be used ([`names::NameCause`](::names::NameCause)) |
//! | `metrics` | a metric that cannot be used ([`model::metric::MetricCause`]) |
//! | `wanted` | words that people type for which there is no counter (`ipc`, `memory`) |
//! | `devices` | a device whose counters cannot be read |
//!
//! Advice about one command (such as another output directory) is given where that command fails:
//! [`Failure::hint`](crate::failure::Failure::hint).

mod counters;
mod devices;
mod machine;
mod metrics;
mod names;
#[cfg(test)]
mod tests;
mod wanted;

pub use counters::{for_cause, for_problem};
pub use devices::skipped;
pub use machine::for_limit;
pub use metrics::for_metric;
pub use names::for_name;

use ::machine::Machine;
use ::names::defaults::{VariableError, VariableProblem};

/// Returns advice about an environment variable whose list of counters cannot be used.
pub fn for_variable(error: &VariableError, machine: &Machine) -> Option<String> {
    match &*error.problem {
        VariableProblem::Name(error) => for_name(error, machine),
        VariableProblem::Counter(problem) => for_problem(problem, machine),
    }
}

/// Advice if a container or a seccomp filter forbids counting.
const CONTAINER: &str = "start the container with --cap-add PERFMON (Docker, Podman; in Kubernetes \
     securityContext.capabilities.add), or with a seccomp profile that allows perf_event_open";

/// Advice for running a command with CAP_PERFMON. Setting this capability on the program's file
/// with `setcap` does not help: for such a file, the dynamic linker ignores LD_PRELOAD, which
/// recording needs (ld.so(8), secure execution). Ambient capabilities do not have this effect.
const WITH_PERFMON: &str = "run as root, or with CAP_PERFMON: sudo setpriv --reuid=$(id -u) \
     --regid=$(id -g) --init-groups --inh-caps=+perfmon --ambient-caps=+perfmon COMMAND";

/// Returns the command that changes a setting of the kernel. In a container, settings can only be
/// read, so the command must be run on the host.
fn sysctl(setting: &str, machine: &Machine) -> String {
    match machine.container() {
        None => format!("sudo sysctl {setting}"),
        Some(_) => format!("on the host: sudo sysctl {setting}"),
    }
}

/// The command that lets this user read tracefs. The mount option `mode` alone is not enough: the
/// files belong to the group that `gid` sets, and users outside of this group cannot open them
/// (measured, Linux 6.18).
const OPEN_TRACEFS: &str = "sudo mount -o remount,mode=755,gid=$(id -g) /sys/kernel/tracing";

fn mount_tracefs(machine: &Machine) -> String {
    let at = "/sys/kernel/tracing";
    match machine.container() {
        None => format!("sudo mount -t tracefs -o mode=755,gid=$(id -g) tracefs {at}"),
        Some(_) => format!(
            "start the container with -v {at}:{at}:ro, or as root in it: mount -t tracefs tracefs {at}"
        ),
    }
}
