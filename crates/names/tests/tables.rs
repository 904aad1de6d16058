//! Tests a vendor's names from tables in the layouts of the kernel and of Intel. The tables are
//! made up, with the keys of real tables.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use machine::Machine;
use model::{Counter, Scope, Source, Unit};
use names::{NameCause, Resolver};
use testkit::counting::Tree;

const DEVICES: &str = "sys/bus/event_source/devices";

fn cpu(tree: &Tree, vendor: &str, family: u32, model: u32) {
    let text = format!(
        "vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nstepping\t: 4\n"
    );
    tree.file("proc/cpuinfo", &text);
}

fn resolver(tree: &Tree, directory: &str) -> Resolver {
    Resolver::with_tables(&Machine::at(&tree.root), Some(&tree.root.join(directory)))
}

fn rows(resolver: &Resolver, text: &str) -> Vec<String> {
    let row = |c: &Counter| match &c.source {
        Source::Perf(a) => format!("{} {} {:#x} {:#x}", c.name, a.kind, a.config, a.config1),
        Source::Sim(_) => panic!("simulated"),
    };
    match resolver.resolve(text) {
        Ok(counters) => counters.iter().map(row).collect(),
        Err(e) => {
            let cause = e.cause.as_ref().map_or_else(String::new, |cause| format!("{cause:?}"));
            vec![format!("{e} | {cause}")]
        }
    }
}

const INTEL: &str = r#"[
  {"EventCode": "0x00", "UMask": "0x01", "EventName": "INST_RETIRED.ANY", "BriefDescription": "instructions"},
  {"EventCode": "0xC3", "UMask": "0x04", "EventName": "MACHINE.CLEARS", "CounterMask": "1", "EdgeDetect": "1", "Invert": "0"},
  {"EventCode": "0xB7, 0xBB", "UMask": "0x01", "EventName": "OCR.READS", "MSRIndex": "0x1a6,0x1a7", "MSRValue": "0x10001", "Offcore": "1"},
  {"EventCode": "0xCD", "UMask": "0x01", "EventName": "SLOW.LOADS", "MSRIndex": "0x3F6", "MSRValue": "0x80"},
  {"EventCode": "0x11", "EventName": "OLD.NAME", "Deprecated": "1"},
  {"EventCode": "0x100", "EventName": "TOO.BIG"},
  {"MetricName": "ipc", "MetricExpr": "1"}
]"#;
const UNCORE: &str = r#"[
  {"Unit": "iMC", "EventCode": "0x4", "UMask": "0x3", "EventName": "UNC_M.READS", "ScaleUnit": "64Bytes"},
  {"Unit": "CHA", "EventCode": "0x35", "UMask": "0x21", "UMaskExt": "0xC001FE", "EventName": "UNC_CHA.X"}
]"#;

/// The kernel's layout has a folder for each model of processor. Without sysfs, the terms' bits
/// have the positions that Intel's manual gives.
#[test]
fn the_kernels_layout() {
    let tree = Tree::new("tables");
    cpu(&tree, "GenuineIntel", 6, 0x8f);
    tree.file("arch/x86/mapfile.csv", "Family-model,Version,Filename,EventType\nGenuineIntel-6-(8F|CF),v1,lake,core\nGenuineIntel-6-55,v1,other,core\n");
    tree.file("arch/x86/lake/pipeline.json", INTEL);
    tree.file("arch/x86/lake/uncore.json", UNCORE);
    tree.file("arch/x86/other/pipeline.json", "no JSON");
    for directory in ["arch/x86", "arch", ""] {
        let resolver = resolver(&tree, directory);
        let of = |text: &str| rows(&resolver, text);
        assert_eq!(of("inst_retired.any"), ["inst_retired.any 4 0xc0 0x0"]);
        // cmask begins at bit 24, and edge is bit 18.
        assert_eq!(of("machine.clears"), ["machine.clears 4 0x10404c3 0x0"]);
        assert_eq!(of("OCR.READS:u"), ["OCR.READS:u 4 0x1b7 0x10001"]);
        assert_eq!(of("slow.loads"), ["slow.loads 4 0x1cd 0x80"]);
        assert_eq!(of("old.name"), ["old.name 4 0x11 0x0"]);
        assert_eq!(
            of("cs,too.big"),
            ["counter list, byte 3: \"0x100\": event has 8 bits | TableRow(\"cpu/event=0x100/\")"]
        );
        assert_eq!(
            of("unc_m.reads"),
            [
                "counter list, byte 0: this machine has no PMU \"uncore_imc\", which counts UNC_M.READS | "
            ]
        );
        assert_eq!(
            of("machine.claers"),
            [
                "counter list, byte 0: unknown counter \"machine.claers\" | Near([\"MACHINE.CLEARS\"])"
            ]
        );
    }
    let listed: Vec<_> = resolver(&tree, "arch").bulk().into_iter().map(|e| e.name).collect();
    assert!(listed.contains(&"INST_RETIRED.ANY".to_owned()) && listed.len() == 7, "{listed:?}");
    assert!(!listed.contains(&"OLD.NAME".to_owned()), "deprecated names are not advertised");
}

