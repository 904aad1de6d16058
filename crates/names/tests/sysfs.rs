//! Tests names that files in sysfs and tracefs define.

use machine::Machine;
use model::{Counter, PerfAttr, Scope, Source, Unit};
use names::{NameError, Resolver};
use testkit::counting::Tree;

const DEVICES: &str = "sys/bus/event_source/devices";

fn tree() -> Tree {
    let tree = Tree::new("sysfs");
    let file = |path: &str, text: &str| tree.file(&format!("{DEVICES}/{path}"), text);
    file("cpu/type", "4\n");
    file("cpu/format/event", "config:0-7,32-35\n");
    file("cpu/format/umask", "config:8-15\n");
    file("cpu/format/ldlat", "config1:0-15\n");
    file("cpu/format/strange", "config9:1\n");
    file("cpu/events/cpu-cycles", "event=0x3c\n");
    file("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n");
    file("cpu/events/open", "event=0x1,umask=?\n");
    file("power/type", "9\n");
    file("power/cpumask", "0,18-19\n");
    file("power/format/event", "config:0-7\n");
    file("power/events/energy-pkg", "event=0x02\n");
    file("power/events/energy-pkg.unit", "Joules\n");
    file("power/events/energy-pkg.scale", "2.3283064365386962890625e-10\n");
    file("uncore_imc_0/type", "12\n");
    file("uncore_imc_0/cpumask", "0\n");
    file("uncore_imc_0/format/event", "config:0-7\n");
    file("uncore_imc_0/events/data_reads", "event=0x01\n");
    file("uncore_imc_0/events/data_reads.unit", "MiB\n");
    file("uncore_imc_0/events/data_reads.scale", "6.103515625e-5\n");
    file("uncore_imc_0/events/broken", "event=0x01\n");
    file("uncore_imc_0/events/broken.scale", "0\n");
    file("nowhere/type", "13\n");
    file("nowhere/cpumask", "\n");
    file("scaled/type", "11\n");
    file("scaled/format/event", "config:0-63\n");
    file("scaled/events/bytes", "event=1\n");
    file("scaled/events/bytes.scale", "64\n");
    file("uprobe/type", "8\n");
    file("cpu/caps/slots", "8\n");
    tree.file("sys/kernel/tracing/available_events", "syscalls:sys_enter_read\n");
    let point = "sys/kernel/tracing/events/syscalls/sys_enter_read";
    tree.file(&format!("{point}/id"), "711\n");
    tree.file(
        &format!("{point}/format"),
        "name: sys_enter_read\nID: 711\nformat:\n\tfield:unsigned short common_type;\toffset:0;\n\
         \n\tfield:int __syscall_nr;\toffset:8;\n\tfield:unsigned int fd;\toffset:16;\n\
         \tfield:char * buf;\toffset:24;\n\tfield:size_t count;\toffset:32;\n",
    );
    tree
}

fn cause(error: &NameError) -> String {
    error.cause.as_ref().map_or_else(String::new, |cause| format!("{cause:?}"))
}

fn resolve(tree: &Tree, text: &str) -> Result<(String, PerfAttr), String> {
    let mut counters = Resolver::new(&Machine::at(&tree.root))
        .resolve(text)
        .map_err(|e| format!("{e} | {}", cause(&e)))?;
    let counter = counters.remove(0);
    match counter.source {
        Source::Perf(attr) => Ok((counter.name, attr)),
        Source::Sim(_) => Err("simulated".into()),
    }
}

