//! Tests the advice for each kind of cause. Each case consists of an input (what was typed, the
//! cause, or the files of the machine) and the expected text.

use ::machine::Machine;
use ::machine::check::Cause;
use ::machine::doctor::Limit;
use ::names::Resolver;
use testkit::counting::Tree;

use super::*;

fn of_list(machine: &Machine, typed: &str) -> String {
    let error = Resolver::new(machine).resolve(typed).expect_err(typed);
    for_name(&error, machine).unwrap_or_default()
}

#[test]
fn about_a_list() {
    let bare = Machine::at("/nonexistent");
    let many: Vec<String> = (0..33).map(|n| format!("mem:{:#x}/1:w", 4096 + n)).collect();
    let many = many.join(",");
    let modifiers =
        "u user, k kernel, h hypervisor, G guest, H host, I not idle, D pinned, e exclusive";
    #[rustfmt::skip]
    let golden: &[(&str, &str)] = &[
        ("cs,page-fualts:u", "did you mean page-faults?"),
        ("cycels", "did you mean cycles?"),
        ("L1-icache-stores", "did you mean L1-dcache-stores, L1-icache-loads, L1-dcache-loads?"),
        ("qqqqq", "counterpoint list shows every name"),
        ("qqqqq.zzzzz", "a processor's own names need its tables (--events-dir DIR) or an installed perf of Linux 6.2 or later"),
        ("ipc", "ipc is a metric, which is computed from counters: -e '{instructions,cycles}' --metric ipc"),
        ("faults:ux", modifiers),
        ("{cs}:q", modifiers),
        ("faults:u:k", "as in page-faults:uk"),
        ("cs:uS", ""),
        ("sim/a", "the first one is at byte 3"),
        ("cpu/event=\"1", "the first one is at byte 10"),
        ("sim/a/", "for example sim/NAME,readings=0:5/"),
        ("sim//", "for example sim/NAME,readings=0:5/"),
        ("sim/a,x=1/", "the terms are readings=, enabled= and unit="),
        ("cpu/event=1/", "sysfs describes no PMU of this machine"),
        ("a:b/fltr=1/", "a tracepoint takes one filter: /filter=\"count > 100\"/"),
        ("uprobe:no-such-program:f", "a library needs its whole path; ldd PROGRAM shows it"),
        ("mem:xyz", "a breakpoint is at an address (nm PROGRAM shows them); to count calls of a function: uprobe:PATH:FUNCTION"),
        ("syscalls:sys_enter_read", "sudo mount -t tracefs -o mode=755,gid=$(id -g) tracefs /sys/kernel/tracing"),
        ("kprobe:do_exit", "make a tracepoint of the kernel's function, then count it: sudo perf probe --add 'do_exit'; -e probe:do_exit"),
        ("syscalls:*", "counterpoint list 'syscalls:*' shows them; name those that you want"),
        (&many, "that is what one profile holds; record the others in another run"),
        ("uprobe/config=1/", "type uprobe:PATH:FUNCTION"),
        ("kprobe/config=1/", "a probe made with perf probe is a tracepoint: probe:NAME"),
        ("PAPI_L1_TCM", "the nearest: L1-dcache-load-misses and L1-icache-load-misses"),
        ("PAPI_FP_OPS", "single and double precision are a sum each: PAPI_SP_OPS, PAPI_DP_OPS say which"),
        ("PAPI_FP_INS", "a vendor's name for it, with --events-dir or an installed perf"),
        ("PAPI_TOT_ISN", "did you mean PAPI_TOT_INS, PAPI_TOT_CYC, PAPI_BR_INS?"),
        ("PAPI_ZZZZZZ_ZZZZZZ", "docs/counters.md lists the presets that exist here"),
        ("perf::CYCELS", "did you mean perf::CYCLES?"),
        ("perf::QQQQQQ", "counterpoint list shows perf's own names, which also work after perf::"),
        ("perf::CYCLES:x", "u user, k kernel, h hypervisor, mg guest, mh host, pinned, excl"),
        ("spr::INST_RETIRED:ANY", "perf's spelling of a vendor's name (inst_retired.any), with --events-dir or an installed perf"),
        ("quark:::strange", "components: cuda, rocm, opencl, vulkan, metal, intel_gpu"),
        ("perf_event:::CYCLES", "the processor's counters have no component: perf::CYCLES"),
        ("rocm:::SQ_WAVES", "the user must be in the groups that own /dev/kfd and /dev/dri/renderD*: sudo usermod -aG render,video USER, then log in again"),
        ("vulkan:::x", ""),
    ];
    for &(typed, expected) in golden {
        assert_eq!(of_list(&bare, typed), expected, "{typed}");
    }
    let cuda = of_list(&bare, "cuda:::event:elapsed_cycles_sm:device=0");
    assert!(cuda.contains("NVreg_RestrictProfilingToAdminUsers=0"), "{cuda}");
    for way in ["cuda.counters=NAME", "cuda.range-counters=NAME", "CounterCollector"] {
        assert!(cuda.contains(way), "{cuda}");
    }
}