#[test]
fn sysfs_has_the_last_word() {
    let tree = Tree::new("tables");
    cpu(&tree, "GenuineIntel", 6, 0x8f);
    tree.file("flat/a.json", INTEL);
    tree.file("flat/b.json", UNCORE);
    let file = |path: &str, text: &str| tree.file(&format!("{DEVICES}/{path}"), text);
    file("cpu/type", "4");
    file("cpu/format/event", "config:0-7");
    file("cpu/format/umask", "config:8-15,40-47");
    file("cpu/format/cmask", "config:24-31");
    file("cpu/format/edge", "config:19");
    for i in ["0", "1"] {
        file(&format!("uncore_imc_{i}/type"), &format!("3{i}"));
        file(&format!("uncore_imc_{i}/cpumask"), "0,8");
        file(&format!("uncore_imc_{i}/format/event"), "config:0-7");
        file(&format!("uncore_imc_{i}/format/umask"), "config:8-15");
    }
    file("uncore_cha_0/type", "40");
    file("uncore_cha_0/cpumask", "0");
    file("uncore_cha_0/format/event", "config:0-7");
    file("uncore_cha_0/format/umask", "config:8-15,32-55");
    let resolver = resolver(&tree, "flat");
    assert_eq!(rows(&resolver, "machine.clears"), ["machine.clears 4 0x10804c3 0x0"]);
    assert_eq!(rows(&resolver, "cpu/machine.clears/u"), ["cpu/machine.clears/:u 4 0x10804c3 0x0"]);
    // In config, the low bits of `umask` (0x21) begin at bit 8, and its extension (0xc001fe) begins
    // at bit 32.
    assert_eq!(rows(&resolver, "unc_cha.x"), ["unc_cha.x 40 0xc001fe00002135 0x0"]);
    let counters = resolver.resolve("unc_m.reads").unwrap();
    let names: Vec<_> = counters.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["uncore_imc_0/event=0x4,umask=0x3/", "uncore_imc_1/event=0x4,umask=0x3/"]);
    for counter in &counters {
        assert_eq!((counter.unit, counter.scale.get()), (Unit::Bytes, 64.0));
        assert_eq!(counter.scope, Scope::Cpus(vec![0, 8]));
    }
    assert_eq!(
        rows(&resolver, "slow.loads"),
        [
            "counter list, byte 0: cpu has no event or term \"ldlat\" | TableRow(\"cpu/event=0xcd,umask=0x1,ldlat=0x80/\")"
        ]
    );
}

/// Intel's layout has a file for each kind of core, with the events after a header.
#[test]
fn intels_layout() {
    let tree = Tree::new("tables");
    cpu(&tree, "GenuineIntel", 6, 0x97);
    tree.file("mapfile.csv", "Family-model,Version,Filename,EventType,Core Type,Native Model ID,Core Role Name\nGenuineIntel-6-97,V1,/ADL/events/core.json,hybridcore,0x40,0x1,Core\nGenuineIntel-6-97,V1,/ADL/events/atom.json,hybridcore,0x20,0x1,Atom\n");
    let events = |code| {
        format!(
            r#"{{"Header": {{"Info": "x"}}, "Events": [{{"EventCode": "{code}", "UMask": "0x00", "EventName": "THE.SAME"}}]}}"#
        )
    };
    tree.file("ADL/events/core.json", &events("0x3C"));
    tree.file("ADL/events/atom.json", &events("0x3D"));
    let file = |path: &str, text: &str| tree.file(&format!("{DEVICES}/{path}"), text);
    for (pmu, number) in [("cpu_core", "4"), ("cpu_atom", "10")] {
        file(&format!("{pmu}/type"), number);
        file(&format!("{pmu}/format/event"), "config:0-7");
    }
    let resolver = resolver(&tree, "");
    assert_eq!(
        rows(&resolver, "the.same"),
        ["cpu_core/event=0x3c/ 4 0x3c 0x0", "cpu_atom/event=0x3d/ 10 0x3d 0x0"]
    );
    assert_eq!(rows(&resolver, "cpu_atom/the.same/"), ["cpu_atom/the.same/ 10 0x3d 0x0"]);
    // Now the machine has only one kind of core.
    tree.remove(&format!("{DEVICES}/cpu_atom"));
    assert_eq!(rows(&resolver, "the.same"), ["cpu_core/event=0x3c/ 4 0x3c 0x0"]);
}