#[test]
fn terms_go_where_the_format_says() {
    let tree = tree();
    let of = |text: &str| {
        let (name, a) = resolve(&tree, text).unwrap_or_else(|e| panic!("{text}: {e}"));
        (name, a.kind, a.config, a.config1)
    };
    let plain = |text: &str, kind, config, config1| (text.to_string(), kind, config, config1);
    // As on AMD, bits 8 to 11 of the event code become bits 32 to 35 of config: 0x1c2 becomes 0xc2
    // | 1 << 32.
    let text = "cpu/event=0x1c2,umask=0x1/";
    assert_eq!(of(text), plain(text, 4, 0x1_0000_01c2, 0));
    assert_eq!(of("cpu/cpu-cycles/"), plain("cpu/cpu-cycles/", 4, 0x3c, 0));
    assert_eq!(of("cpu/mem-loads/"), plain("cpu/mem-loads/", 4, 0x1cd, 3));
    // A term after an event replaces the event's own term of that name.
    let text = "cpu/mem-loads,ldlat=30/";
    assert_eq!(of(text), plain(text, 4, 0x1cd, 30));
    assert_eq!(of("cpu/event=1,name=mine/"), plain("mine", 4, 1, 0));
    assert_eq!(of("cpu/config=0x1234,config1=7/").2, 0x1234);
    assert_eq!(of("cpu//").1, 4);
    // The event `open` has a parameter, `umask`.
    assert_eq!(of("cpu/open,umask=0x3/").2, 0x301);
    assert_eq!(of("mem-loads"), plain("mem-loads", 4, 0x1cd, 3));
    // Generic names and numbers can be terms.
    assert_eq!(of("cpu/cycles/"), plain("cpu/cycles/", 0, 0, 0));
    assert_eq!(of("cpu/L1-dcache-load-misses/").2, 0x1_0000);
    assert_eq!(of("cpu/r01c2/"), plain("cpu/r01c2/", 4, 0x1c2, 0));
    let (name, attr) = resolve(&tree, "cpu/event=1/u").unwrap();
    assert!(name == "cpu/event=1/:u" && attr.exclude_kernel && !attr.exclude_user);
    let (name, attr) = resolve(&tree, "syscalls:sys_enter_read:u").unwrap();
    assert_eq!((name.as_str(), attr.kind, attr.config), ("syscalls:sys_enter_read:u", 2, 711));
}