#[test]
fn about_a_machines_own_names() {
    let tree = Tree::new("advice");
    let pmu = "sys/bus/event_source/devices/cpu";
    tree.file(&format!("{pmu}/type"), "4");
    tree.file(&format!("{pmu}/format/event"), "config:0-7");
    tree.file(&format!("{pmu}/format/umask"), "config:8-15");
    tree.file(&format!("{pmu}/events/open"), "event=1,umask=?");
    tree.file(&format!("{pmu}/caps/slots"), "8");
    tree.file("proc/cpuinfo", "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n");
    let point = "sys/kernel/tracing/events/syscalls/sys_enter_read";
    tree.file(&format!("{point}/id"), "711");
    tree.file(&format!("{point}/format"), "\tfield:int fd;\toffset:8;\n\tfield:long count;\n");
    let machine = Machine::at(&tree.root);
    for (typed, expected) in [
        ("cup/event=1/", "did you mean cpu?"),
        ("zzzzz/event=1/", "PMUs of this machine: cpu"),
        ("cpu/evnt=1/", "did you mean event?"),
        ("cpu/event=1,zzzzzz/", "some of cpu's: open, event, umask"),
        ("cpu/slots/", "caps/slots = 8 says what cpu can do"),
        ("cpu/open/", "type cpu/open,umask=…/"),
        ("syscalls:sys_enter_read/filter=\"cuont > 1\"/", "its fields: fd, count"),
        ("ex_ret_instr", "perf's own names work on every processor"),
    ] {
        assert_eq!(of_list(&machine, typed), expected, "{typed}");
    }
    // The advice contains a list of counters and a metric that can be copied. `widths` are the
    // widths of scalars and vectors in bits.
    for (preset, bits) in [("PAPI_SP_OPS", 32), ("PAPI_DP_OPS", 64)] {
        let advice = of_list(&machine, preset);
        let quoted: Vec<&str> = advice.split('\'').collect();
        let names: Vec<&str> = quoted[1].trim_matches(['{', '}']).split(',').collect();
        let metric = model::Metric::parse(quoted[3]).expect("a metric");
        let widths = [bits, 128, 256, 512];
        let terms =
            names.iter().zip(widths).map(|(name, width)| format!("{} * {name}", width / bits));
        assert_eq!(metric.expression, terms.collect::<Vec<_>>().join(" + "));
    }
}

