//! Tests `doctor` and `files`: on trees of files that the tests make, and on this machine.

use machine::Machine;
use machine::doctor::{Allowed, Finding, Level, Limit, examine, examine_allowed};
use model::PerfAttr;
use testkit::counting::Tree;

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
Max locked memory         8388608              8388608              bytes     
";

fn good() -> Tree {
    let tree = Tree::new("good");
    tree.file("proc/sys/kernel/osrelease", "6.12.1\n");
    tree.file("proc/sys/kernel/perf_event_paranoid", "1\n");
    tree.file("proc/self/status", &status("0000000000000000", "0"));
    tree.file("proc/self/limits", LIMITS);
    tree.file("proc/self/uid_map", "         0          0 4294967295\n");
    tree.file("proc/sys/kernel/perf_event_mlock_kb", "516\n");
    tree.file("proc/sys/kernel/nmi_watchdog", "0\n");
    tree.file("sys/devices/system/cpu/online", "0-3,8\n");
    tree.file("sys/bus/event_source/devices/cpu/rdpmc", "1\n");
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
    // The finding about `/dev/shm` depends on how full the disk of the test's directory is.
    let bad: Vec<_> = all.iter().filter(|f| f.level > Level::Ok && f.name != "/dev/shm").collect();
    assert!(bad.is_empty(), "{bad:?}");
    let states = [
        ("kernel", "6.12.1"),
        ("virtualisation", "not detected"),
        ("pmu", "cpu"),
        ("nmi watchdog", "off"),
        ("user-space reads", "rdpmc=1: allowed while a counter is open"),
        ("locked memory", "RLIMIT_MEMLOCK 8192 KiB, perf_event_mlock_kb 516 × 5 CPUs"),
        ("perf_event_paranoid", "1"),
        ("capabilities", "neither CAP_PERFMON nor CAP_SYS_ADMIN"),
        ("seccomp", "off"),
        ("container", "not detected"),
        ("clock", "tsc, invariant time-stamp counter"),
        ("open files", "1024"),
        ("file size", "unlimited"),
        ("tracefs", "/sys/kernel/tracing"),
    ];
    for (name, state) in states {
        assert_eq!(find(&all, name).state, state, "{name}");
    }
}

