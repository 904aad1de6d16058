//! The doctor and the machine's files, on trees written for the purpose.

mod support;

use counters::doctor::{Finding, Level, examine};
use counters::machine::Machine;
use support::Tree;

fn find<'f>(all: &'f [Finding], name: &str) -> &'f Finding {
    all.iter().find(|f| f.name == name).unwrap_or_else(|| panic!("no finding {name}"))
}

fn status(caps: &str, seccomp: &str) -> String {
    format!("Name:\tcounterpoint\nCapEff:\t{caps}\nNoNewPrivs:\t0\nSeccomp:\t{seccomp}\n")
}

const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max file size             unlimited            unlimited            bytes     
Max open files            1024                 524288               files     
";

fn good() -> Tree {
    let tree = Tree::new("good");
    tree.file("proc/sys/kernel/osrelease", "6.12.1\n");
    tree.file("proc/sys/kernel/perf_event_paranoid", "1\n");
    tree.file("proc/self/status", &status("0000000000000000", "0"));
    tree.file("proc/self/limits", LIMITS);
    tree.file("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu tsc constant_tsc nonstop_tsc\n");
    tree.file("sys/bus/event_source/devices/cpu/type", "4\n");
    let clock = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    tree.file(clock, "tsc\n");
    tree.file("sys/kernel/tracing/events/header_page", "");
    tree.file("dev/shm/x", "");
    tree.file("lib/libcounterpoint.so", "");
    tree
}

#[test]
fn a_good_machine_has_nothing_to_say() {
    let tree = good();
    let library = tree.root.join("lib/libcounterpoint.so");
    let all = examine(&Machine::at(&tree.root), Some(&library));
    // How full the disk under the test's directory is, is none of our business.
    let bad: Vec<_> = all.iter().filter(|f| f.level > Level::Ok && f.name != "/dev/shm").collect();
    assert!(bad.is_empty(), "{bad:?}");
    let states = [
        ("kernel", "6.12.1"),
        ("virtualisation", "no sign of it"),
        ("pmu", "cpu"),
        ("perf_event_paranoid", "1"),
        ("capabilities", "neither CAP_PERFMON nor CAP_SYS_ADMIN"),
        ("seccomp", "off"),
        ("container", "no sign of one"),
        ("clock", "tsc, invariant time-stamp counter"),
        ("open files", "1024"),
        ("file size", "unlimited"),
        ("tracefs", "/sys/kernel/tracing"),
    ];
    for (name, state) in states {
        assert_eq!(find(&all, name).state, state, "{name}");
    }
}