/// The causes are written by hand here. The tests of the crate `names` get most of them from
/// compiled libraries.
#[test]
fn about_functions() {
    use ::names::NameCause::*;
    let error = ::names::parse("").expect_err("nothing was typed");
    let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    for (cause, expected) in [
        (Versions(list(&["f@V1", "f@V2"])), "it has f@V1, f@V2"),
        (NoDefaultVersion(list(&["g@V1", "g@V2"])), "choose one: g@V1, g@V2"),
        (Places(list(&["0x10 (a.c)", "0x20"])), "choose one by its offset: 0x10 (a.c), 0x20"),
        (
            Imported("l.so".into()),
            "l.so only calls it; probe the library that has it (ldd PROGRAM lists them)",
        ),
        (NoSymbols, "the file has no symbols; type an offset: uprobe:PATH:0x1234"),
        (NoSuchSymbol, "nm -D and nm show what a file defines"),
        (Instead("uretprobe:l.so:f".into()), "type uretprobe:l.so:f"),
        (ChoosingCode("uprobe:l.so:f".into()), "type the function's name: uprobe:l.so:f"),
        (
            Implementations(list(&["_f_avx", "_f_sse"])),
            "probe the implementation that this machine chooses, one of _f_avx, _f_sse",
        ),
        (
            Implementations(vec![]),
            "probe the implementation that is chosen, by its own name or offset: a debugger shows it in the disassembly when the program calls the function",
        ),
        (OffsetIntoIndirect, "leave the offset out, or probe one implementation by its own name"),
        (
            NotAnEntry,
            "a return probe replaces the return address, which is in its place at the entry of a function only; count the entries: uprobe:PATH:FUNCTION",
        ),
        (TableRow("cpu/event=0x100/".into()), "the processor's table has cpu/event=0x100/"),
        (Tables("d/a.json: EOF".into()), "d/a.json: EOF"),
        (ClosedTracefs, "sudo mount -o remount,mode=755,gid=$(id -g) /sys/kernel/tracing"),
        (NoUprobes, "use a kernel with CONFIG_UPROBE_EVENTS"),
    ] {
        let error = ::names::NameError { cause: Some(cause), ..error.clone() };
        let advice = for_name(&error, &Machine::at("/nonexistent"));
        assert_eq!(advice.as_deref(), Some(expected), "{error:?}");
    }
}

type Files<'f> = &'f [(&'f str, &'f str)];

/// Returns a machine that consists of `files`. Its user has no capabilities and, unless `files` say
/// otherwise, is not in a user namespace.
fn machine(files: Files<'_>) -> (Tree, Machine) {
    let tree = Tree::new("advice");
    tree.file("proc/self/uid_map", "         0          0 4294967295\n");
    files.iter().for_each(|(path, text)| tree.file(path, text));
    let machine = Machine::at(&tree.root);
    (tree, machine)
}

const PARANOID: &str = "proc/sys/kernel/perf_event_paranoid";
const LXC: (&str, &str) = ("run/systemd/container", "lxc\n");
const INSIDE: (&str, &str) = ("proc/self/uid_map", "0 1000 1\n");