/// Each change to the files of a machine without problems leads to the finding that stands beside
/// the change.
#[test]
fn each_trouble_is_found() {
    type Change = fn(&Tree);
    #[rustfmt::skip]
    let golden: &[(Change, &str, &str, Level, Option<Limit>)] = &[
        (|t| t.file("proc/sys/kernel/perf_event_paranoid", "2\n"),
            "perf_event_paranoid", "2", Level::Note, Some(Limit::KernelForbidden)),
        (|t| t.file("proc/sys/kernel/perf_event_paranoid", "4\n"),
            "perf_event_paranoid", "4", Level::Problem, Some(Limit::NothingAllowed)),
        (|t| { t.file("proc/sys/kernel/perf_event_paranoid", "4\n"); t.file("proc/self/status", &status("0000004000000000", "0")) },
            "perf_event_paranoid", "4, which does not apply to us", Level::Ok, None),
        (|t| t.file("proc/self/status", &status("0000004000000000", "0")),
            "capabilities", "CAP_PERFMON", Level::Ok, None),
        (|t| t.file("proc/self/status", &status("000001ffffffffff", "0")),
            "capabilities", "CAP_PERFMON, CAP_SYS_ADMIN", Level::Ok, None),
        (|t| t.remove("proc/sys/kernel/perf_event_paranoid"),
            "kernel", "6.12.1", Level::Problem, Some(Limit::NoPerf)),
        (|t| t.remove("sys/bus/event_source/devices/cpu"),
            "pmu", "none", Level::Note, Some(Limit::NoPmu { is_virtual: false })),
        (|t| t.file("proc/sys/kernel/nmi_watchdog", "1\n"),
            "nmi watchdog", "on", Level::Note, Some(Limit::NmiWatchdog)),
        (|t| t.file("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"),
            "clock", "hpet, invariant time-stamp counter", Level::Note, Some(Limit::DistrustedClock)),
        (|t| t.file("proc/cpuinfo", "flags\t: fpu tsc\n"),
            "clock", "tsc, time-stamp counter not invariant", Level::Note, Some(Limit::VariableClock { is_virtual: false })),
        (|t| t.file("proc/cpuinfo", "flags\t: fpu tsc hypervisor\n"),
            "clock", "tsc, time-stamp counter not invariant", Level::Note, Some(Limit::VariableClock { is_virtual: true })),
        (|t| t.file("proc/sys/kernel/osrelease", "4.9.0-19-amd64\n"),
            "kernel", "4.9.0-19-amd64", Level::Problem, Some(Limit::OldKernel)),
        (|t| t.file("proc/sys/kernel/osrelease", "4.14.336\n"),
            "kernel", "4.14.336", Level::Ok, None),
        (|t| t.file("sys/bus/event_source/devices/cpu/rdpmc", "0\n"),
            "user-space reads", "rdpmc=0: forbidden", Level::Note, Some(Limit::NoRdpmc { file: "sys/bus/event_source/devices/cpu/rdpmc".into() })),
        (|t| t.file("sys/bus/event_source/devices/cpu/rdpmc", "2\n"),
            "user-space reads", "rdpmc=2: always allowed", Level::Ok, None),
        (|t| { t.remove("sys/bus/event_source/devices/cpu"); t.file("proc/sys/kernel/perf_user_access", "0\n") },
            "user-space reads", "perf_user_access=0", Level::Note, Some(Limit::NoUserAccess)),
        (|t| { t.remove("sys/bus/event_source/devices/cpu"); t.file("proc/sys/kernel/perf_user_access", "1\n") },
            "user-space reads", "perf_user_access=1", Level::Ok, None),
        // All capabilities of a user namespace together do not allow a process to count in the
        // kernel.
        (|t| { t.file("proc/sys/kernel/perf_event_paranoid", "2\n"); t.file("proc/self/status", &status("000001ffffffffff", "0")); t.file("proc/self/uid_map", "0 1000 1\n") },
            "perf_event_paranoid", "2", Level::Note, Some(Limit::KernelForbidden)),
        (|t| { t.file("proc/sys/kernel/perf_event_paranoid", "2\n"); t.file("proc/self/status", &status("000001ffffffffff", "0")); t.file("proc/self/uid_map", "0 1000 1\n") },
            "capabilities", "CAP_PERFMON, CAP_SYS_ADMIN, but only in a user namespace", Level::Note, Some(Limit::NamespaceCapabilities)),
        (|t| { t.file("proc/self/status", &status("000001ffffffffff", "0")); t.file("proc/self/uid_map", "0 1000 1\n") },
            "capabilities", "CAP_PERFMON, CAP_SYS_ADMIN, but only in a user namespace", Level::Ok, None),
        // `RLIMIT_MEMLOCK` allows 16 pages, and `perf_event_mlock_kb` 16 more for each of 5 CPUs:
        // 96 counters.
        (|t| { t.file("proc/self/limits", "Max locked memory  65536 65536 bytes\n"); t.file("proc/sys/kernel/perf_event_mlock_kb", "64\n") },
            "locked memory", "RLIMIT_MEMLOCK 64 KiB, perf_event_mlock_kb 64 × 5 CPUs", Level::Note, Some(Limit::LittleLockedMemory)),
        (|t| t.remove("dev"),
            "/dev/shm", "not there", Level::Problem, Some(Limit::NoSharedMemory)),
        (|t| t.file("proc/self/limits", &LIMITS.replace("1024 ", "256  ")),
            "open files", "256", Level::Note, Some(Limit::FewDescriptors)),
        (|t| t.file("proc/self/limits", "Max file size  10485760 unlimited bytes\n"),
            "file size", "10 MiB", Level::Note, Some(Limit::FileSize)),
        (|t| t.remove("sys/kernel"),
            "tracefs", "not mounted", Level::Note, Some(Limit::NoTracefs)),
        (|t| t.file("run/systemd/container", "podman\n"),
            "container", "podman", Level::Note, Some(Limit::Container)),
        (|t| t.file("proc/self/status", &status("0", "2")),
            "seccomp", "a filter is active", Level::Note, Some(Limit::Filter { forbids: false })),
    ];
    for (change, name, state, level, limit) in golden {
        let tree = good();
        change(&tree);
        let all = examine(&Machine::at(&tree.root), None);
        let f = find(&all, name);
        assert_eq!((f.state.as_str(), f.level, &f.limit), (*state, *level, limit), "{name}");
        assert_eq!(f.prevents.is_some(), f.level > Level::Ok, "{name}");
    }
}

/// The level of `perf_event_paranoid` alone does not say what is forbidden, because kernels differ
/// above 2 (Debian has a patch), and because users have different rights.
#[test]
fn a_level_forbids_what_was_refused() {
    let all = Allowed { user: true, kernel: true, system: true };
    let own = Allowed { system: false, ..all };
    let user = Allowed { kernel: false, ..own };
    let none = Allowed { user: false, ..user };
    let only_user = "counting in the kernel: counters need :u";
    let nothing = "every counter, for users without CAP_PERFMON";
    for (level, allowed, state, found, prevents) in [
        ("-1", all, "-1", Level::Ok, None),
        ("0", all, "0", Level::Ok, None),
        ("1", all, "1, which does not apply to us", Level::Ok, None),
        ("1", own, "1", Level::Ok, None),
        ("2", all, "2, which does not apply to us", Level::Ok, None),
        ("2", user, "2", Level::Note, Some(only_user)),
        ("3", all, "3, which does not apply to us", Level::Ok, None),
        ("3", user, "3, which this kernel treats as 2", Level::Note, Some(only_user)),
        ("3", none, "3", Level::Problem, Some(nothing)),
        ("4", user, "4, which this kernel treats as 2", Level::Note, Some(only_user)),
        ("4", none, "4", Level::Problem, Some(nothing)),
    ] {
        let tree = good();
        tree.file("proc/sys/kernel/perf_event_paranoid", level);
        let machine = Machine::at(&tree.root);
        let all = examine_allowed(&machine, None, Some(allowed));
        let finding = find(&all, "perf_event_paranoid");
        let got = (finding.state.as_str(), finding.level, finding.prevents.as_deref());
        assert_eq!(got, (state, found, prevents), "{level} {allowed:?}");
    }
}

