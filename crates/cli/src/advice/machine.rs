//! Advice about a finding of `counterpoint doctor`.

use machine::Machine;
use machine::doctor::Limit;

use super::{CONTAINER, OPEN_TRACEFS, for_cause, mount_tracefs, sysctl};

/// Returns what to type or change so that `limit` no longer restricts counting or recording.
pub fn for_limit(limit: &Limit, machine: &Machine) -> String {
    match limit {
        Limit::OldKernel => "use a newer kernel".into(),
        Limit::NoPerf => {
            "use a kernel with CONFIG_PERF_EVENTS; without it times are recorded: -e none".into()
        }
        Limit::NoPmu { is_virtual: true } => {
            "let the hypervisor pass the PMU on (QEMU/KVM: -cpu host,pmu=on; clouds: metal or \
             whole-socket sizes)"
                .into()
        }
        Limit::NoPmu { is_virtual: false } => {
            "use a kernel with the driver of this processor's PMU".into()
        }
        Limit::NmiWatchdog => sysctl("kernel.nmi_watchdog=0", machine),
        Limit::NoRdpmc { file } => format!("echo 1 | sudo tee /{file}"),
        Limit::NoUserAccess => sysctl("kernel.perf_user_access=1", machine),
        Limit::ParanoidUnknown => "counterpoint doctor -e LIST tries it".into(),
        Limit::NothingAllowed => format!(
            "{} (:u only) or 1 (the kernel's part too)",
            sysctl("kernel.perf_event_paranoid=2", machine)
        ),
        Limit::KernelForbidden | Limit::NamespaceCapabilities => {
            sysctl("kernel.perf_event_paranoid=1", machine)
        }
        Limit::Filter { forbids: true } => {
            format!("{CONTAINER}; without counters times are recorded: -e none")
        }
        Limit::Filter { forbids: false } | Limit::Container => CONTAINER.into(),
        Limit::NoCounting(cause) => match for_cause(cause, machine) {
            Some(advice) => format!("{advice}; without counters times are recorded: -e none"),
            None => "without counters times are recorded: -e none".into(),
        },
        Limit::VariableClock { is_virtual: true } => {
            "let the hypervisor pass it on (QEMU/KVM: -cpu host,+invtsc)".into()
        }
        Limit::VariableClock { is_virtual: false } => {
            "none, because this processor's counter changes its rate".into()
        }
        Limit::DistrustedClock => "sudo dmesg | grep -i tsc says why".into(),
        Limit::NoSharedMemory => "sudo mount -t tmpfs tmpfs /dev/shm".into(),
        Limit::LittleSharedMemory => {
            "docker run --shm-size=1g, or sudo mount -o remount,size=1G /dev/shm".into()
        }
        Limit::FewDescriptors => "ulimit -n 65536".into(),
        Limit::FileSize => "ulimit -f unlimited".into(),
        Limit::LittleLockedMemory => {
            format!(
                "ulimit -l unlimited, or {}",
                sysctl("kernel.perf_event_mlock_kb=4096", machine)
            )
        }
        Limit::ClosedTracefs => OPEN_TRACEFS.into(),
        Limit::NoTracefs => mount_tracefs(machine),
        Limit::OldGlibc => "use a newer system".into(),
        Limit::NoAgent => {
            "keep bin/ and lib/ of a build together; from source: cargo xtask dist".into()
        }
    }
}