#[test]
fn arms_layout() {
    let tree = Tree::new("tables");
    tree.file("sys/devices/system/cpu/cpu0/regs/identification/midr_el1", "0x00000000413fd0c1\n");
    tree.file("proc/cpuinfo", "CPU implementer\t: 0x41\n");
    tree.file("arm64/mapfile.csv", "# comment\n0x00000000410fd0c0,v1,arm/n1,core\n");
    tree.file(
        "arm64/common.json",
        r#"[{"EventCode": "0x13", "EventName": "MEM_ACCESS", "BriefDescription": "accesses"}]"#,
    );
    tree.file("arm64/arm/n1/memory.json", r#"[{"ArchStdEvent": "MEM_ACCESS"}, {"ArchStdEvent": "mem_access", "EventName": "MINE", "BriefDescription": "mine"}]"#);
    let resolver = resolver(&tree, "");
    assert_eq!(rows(&resolver, "mem_access"), ["mem_access 4 0x13 0x0"]);
    assert_eq!(rows(&resolver, "mine"), ["mine 4 0x13 0x0"]);
    let described: Vec<_> =
        resolver.bulk().into_iter().map(|e| (e.name, e.description, e.bulk)).collect();
    assert_eq!(
        described,
        [("MEM_ACCESS".into(), "accesses".into(), true), ("MINE".into(), "mine".into(), true)]
    );
}

/// AMD's event codes have twelve bits, which are in two parts of config.
#[test]
fn amds_layout_and_precedence() {
    let tree = Tree::new("tables");
    cpu(&tree, "AuthenticAMD", 25, 0x11);
    tree.file("x86/mapfile.csv", "AuthenticAMD-25-([12][[:xdigit:]]|[[:xdigit:]]),v1,zen,core\n");
    tree.file(
        "x86/zen/core.json",
        r#"[{"EventCode": "0x1c2", "UMask": "0x3", "EventName": "twelve.bits"},
        {"EventCode": "0xff", "EventName": "ex_ret_instr"}]"#,
    );
    let resolver = resolver(&tree, "");
    assert_eq!(rows(&resolver, "twelve.bits"), ["twelve.bits 4 0x1000003c2 0x0"]);
    // A table of the user comes before built-in names.
    assert_eq!(rows(&resolver, "ex_ret_instr"), ["ex_ret_instr 4 0xff 0x0"]);
}

/// If a name is not found, the error tells what is wrong with the directory of tables. Names that
/// are found are not affected.
#[test]
fn directories_that_give_nothing() {
    let tree = Tree::new("tables");
    cpu(&tree, "AuthenticAMD", 25, 0x61);
    tree.file("other/mapfile.csv", "GenuineIntel-6-8F,v1,x,core\n");
    tree.file("broken/a.json", "[{");
    tree.file("strange/a.json", r#"[{"EventName": "x", "EventCode": "y"}]"#);
    tree.file("dangling/a.json", r#"[{"ArchStdEvent": "x"}]"#);
    tree.file("empty/readme", "");
    // Mapfiles must not name files outside of their directory. The named file exists.
    tree.file("beside/a.json", r#"[{"EventName": "qqqqqq.zzzzzz", "EventCode": "1"}]"#);
    for (directory, place) in [("up", "../beside"), ("up-file", "x/../../beside/a.json")] {
        let map = format!(
            "Family-model,Version,Filename,EventType\nAuthenticAMD-25-61,v1,{place},core\n"
        );
        tree.file(&format!("{directory}/mapfile.csv"), &map);
        tree.file(&format!("{directory}/x/b.json"), "[]");
    }
    for (directory, expected) in [
        ("nowhere", "nowhere: No such file or directory (os error 2)"),
        ("empty", "empty: no mapfile.csv and no *.json"),
        ("other", "other/mapfile.csv: no row for this processor, AuthenticAMD-25-61-4"),
        ("broken", "broken/a.json: EOF while parsing an object at line 1 column 2"),
        ("strange", "strange/a.json: x: EventCode \"y\" is not a number"),
        ("dangling", "dangling/a.json: no ArchStdEvent \"x\""),
        ("up", "up/mapfile.csv: \"../beside\" is not inside of its directory"),
        (
            "up-file",
            "up-file/mapfile.csv: \"x/../../beside/a.json\" is not inside of its directory",
        ),
    ] {
        let resolver = resolver(&tree, directory);
        let error = resolver.resolve("qqqqqq.zzzzzz").unwrap_err();
        let Some(NameCause::Tables(problem)) = error.cause else {
            panic!("{directory}: {error:?}")
        };
        assert!(problem.ends_with(expected), "{directory}: {problem}");
        assert!(resolver.resolve("cycles,page-faults").is_ok());
    }
}

#[test]
fn what_is_broken_is_left_out() {
    let tree = Tree::new("tables");
    cpu(&tree, "AuthenticAMD", 25, 0x61);
    tree.file(
        "partly/a.json",
        r#"[{"EventName": "strange.one", "EventCode": "y"}, {"ArchStdEvent": "dangling"},
            {"EventName": "good.one", "EventCode": "0x76"}]"#,
    );
    tree.file("partly/b.json", "[{");
    let resolver = resolver(&tree, "partly");
    assert_eq!(rows(&resolver, "good.one"), ["good.one 4 0x76 0x0"]);
    let error = resolver.resolve("qqqqqq.zzzzzz").unwrap_err();
    let Some(NameCause::Tables(problem)) = error.cause else { panic!("{error:?}") };
    let expected =
        "partly/a.json: strange.one: EventCode \"y\" is not a number; and 2 more like it";
    assert!(problem.ends_with(expected), "{problem}");
}