/// One change to the good machine, and the finding that must follow.
#[test]
fn each_trouble_is_found() {
    type Change = fn(&Tree);
    #[rustfmt::skip]
    let golden: &[(Change, &str, &str, Level, &str)] = &[
        (|t| t.file("proc/sys/kernel/perf_event_paranoid", "2\n"),
            "perf_event_paranoid", "2", Level::Note, "sudo sysctl kernel.perf_event_paranoid=1"),
        (|t| t.file("proc/sys/kernel/perf_event_paranoid", "4\n"),
            "perf_event_paranoid", "4", Level::Problem, "sudo sysctl kernel.perf_event_paranoid=2 (:u only) or 1 (the kernel's part too)"),
        (|t| { t.file("proc/sys/kernel/perf_event_paranoid", "4\n"); t.file("proc/self/status", &status("0000004000000000", "0")) },
            "perf_event_paranoid", "4, does not bind us", Level::Ok, ""),
        (|t| t.file("proc/self/status", &status("0000004000000000", "0")),
            "capabilities", "CAP_PERFMON", Level::Ok, ""),
        (|t| t.file("proc/self/status", &status("000001ffffffffff", "0")),
            "capabilities", "CAP_PERFMON, CAP_SYS_ADMIN", Level::Ok, ""),
        (|t| t.remove("proc/sys/kernel/perf_event_paranoid"),
            "kernel", "6.12.1", Level::Problem, "a kernel with CONFIG_PERF_EVENTS; timing works without: -e none"),
        (|t| t.remove("sys/bus/event_source/devices/cpu"),
            "pmu", "none", Level::Note, "a kernel with the driver of this processor's PMU"),
        (|t| t.file("proc/sys/kernel/nmi_watchdog", "1\n"),
            "nmi watchdog", "on", Level::Note, "sudo sysctl kernel.nmi_watchdog=0"),
        (|t| t.file("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"),
            "clock", "hpet, invariant time-stamp counter", Level::Note, "sudo dmesg | grep -i tsc says why"),
        (|t| t.file("proc/cpuinfo", "flags\t: fpu tsc\n"),
            "clock", "tsc, time-stamp counter not invariant", Level::Note, ""),
        (|t| t.remove("dev"),
            "/dev/shm", "not there", Level::Problem, "sudo mount -t tmpfs tmpfs /dev/shm"),
        (|t| t.file("proc/self/limits", &LIMITS.replace("1024 ", "256  ")),
            "open files", "256", Level::Note, "ulimit -n 65536"),
        (|t| t.file("proc/self/limits", "Max file size  10485760 unlimited bytes\n"),
            "file size", "10 MiB", Level::Note, "ulimit -f unlimited"),
        (|t| t.remove("sys/kernel"),
            "tracefs", "not mounted or not readable", Level::Note, "sudo mount -t tracefs tracefs /sys/kernel/tracing"),
        (|t| t.file("run/systemd/container", "podman\n"),
            "container", "podman", Level::Note, "start the container with --cap-add PERFMON (Docker, Podman; in Kubernetes securityContext.capabilities.add), or with a seccomp profile that allows perf_event_open"),
        (|t| t.file("proc/self/status", &status("0", "2")),
            "seccomp", "a filter is active", Level::Note, "start the container with --cap-add PERFMON (Docker, Podman; in Kubernetes securityContext.capabilities.add), or with a seccomp profile that allows perf_event_open"),
    ];
    for (change, name, state, level, remedy) in golden {
        let tree = good();
        change(&tree);
        let all = examine(&Machine::at(&tree.root), None);
        let f = find(&all, name);
        let got = (f.state.as_str(), f.level, f.remedy.as_deref().unwrap_or(""));
        assert_eq!(got, (*state, *level, *remedy), "{name}");
        assert_eq!(f.prevents.is_some(), f.level > Level::Ok, "{name}");
    }
}

#[test]
fn the_library() {
    let tree = good();
    let missing = tree.root.join("lib/other.so");
    let of = |library| find(&examine(&Machine::at(&tree.root), library), "agent library").clone();
    assert_eq!(of(None).state, "not found beside the program");
    assert_eq!(of(Some(missing.as_path())).level, Level::Problem);
}

#[test]
fn signs_of_virtualisation() {
    let of = |files: &[(&str, &str)]| {
        let tree = Tree::new("virtual");
        files.iter().for_each(|(path, text)| tree.file(path, text));
        Machine::at(&tree.root).virtualisation()
    };
    let flagged = ("proc/cpuinfo", "flags : fpu hypervisor\n");
    let vendor = |name| ("sys/class/dmi/id/sys_vendor", name);
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[flagged]).as_deref(), Some("the processor reports a hypervisor"));
    assert_eq!(of(&[flagged, vendor("QEMU")]).as_deref(), Some("QEMU"));
    assert_eq!(of(&[vendor("QEMU")]).as_deref(), Some("QEMU"));
    assert_eq!(of(&[vendor("Google")]), None);
    assert_eq!(of(&[flagged, vendor("Google")]).as_deref(), Some("Google Compute Engine"));
    assert_eq!(of(&[("sys/hypervisor/type", "xen\n")]).as_deref(), Some("xen"));
}

/// On the real machine nothing panics and every name is there once.
#[test]
fn this_machine() {
    let all = examine(&Machine::here(), None);
    let mut names: Vec<_> = all.iter().map(|f| f.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all.len());
    for f in &all {
        assert!(!f.state.is_empty(), "{}", f.name);
    }
}