/// The files are as the kernel has them for a core of Ice Lake or later: all five counters have the
/// event 0, and the metrics must follow `slots` in one group (Linux 6.12,
/// arch/x86/events/intel/core.c).
#[test]
fn top_down_counters_of_intel() {
    let tree = Tree::new("topdown");
    let file = |path: &str, text: &str| tree.file(&format!("{DEVICES}/cpu/{path}"), text);
    file("type", "4\n");
    file("format/event", "config:0-7\n");
    file("format/umask", "config:8-15\n");
    for (name, umask) in [
        ("slots", 0x4),
        ("topdown-retiring", 0x80),
        ("topdown-bad-spec", 0x81),
        ("topdown-fe-bound", 0x82),
        ("topdown-be-bound", 0x83),
    ] {
        file(&format!("events/{name}"), &format!("event=0x00,umask={umask:#x}\n"));
    }
    let text = "{slots,topdown-retiring,topdown-bad-spec,topdown-fe-bound,topdown-be-bound}:u";
    let counters = Resolver::new(&Machine::at(&tree.root)).resolve(text).unwrap();
    let found: Vec<(u64, u16, &str)> = counters
        .iter()
        .map(|counter| match &counter.source {
            Source::Perf(attr) => (attr.config, counter.group, counter.name.as_str()),
            Source::Sim(_) => panic!("simulated"),
        })
        .collect();
    let expected = [
        (0x400, 0, "slots:u"),
        (0x8000, 0, "topdown-retiring:u"),
        (0x8100, 0, "topdown-bad-spec:u"),
        (0x8200, 0, "topdown-fe-bound:u"),
        (0x8300, 0, "topdown-be-bound:u"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn what_the_machine_does_not_have() {
    let tree = tree();
    #[rustfmt::skip]
    let golden = [
        ("cup/event=1/", "byte 0: this machine has no PMU \"cup\" | Near([\"cpu\"])"),
        ("cpu/evnt=1/", "byte 4: cpu has no event or term \"evnt\" | Near([\"event\"])"),
        ("cpu/event=1,zzzzzz/", "byte 12: cpu has no event or term \"zzzzzz\" | Terms([\"cpu-cycles\", \"mem-loads\", \"open\", \"event\", \"ldlat\", \"strange\", \"umask\"])"),
        ("cpu/umask=0x100/", "byte 4: \"0x100\": umask has 8 bits | "),
        ("cpu/event=seven/", "byte 4: \"seven\": not a number (0x… or decimal) | "),
        ("cpu/open/", "byte 4: \"open\": needs a value for umask | Instead(\"cpu/open,umask=…/\")"),
        ("cpu/open,umask=?/", "byte 4: \"open\": needs a value for umask | Instead(\"cpu/open,umask=…/\")"),
        ("cpu/event=1,period=1000/", "byte 12: \"period=1000\": says how to sample, but this program counts | "),
        ("cpu/slots/", "byte 4: cpu has no event or term \"slots\" | Capability(\"slots = 8\")"),
        ("cpu/../", "byte 4: cpu has no event or term \"..\" | Terms([\"cpu-cycles\", \"mem-loads\", \"open\", \"event\", \"ldlat\", \"strange\", \"umask\"])"),
        ("cpu/r12345678123456789/", "byte 4: \"r12345678123456789\": a raw counter has at most 16 hexadecimal digits | "),
        ("open", "byte 0: \"open\": needs a value for umask | Instead(\"cpu/open,umask=…/\")"),
        ("cpu/strange/", "byte 4: /sys/bus/event_source/devices/cpu/format/strange: \"config9:1\" | "),
        ("scaled/bytes/", "byte 0: not supported yet: scaled, a counter of threads whose values have a scale | "),
        ("uncore_imc_0/broken/", "byte 13: /sys/bus/event_source/devices/uncore_imc_0/events/broken.scale: \"0\" is not a scale | "),
        ("nowhere/config=1/", "byte 0: /sys/bus/event_source/devices/nowhere/cpumask: \"\" names no processors | "),
        ("{power/energy-pkg/,page-faults}", "byte 19: a group cannot count both threads and a whole package | "),
        ("uprobe/config=1/", "byte 0: not supported yet: uprobe/…/ | UprobePmu"),
        ("kprobe/config=1/", "byte 0: not supported yet: kprobe/…/ | KprobePmu"),
        ("syscalls:sys_enter_raed", "byte 0: unknown counter \"syscalls:sys_enter_raed\" | Near([\"syscalls:sys_enter_read\"])"),
        ("syscalls:sys_enter_read/filter=\"cuont > 1\"/", "byte 24: \"cuont\": no field of this tracepoint | Fields([\"__syscall_nr\", \"fd\", \"buf\", \"count\"])"),
    ];
    for (text, expected) in golden {
        let error = resolve(&tree, text).err().unwrap_or_else(|| panic!("{text} is accepted"));
        assert_eq!(error, format!("counter list, {expected}"), "{text}");
    }
}

#[test]
fn tracepoints_have_filters() {
    let tree = tree();
    let typed = "syscalls:sys_enter_read/filter=\"count > 100 && fd == 3\"/u";
    let (name, attr) = resolve(&tree, typed).unwrap();
    assert_eq!(name, "syscalls:sys_enter_read/filter=\"count > 100 && fd == 3\"/:u");
    assert_eq!((attr.kind, attr.config, attr.exclude_kernel), (2, 711, true));
    assert_eq!(attr.filter.as_deref(), Some(c"count > 100 && fd == 3"));
    // If the fields are not known, only the kernel checks the filter.
    tree.remove("sys/kernel/tracing/events/syscalls/sys_enter_read/format");
    assert!(resolve(&tree, "syscalls:sys_enter_read/filter=\"cuont > 1\"/").is_ok());
}

/// A hardware name stands for one counter for each kind of core, and each kind of core has its own
/// groups.
#[test]
fn two_kinds_of_cores() {
    let tree = Tree::new("hybrid");
    let file = |path: &str, text: &str| tree.file(&format!("{DEVICES}/{path}"), text);
    for (pmu, number) in [("cpu_core", "4"), ("cpu_atom", "10")] {
        file(&format!("{pmu}/type"), number);
        file(&format!("{pmu}/cpus"), "0-3");
        file(&format!("{pmu}/format/event"), "config:0-7");
        file(&format!("{pmu}/events/mem-loads"), "event=0xcd");
    }
    let resolver = Resolver::new(&Machine::at(&tree.root));
    let rows = |text: &str| {
        let counters = resolver.resolve(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        counters::Plan::new(counters.clone()).unwrap();
        let row = |c: &Counter| match &c.source {
            Source::Perf(a) => format!("{} {} {} {:#x}", c.group, c.name, a.kind, a.config),
            Source::Sim(_) => panic!("simulated"),
        };
        counters.iter().map(row).collect::<Vec<_>>()
    };
    // PERF_PMU_TYPE_SHIFT of linux/perf_event.h is 32.
    let (atom, core) = ("0xa00000000", "0x400000000");
    assert_eq!(
        rows("task-clock,cycles:u,instructions"),
        [
            "0 task-clock 1 0x1",
            &format!("1 cpu_atom/cycles/:u 0 {atom}"),
            "1 cpu_atom/instructions/ 0 0xa00000001",
            &format!("2 cpu_core/cycles/:u 0 {core}"),
            "2 cpu_core/instructions/ 0 0x400000001",
        ]
    );
    assert_eq!(
        rows("{task-clock,cycles,r3c}"),
        [
            "0 task-clock 1 0x1",
            &format!("0 cpu_atom/cycles/ 0 {atom}"),
            "0 cpu_atom/r3c/ 10 0x3c",
            &format!("1 cpu_core/cycles/ 0 {core}"),
            "1 cpu_core/r3c/ 4 0x3c",
        ]
    );
    let misses = ["0 cpu_core/LLC-load-misses/ 3 0x400010002"];
    assert_eq!(rows("cpu_core/LLC-load-misses/"), misses);
    let both = ["0 cpu_atom/mem-loads/ 10 0xcd", "1 cpu_core/mem-loads/ 4 0xcd"];
    assert_eq!(rows("mem-loads"), both);
    assert_eq!(rows("cpu/mem-loads/"), both);
    assert_eq!(rows("cpu_atom/mem-loads/"), both[..1]);
    assert_eq!(
        rows("perf::CYCLES:u")[1],
        format!("1 cpu_core/cycles/ 0 {core}"),
        "libpfm4's attributes are part of its name"
    );
}

#[test]
fn several_equal_pmus() {
    let tree = Tree::new("several");
    let file = |path: &str, text: &str| tree.file(&format!("{DEVICES}/{path}"), text);
    for (i, number) in [("0", "20"), ("1", "21"), ("free_running", "22")] {
        file(&format!("uncore_imc_{i}/type"), number);
        file(&format!("uncore_imc_{i}/cpumask"), "0");
        file(&format!("uncore_imc_{i}/format/event"), "config:0-7");
        file(&format!("uncore_imc_{i}/format/wide"), "config3:0-63");
        file(&format!("uncore_imc_{i}/events/reads"), "event=4");
    }
    let resolver = Resolver::new(&Machine::at(&tree.root));
    let names = |text: &str| {
        let counters = resolver.resolve(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        let kind = |c: &Counter| match &c.source {
            Source::Perf(attr) => attr.kind,
            Source::Sim(_) => 0,
        };
        counters.iter().map(|c| format!("{} {} {}", c.group, c.name, kind(c))).collect::<Vec<_>>()
    };
    let two = ["0 uncore_imc_0/event=4/ 20", "1 uncore_imc_1/event=4/ 21"];
    for typed in ["uncore_imc/event=4/", "imc/event=4/", "imc_[01]/event=4/"] {
        match typed.contains('[') {
            false => assert_eq!(names(typed), two, "{typed}"),
            true => assert!(resolver.resolve(typed).is_err()),
        }
    }
    assert_eq!(names("uncore_imc_1/event=4/"), ["0 uncore_imc_1/event=4/ 21"]);
    assert_eq!(names("uncore_imc*/event=4/").len(), 3);
    assert_eq!(names("reads").len(), 3);
    let Source::Perf(attr) = &resolver.resolve("uncore_imc_0/wide=7/").unwrap()[0].source.clone()
    else {
        panic!("simulated")
    };
    assert_eq!((attr.config, attr.config3), (0, 7));
}

#[test]
fn packages_have_processors_units_and_scales() {
    let tree = tree();
    let resolver = Resolver::new(&Machine::at(&tree.root));
    let typed = "page-faults,power/energy-pkg/,task-clock,uncore_imc_0/data_reads/";
    let counters = resolver.resolve(typed).unwrap();
    let of = |c: &Counter| (c.name.clone(), c.group, c.unit, c.scale.get(), c.scope.clone());
    let row = |name: &str, group, unit, scale, scope| (name.to_owned(), group, unit, scale, scope);
    assert_eq!(
        counters.iter().map(of).collect::<Vec<_>>(),
        [
            row("page-faults", 0, Unit::Count, 1.0, Scope::Thread),
            row("task-clock", 0, Unit::Nanoseconds, 1.0, Scope::Thread),
            // One step of this counter is 2⁻³² J, as AMD and Intel count energy.
            row(
                "power/energy-pkg/",
                1,
                Unit::Joules,
                1.0 / 4_294_967_296.0,
                Scope::Cpus(vec![0, 18, 19])
            ),
            // One step of this counter is a cache line of 64 bytes.
            row("uncore_imc_0/data_reads/", 2, Unit::Bytes, 64.0, Scope::Cpus(vec![0])),
        ]
    );
}

#[test]
fn the_catalogue_has_the_machines_events() {
    let tree = tree();
    let names: Vec<String> = Resolver::new(&Machine::at(&tree.root))
        .catalogue()
        .into_iter()
        .filter(|e| e.source.starts_with("pmu ") || e.source == "pmu")
        .map(|e| e.name)
        .collect();
    assert_eq!(
        names,
        [
            "cpu/cpu-cycles/",
            "cpu/mem-loads/",
            "power/energy-pkg/",
            "uncore_imc_0/data_reads/",
            "PMU/TERM=VALUE,…/"
        ]
    );
}