/// The finding about `perf_event_paranoid` agrees with the result of a plain system call.
#[test]
fn what_is_said_is_what_happens() {
    let machine = Machine::here();
    let attributes = |exclude_kernel| PerfAttr { exclude_kernel, ..testkit::counting::software(2) };
    let opens = |exclude_kernel: bool| {
        let target = counters::Target::CALLING_THREAD;
        let opened = counters::perf::open(&attributes(exclude_kernel), target, -1);
        // SAFETY: `fd` was just opened, and nobody else has it.
        opened.map(|fd| unsafe { libc::close(fd) }).is_ok()
    };
    for as_nobody in [false, true] {
        let code = testkit::counting::in_child(|| {
            // SAFETY: the call takes numbers only, and changes the ids of the child in which it
            // runs.
            let give_up = || unsafe { libc::setresuid(65534, 65534, 65534) } == 0;
            if as_nobody && testkit::counting::is_root() && !give_up() {
                return 77;
            }
            let findings = examine(&machine, None);
            let finding = find(&findings, "perf_event_paranoid");
            let expected = match (opens(true), opens(false)) {
                (false, _) => Level::Problem,
                (true, false) => Level::Note,
                (true, true) => Level::Ok,
            };
            i32::from(counters::perf::reaches_the_kernel().is_ok() && finding.level != expected)
        });
        match code {
            77 => testkit::counting::skip("cannot give up root"),
            code => assert_eq!(code, 0, "as nobody: {as_nobody}"),
        }
    }
}

#[test]
fn room_for_mapped_counters() {
    let tree = good();
    tree.file("proc/self/limits", "Max locked memory  65536 65536 bytes\n");
    tree.file("proc/sys/kernel/perf_event_mlock_kb", "64\n");
    let all = examine(&Machine::at(&tree.root), None);
    let prevents = find(&all, "locked memory").prevents.clone().unwrap();
    assert!(prevents.contains("more than 96 hardware counters"), "{prevents}");
    tree.remove("sys/bus/event_source/devices/cpu");
    let all = examine(&Machine::at(&tree.root), None);
    assert_eq!(find(&all, "locked memory").level, Level::Ok);
    assert!(all.iter().all(|f| f.name != "user-space reads" && f.name != "nmi watchdog"));
}

#[test]
fn a_tracefs_that_may_not_be_read() {
    use std::os::unix::fs::PermissionsExt;
    if testkit::counting::is_root() {
        return testkit::counting::skip("root may read everything");
    }
    let tree = good();
    let id = "sys/kernel/tracing/events/sched/sched_switch/id";
    tree.file(id, "372\n");
    // First the directory is closed, then only the files in it, as in Linux 6.18 after a remount
    // with `mode=755` alone.
    for closed in ["sys/kernel/tracing/events", id] {
        let closed = tree.root.join(closed);
        let before = std::fs::metadata(&closed).unwrap().permissions();
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
        let finding = find(&examine(&Machine::at(&tree.root), None), "tracefs").clone();
        std::fs::set_permissions(&closed, before).unwrap();
        assert_eq!(finding.state, "/sys/kernel/tracing, we may not read it (EACCES)");
        assert_eq!(finding.limit, Some(Limit::ClosedTracefs));
    }
}

#[test]
fn processors_online() {
    for (list, cpus) in [("0", 1), ("0-3", 4), ("0-1,4,6-7", 5), ("", 1), ("x", 1)] {
        let tree = Tree::new("online");
        tree.file("sys/devices/system/cpu/online", list);
        assert_eq!(Machine::at(&tree.root).online_cpus().len(), cpus, "{list}");
    }
}

#[test]
fn the_library() {
    let tree = good();
    let missing = tree.root.join("lib/other.so");
    let of = |library| find(&examine(&Machine::at(&tree.root), library), "agent library").clone();
    assert_eq!(of(None).state, "not found next to the program");
    assert_eq!(of(Some(missing.as_path())).level, Level::Problem);
}

#[test]
fn the_first_processor_speaks_for_all() {
    let tree = Tree::new("cpuinfo");
    let flags = "f ".repeat(3_000);
    let text = format!(
        "processor\t: 0\nflags\t\t: {flags}\nmodel name\t: first\n\n\
         processor\t: 1\nmodel name\t: second\nonly here\t: yes\n\n"
    );
    tree.file("proc/cpuinfo", &text);
    let field = |key| Machine::at(&tree.root).field("proc/cpuinfo", key);
    assert_eq!(field("model name").as_deref(), Some("first"));
    assert_eq!(field("flags").map(|f| f.len()), Some(flags.trim().len()));
    tree.file("proc/cpuinfo", "model name\t: alone");
    assert_eq!(field("model name").as_deref(), Some("alone"));
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