#[test]
fn about_limits() {
    let container = "start the container with --cap-add PERFMON (Docker, Podman; in Kubernetes \
                     securityContext.capabilities.add), or with a seccomp profile that allows \
                     perf_event_open";
    let file = "sys/bus/event_source/devices/cpu/rdpmc".to_owned();
    #[rustfmt::skip]
    let golden: &[(Limit, Files<'_>, &str)] = &[
        (Limit::KernelForbidden, &[], "sudo sysctl kernel.perf_event_paranoid=1"),
        (Limit::KernelForbidden, &[LXC], "on the host: sudo sysctl kernel.perf_event_paranoid=1"),
        (Limit::NamespaceCapabilities, &[INSIDE], "sudo sysctl kernel.perf_event_paranoid=1"),
        (Limit::NothingAllowed, &[], "sudo sysctl kernel.perf_event_paranoid=2 (:u only) or 1 (the kernel's part too)"),
        (Limit::ParanoidUnknown, &[], "counterpoint doctor -e LIST tries it"),
        (Limit::NoPerf, &[], "use a kernel with CONFIG_PERF_EVENTS; without it times are recorded: -e none"),
        (Limit::OldKernel, &[], "use a newer kernel"),
        (Limit::OldGlibc, &[], "use a newer system"),
        (Limit::NoPmu { is_virtual: false }, &[], "use a kernel with the driver of this processor's PMU"),
        (Limit::NoPmu { is_virtual: true }, &[], "let the hypervisor pass the PMU on (QEMU/KVM: -cpu host,pmu=on; clouds: metal or whole-socket sizes)"),
        (Limit::NmiWatchdog, &[], "sudo sysctl kernel.nmi_watchdog=0"),
        (Limit::NoRdpmc { file }, &[], "echo 1 | sudo tee /sys/bus/event_source/devices/cpu/rdpmc"),
        (Limit::NoUserAccess, &[], "sudo sysctl kernel.perf_user_access=1"),
        (Limit::DistrustedClock, &[], "sudo dmesg | grep -i tsc says why"),
        (Limit::VariableClock { is_virtual: false }, &[], "none, because this processor's counter changes its rate"),
        (Limit::VariableClock { is_virtual: true }, &[], "let the hypervisor pass it on (QEMU/KVM: -cpu host,+invtsc)"),
        (Limit::LittleLockedMemory, &[], "ulimit -l unlimited, or sudo sysctl kernel.perf_event_mlock_kb=4096"),
        (Limit::NoSharedMemory, &[], "sudo mount -t tmpfs tmpfs /dev/shm"),
        (Limit::LittleSharedMemory, &[], "docker run --shm-size=1g, or sudo mount -o remount,size=1G /dev/shm"),
        (Limit::FewDescriptors, &[], "ulimit -n 65536"),
        (Limit::FileSize, &[], "ulimit -f unlimited"),
        (Limit::ClosedTracefs, &[], "sudo mount -o remount,mode=755,gid=$(id -g) /sys/kernel/tracing"),
        (Limit::NoTracefs, &[], "sudo mount -t tracefs -o mode=755,gid=$(id -g) tracefs /sys/kernel/tracing"),
        (Limit::NoTracefs, &[LXC], "start the container with -v /sys/kernel/tracing:/sys/kernel/tracing:ro, or as root in it: mount -t tracefs tracefs /sys/kernel/tracing"),
        (Limit::Container, &[LXC], container),
        (Limit::Filter { forbids: false }, &[], container),
        (Limit::NoAgent, &[], "keep bin/ and lib/ of a build together; from source: cargo xtask dist"),
        (Limit::NoCounting(Cause::Unknown), &[], "without counters times are recorded: -e none"),
        (Limit::NoCounting(Cause::ProcessDescriptors), &[], "ulimit -n 65536; without counters times are recorded: -e none"),
    ];
    for (limit, files, expected) in golden {
        let (_tree, machine) = machine(files);
        assert_eq!(for_limit(limit, &machine), *expected, "{limit:?}");
    }
    let (_tree, machine) = machine(&[]);
    let filter = for_limit(&Limit::Filter { forbids: true }, &machine);
    assert_eq!(filter, format!("{container}; without counters times are recorded: -e none"));
}

#[test]
fn about_counters() {
    let names = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    let too_many = |refused, can_take_turns| Cause::TooMany {
        fits: names("a,b"),
        refused: names(refused),
        can_take_turns,
    };
    let (_tree, bare) = machine(&[]);
    for (cause, expected) in [
        (
            too_many("c", false),
            "{a,b} fit together; count c in another run (run --passes makes the runs that are needed)",
        ),
        (
            too_many("c,d", true),
            "{a,b} fit together; count {c,d} in another run (run --passes makes the runs that are needed), or estimate: --multiplex",
        ),
        (
            Cause::KernelForbidden { user_only: "cs:u".into() },
            "count user mode only: cs:u; or allow the kernel's part: sudo sysctl kernel.perf_event_paranoid=1",
        ),
        (Cause::NoSuchCounter, "counterpoint list shows which counters open here"),
        (Cause::ProcessDescriptors, "ulimit -n 65536"),
        (Cause::NoPmu { is_virtual: false }, "software counters work: -e page-faults,task-clock"),
    ] {
        assert_eq!(for_cause(&cause, &bare).as_deref(), Some(expected), "{cause:?}");
    }
    assert_eq!(for_cause(&Cause::Unknown, &bare), None);
    let zero = for_cause(&Cause::AlwaysZero, &bare).unwrap_or_default();
    let start = "count the kernel's part too; if that is forbidden: sudo sysctl \
                 kernel.perf_event_paranoid=1; or run as root, or with CAP_PERFMON: sudo setpriv";
    assert!(zero.starts_with(start), "{zero}");
}

#[test]
fn about_permissions() {
    let level = |number| (PARANOID, number);
    #[rustfmt::skip]
    let golden: &[(Option<i32>, Files<'_>, &str)] = &[
        (Some(2), &[level("3")], "sudo sysctl kernel.perf_event_paranoid=2; or run as root, or with CAP_PERFMON"),
        (Some(1), &[level("2"), LXC], "on the host: sudo sysctl kernel.perf_event_paranoid=1; or start the container with --cap-add PERFMON"),
        (Some(0), &[level("2"), INSIDE], "sudo sysctl kernel.perf_event_paranoid=0 (rights inside of a user namespace do not help)"),
        // The level in the file is low enough (or no level is), so something else must forbid
        // counting.
        (Some(1), &[level("1")], "run as root, or with CAP_PERFMON"),
        (Some(1), &[level("1"), LXC], "start the container with --cap-add PERFMON"),
        (None, &[level("-1")], "run as root, or with CAP_PERFMON"),
        (None, &[INSIDE], "run it as root outside of the user namespace"),
    ];
    for (paranoid, files, expected) in golden {
        let (_tree, machine) = machine(files);
        let advice = for_cause(&Cause::Forbidden { paranoid: *paranoid }, &machine);
        let advice = advice.unwrap_or_default();
        assert!(advice.starts_with(expected), "{paranoid:?} {files:?}: {advice}");
    }
}

#[test]
fn about_a_metric() {
    use model::metric::{Metric, Operand};
    let operand = |name, unit, group| Operand { name, unit, scale: 1.0, group };
    let count = model::Unit::Count;
    let counters = [
        operand("cycles", model::Unit::Cycles, 0),
        operand("instructions", count, 0),
        operand("cache-misses", count, 0),
        operand("task-clock", model::Unit::Nanoseconds, 0),
        operand("read", model::Unit::Bytes, 0),
        operand("msr/tsc/", count, 0),
        operand("page-faults:u", count, 1),
        operand("page-faults:k", count, 1),
        operand("cpu-migrations:u", count, 1),
        operand("energy", count, 2),
    ];
    #[rustfmt::skip]
    let golden = [
        ("x=cycles instructions", "put names with slashes, commas or spaces in quotes: \"msr/tsc/\" / duration"),
        ("x=5parsec*cycles", "units: %, ratio, count, cycles, and with a prefix (n u m k M G T, Ki Mi Gi Ti) s, B, Hz, J, W; also one per another: GB/s, G/s, /s"),
        ("x=avg(cycles)", "there are min(…) and max(…)"),
        ("x=cycles in", "units: %, ratio, count, cycles, and with a prefix (n u m k M G T, Ki Mi Gi Ti) s, B, Hz, J, W; also one per another: GB/s, G/s, /s"),
        ("x=cycles in furlongs", "units: %, ratio, count, cycles, and with a prefix (n u m k M G T, Ki Mi Gi Ti) s, B, Hz, J, W; also one per another: GB/s, G/s, /s"),
        ("x=cycels / 2", "did you mean cycles?"),
        ("x=branch-misses/2", "did you mean cache-misses?"),
        ("x=nothing-like-it", "this recording has the counters cycles, instructions, cache-misses, task-clock, read, msr/tsc/, page-faults:u, page-faults:k, cpu-migrations:u, energy"),
        ("x=cycles-instructions", "a minus needs spaces around it: cycles - instructions"),
        ("x=cache-misses-3", "a minus needs spaces around it: cache-misses - 3"),
        ("x=cycles:k", "did you mean cycles?"),
        ("x=page-faults", "write it with its modifiers"),
        ("x = cycles / page-faults:u", "count them in one group: -e '{cycles,page-faults:u}'"),
        ("x=cpu-migrations/page-faults:k", "if that is what you want, write them with their modifiers"),
        ("x=task-clock + 5", "numbers can have a unit: 5ms, 64B, 1kHz"),
        ("x=flop / duration", "flop is known in `report --roofline`, where ops have known work"),
        ("x=flops / duration", "flops is known in `report --by shape`, for ops of PyTorch"),
        ("x=2+2", ""),
    ];
    for (typed, expected) in golden {
        let bound = Metric::parse(typed).and_then(|metric| metric.bind(&counters));
        let advice = for_metric(&bound.expect_err(typed)).unwrap_or_default();
        assert_eq!(advice, expected, "{typed}");
    }
    let nothing = Metric::parse("x=cycles").and_then(|metric| metric.bind(&[]));
    let advice = for_metric(&nothing.expect_err("no counters"));
    assert_eq!(advice.as_deref(), Some("this recording has no counters"));
}
