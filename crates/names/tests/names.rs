//! Tests which counters a list stands for, and the errors of lists that cannot be used. The
//! expected numbers are from linux/perf_event.h and perf's tables.

use machine::Machine;
use model::{Counter, PerfAttr, SimReading, Source, Unit};
use names::{NameCause, Resolver, parse, pieces};

/// Makes a resolver for a machine without files, on which only built-in names can be resolved.
fn bare() -> Resolver {
    Resolver::new(&Machine::at("/nonexistent"))
}

fn attr(counter: &Counter) -> PerfAttr {
    match &counter.source {
        Source::Perf(attr) => attr.clone(),
        Source::Sim(_) => panic!("{} is simulated", counter.name),
    }
}

#[test]
fn perfs_own_names() {
    // Name, type and config.
    #[rustfmt::skip]
    let golden: &[(&str, u32, u64)] = &[
        ("cycles", 0, 0), ("cpu-cycles", 0, 0), ("instructions", 0, 1), ("cache-references", 0, 2),
        ("cache-misses", 0, 3), ("branches", 0, 4), ("branch-instructions", 0, 4),
        ("branch-misses", 0, 5), ("bus-cycles", 0, 6), ("stalled-cycles-frontend", 0, 7),
        ("idle-cycles-frontend", 0, 7), ("stalled-cycles-backend", 0, 8),
        ("idle-cycles-backend", 0, 8), ("ref-cycles", 0, 9), ("CYCLES", 0, 0),
        ("cpu-clock", 1, 0), ("task-clock", 1, 1), ("page-faults", 1, 2), ("faults", 1, 2),
        ("context-switches", 1, 3), ("cs", 1, 3), ("cpu-migrations", 1, 4), ("migrations", 1, 4),
        ("minor-faults", 1, 5), ("major-faults", 1, 6), ("alignment-faults", 1, 7),
        ("emulation-faults", 1, 8), ("dummy", 1, 9), ("bpf-output", 1, 10),
        ("cgroup-switches", 1, 11), ("Page-Faults", 1, 2),
        ("L1-dcache-loads", 3, 0), ("L1-dcache-load-misses", 3, 0x1_0000),
        ("L1-dcache-stores", 3, 0x100), ("L1-dcache-store-misses", 3, 0x1_0100),
        ("L1-dcache-prefetches", 3, 0x200), ("L1-dcache-prefetch-misses", 3, 0x1_0200),
        ("L1-icache-loads", 3, 1), ("L1-icache-load-misses", 3, 0x1_0001), ("LLC-loads", 3, 2),
        ("LLC-load-misses", 3, 0x1_0002), ("LLC-misses", 3, 0x1_0002), ("LLC", 3, 2),
        ("dTLB-load-misses", 3, 0x1_0003), ("dTLB-store-misses", 3, 0x1_0103),
        ("iTLB-load-misses", 3, 0x1_0004), ("branch-loads", 3, 5),
        ("branch-load-misses", 3, 0x1_0005), ("node-loads", 3, 6),
        ("node-prefetch-misses", 3, 0x1_0206), ("l1d-read-miss", 3, 0x1_0000),
        ("L1-DCACHE-LOAD-MISSES", 3, 0x1_0000), ("L1-data-speculative-read-miss", 3, 0x1_0200),
        ("r1", 4, 1), ("r01c2", 4, 0x1c2), ("rFF", 4, 0xff),
        ("rffffffffffffffff", 4, u64::MAX),
        ("mem:0x1000", 5, 0),
    ];
    for &(name, kind, config) in golden {
        let counters = bare().resolve(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        let got = attr(&counters[0]);
        assert_eq!((got.kind, got.config), (kind, config), "{name}");
        assert_eq!(counters[0].name.to_lowercase(), name.to_lowercase());
        assert!(!got.exclude_user && !got.exclude_kernel && !got.exclude_hv);
    }
}

#[test]
fn modifiers_mean_what_perf_says() {
    let of = |text: &str| attr(&bare().resolve(text).unwrap()[0]);
    let excluded = |a: PerfAttr| (a.exclude_user, a.exclude_kernel, a.exclude_hv);
    assert_eq!(excluded(of("cycles:u")), (false, true, true));
    assert_eq!(excluded(of("cycles:k")), (true, false, true));
    assert_eq!(excluded(of("cycles:h")), (true, true, false));
    assert_eq!(excluded(of("cycles:uk")), (false, false, true));
    assert_eq!(excluded(of("cycles:ukh")), (false, false, false));
    assert_eq!(excluded(of("{cycles:u,instructions}:k")), (false, false, true));
    let guest = of("cycles:G");
    assert!(guest.exclude_host && !guest.exclude_guest && !guest.exclude_kernel);
    let host = of("cycles:H");
    assert!(host.exclude_guest && !host.exclude_host);
    assert!(of("cycles:I").exclude_idle && of("cycles:D").pinned && of("cycles:e").exclusive);
}

#[test]
fn names_and_units_of_the_result() {
    let text = " task-clock , page-faults:u,{cycles,r1}:u,cs:ku";
    let counters = bare().resolve(text).unwrap();
    let rows: Vec<_> = counters.iter().map(|c| (c.name.as_str(), c.unit, c.group)).collect();
    use Unit::{Count, Cycles, Nanoseconds};
    assert_eq!(
        rows,
        [
            ("task-clock", Nanoseconds, 0),
            ("page-faults:u", Count, 0),
            ("cs:uk", Count, 0),
            ("cycles:u", Cycles, 1),
            ("r1:u", Count, 1),
        ]
    );
}

#[test]
fn grouping() {
    let groups = |text: &str| {
        let counters = bare().resolve(text).unwrap();
        counters::Plan::new(counters.clone()).unwrap();
        counters.iter().map(|c| format!("{}{}", c.name, c.group)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(groups("none"), "");
    assert_eq!(groups("cs,faults,dummy"), "cs0 faults0 dummy0");
    assert_eq!(groups("{cs},{faults,dummy}"), "cs0 faults1 dummy1");
    assert_eq!(groups("cs,{faults},dummy"), "cs0 dummy0 faults1");
    assert_eq!(groups("sim/a,readings=1/,cs,sim/b,readings=2/"), "a0 b0 cs1");
    assert_eq!(groups("cs:D,faults,dummy:D"), "cs:D0 faults1 dummy:D2");
    assert_eq!(groups("{cs,faults}:D"), "cs:D0 faults0");
}

#[test]
fn simulated_counters() {
    let script = |text: &str| match bare().resolve(text).unwrap().remove(0) {
        Counter { name, unit, source: Source::Sim(script), .. } => (name, unit, script.readings),
        other => panic!("{other:?}"),
    };
    let add = |add| SimReading { add, enabled: 1000, running: 1000, fails: false };
    let (name, unit, readings) = script("sim/calls,readings=5:0:7x3/");
    assert_eq!((name.as_str(), unit), ("calls", Unit::Count));
    assert_eq!(readings, [add(5), add(0), add(7), add(7), add(7)]);
    let (_, unit, readings) = script("sim/t,readings=0:9@400:@0:!:8!x2:0x2,unit=ns,enabled=500/");
    assert_eq!(unit, Unit::Nanoseconds);
    let step = |add, running, fails| SimReading { add, enabled: 500, running, fails };
    let expected = [
        step(0, 500, false),
        step(9, 400, false),
        step(0, 0, false),
        step(0, 500, true),
        step(8, 500, true),
        step(8, 500, true),
        step(0, 500, false),
        step(0, 500, false),
    ];
    assert_eq!(readings, expected);
}

#[test]
fn breakpoints() {
    let of = |text: &str| attr(&bare().resolve(text).unwrap()[0]);
    let fields = |a: PerfAttr| (a.kind, a.config1, a.config2, a.bp_type, a.exclude_kernel);
    assert_eq!(fields(of("mem:0x401000/8:w:u")), (5, 0x401000, 8, 2, true));
    assert_eq!(fields(of("mem:4096")), (5, 4096, 4, 3, false));
    assert_eq!(fields(of("mem:0x401000:x")), (5, 0x401000, 8, 4, false));
    assert_eq!(fields(of("MEM:0x10/1:u")), (5, 0x10, 1, 3, true));
}

/// Each row has the typed text, the byte at which the error is, the message, and the cause (`Debug`
/// of [`names::NameCause`]).
#[test]
fn errors_say_what_where_and_what_instead() {
    #[rustfmt::skip]
    let golden: &[(&str, usize, &str, &str)] = &[
        ("", 0, "expected a counter name, found the end", ""),
        ("a,,b", 2, "expected a counter name, found ','", ""),
        ("cs,", 3, "expected a counter name, found the end", ""),
        ("{cs", 3, "expected \",\" or \"}\", found the end", ""),
        ("cs}", 2, "expected \",\" between counters, found '}'", ""),
        ("cs faults", 3, "expected \",\" between counters, found 'f'", ""),
        ("{}", 1, "expected a counter name, found '}'", ""),
        ("cs:", 3, "expected modifiers or a tracepoint's name, found the end", ""),
        ("cs,page-fualts:u", 3, "unknown counter \"page-fualts\"", "Near([\"page-faults\"])"),
        ("cycels", 0, "unknown counter \"cycels\"", "Near([\"cycles\"])"),
        ("qqqqq", 0, "unknown counter \"qqqqq\"", ""),
        ("L1-icache-stores", 0, "unknown counter \"L1-icache-stores\"", "Near([\"L1-dcache-stores\", \"L1-icache-loads\", \"L1-dcache-loads\"])"),
        ("faults:ux", 8, "unknown modifier 'x'", ""),
        ("{cs}:q", 5, "unknown modifier 'q'", ""),
        ("cs:uS", 4, "modifier 'S' means nothing when counting: reading a group at each sample matters to sampling only", ""),
        ("cycles:up", 8, "modifier 'p' means nothing when counting: where a sample lies (precise) matters to sampling only", ""),
        ("cycles:P", 7, "modifier 'P' means nothing when counting: where a sample lies (precise) matters to sampling only", ""),
        ("{cycles}:W", 9, "modifier 'W' means nothing when counting: a group that does not fit is refused and never split", ""),
        ("cycles:b", 7, "modifier 'b' means nothing when counting: the recorder counts threads, not BPF programs", ""),
        ("cycles:R", 7, "modifier 'R' means nothing when counting: a retire latency is measured by sampling", ""),
        ("cycles:X", 7, "modifier 'X' means nothing when counting: counters are never regrouped", ""),
        ("r12345678123456789", 0, "\"r12345678123456789\": a raw counter has at most 16 hexadecimal digits", ""),
        ("cs,faults,cs", 10, "\"cs\" is listed twice", ""),
        ("{cs,sim/a,readings=1/}", 4, "a group cannot have both simulated and real counters", ""),
        ("{cs,faults:D}", 4, "only the first counter of a group can be pinned or exclusive", ""),
        ("sim/a,readings=1/u", 0, "a simulated counter has no modifiers", ""),
        ("sim/a", 5, "expected a second \"/\", found the end", "OpenedAt(3)"),
        ("sim/a/", 0, "\"a\": a simulated counter needs readings=", "ScriptIncomplete"),
        ("sim//", 0, "\"\": a simulated counter begins with its name", "ScriptIncomplete"),
        ("sim/a,readings=1:y/", 6, "\"y\": a reading is ADD[@RUNNING][!][xTIMES], as in 7, 7@400, !, 7x3", ""),
        ("sim/a,readings=1x99999/", 6, "\"1x99999\": a script has at most 65536 readings", ""),
        ("sim/a,readings=1,unit=m/", 17, "\"m\": a unit is count, ns, bytes, cycles, J or other", ""),
        ("sim/a,x=1/", 6, "sim has no event or term \"x\"", "ScriptTerm"),
        ("sim/a,,b/", 6, "expected a term, found ','", ""),
        ("sim/a,readings=/", 15, "expected a value, found '/'", ""),
        ("cpu/event=1/", 0, "this machine has no PMU \"cpu\"", "NoPmus"),
        ("cpu/event=\"1", 12, "expected a second quote, found the end", "OpenedAt(10)"),
        ("cpu/event=\"1\"x/", 13, "expected \",\" or \"/\", found 'x'", ""),
        ("a:b/fltr=1/", 4, "a:b has no event or term \"fltr\"", "OneFilter"),
        ("a:b/filter=x,filter=y/", 13, "a:b has no event or term \"filter\"", "OneFilter"),
        ("uprobe:", 7, "expected a path, found the end", ""),
        ("uprobe:/bin/sh", 14, "expected \":\" and a function or an offset, found the end", ""),
        ("uprobe:/bin/sh:", 15, "expected a function or an offset, found the end", ""),
        ("a:b//", 4, "expected a filter, found '/'", ""),
        ("uprobe:/dev/zero:f", 0, "read /dev/zero: not a file", ""),
        ("uprobe:/bin/sh:0x10+4", 15, "expected a function, found '0'", ""),
        ("uprobe:/bin/sh:+4", 15, "expected a function, found '+'", ""),
        ("uprobe:/bin/sh:f+x", 17, "\"x\": an offset is a number (0x… or decimal)", ""),
        ("uprobe:no-such-program:f", 0, "read no-such-program: no such program in PATH", "NotInPath"),
        ("uprobe:/nonexistent/x:f", 0, "read /nonexistent/x: No such file or directory (os error 2)", ""),
        ("uprobe:/proc/self/status:f", 25, "\"/proc/self/status\": not an ELF program or library", ""),
        ("perf::", 6, "expected a counter name, found the end", ""),
        ("cuda:::", 7, "expected a counter of the component, found the end", ""),
        ("mem:xyz", 4, "\"xyz\": not a number of 64 bits (0x… or decimal)", "AddressExpected"),
        ("mem:0x10/3:w", 0, "\"mem:0x10/3:w\": a breakpoint watches 1, 2, 4 or 8 bytes", ""),
        ("mem:0x10:rx", 0, "\"mem:0x10:rx\": a breakpoint counts executions or accesses, not both", ""),
        ("syscalls:sys_enter_read", 0, "syscalls:sys_enter_read: tracefs is not mounted here", "NoTracefs"),
        ("kprobe:do_exit", 0, "unknown counter \"kprobe:do_exit\"", ""),
        ("kretprobe:do_exit", 0, "unknown counter \"kretprobe:do_exit\"", ""),
        ("syscalls:*", 0, "not supported yet: a pattern of tracepoints (syscalls:*)", "TracepointPattern(\"syscalls:*\")"),
        ("größe", 0, "unknown counter \"größe\"", ""),
    ];
    for &(text, at, message, cause) in golden {
        let error = bare().resolve(text).err().unwrap_or_else(|| panic!("{text:?} is accepted"));
        let found = error.cause.as_ref().map_or_else(String::new, |cause| format!("{cause:?}"));
        let expected = format!("counter list, byte {at}: {message}");
        assert_eq!(
            (error.at, error.to_string(), found.as_str()),
            (at, expected, cause),
            "{text:?}"
        );
    }
}

#[test]
fn a_mark_under_the_place() {
    let text = "größe,cs:y";
    let error = bare().resolve("cs,cs:y").unwrap_err();
    assert_eq!(error.pointed_at("cs,cs:y"), "cs,cs:y\n      ^");
    let error = parse("größe,").unwrap_err();
    assert_eq!(error.pointed_at(text), "größe,cs:y\n      ^");
}

/// In the attributes of libpfm4's names (`p::n:a=…`), quotes have no special meaning. Fuzzing found
/// a text with quotes that was printed wrongly.
#[test]
fn what_is_printed_reads_back() {
    for text in ["%::*:X:=:c", "perf::CYCLES:u=1:k", "p::n:a=\"x\":b=\\", "p::n:a="] {
        assert_eq!(parse(text).unwrap().to_string(), text);
    }
}

#[test]
fn more_than_can_be_recorded() {
    let many: Vec<String> = (0..33).map(|i| format!("r{i:x}")).collect();
    let error = bare().resolve(&many.join(",")).unwrap_err();
    assert!(error.to_string().ends_with("more than 32 counters"), "{error}");
    assert_eq!(bare().resolve(&many[..32].join(",")).unwrap().len(), 32);
}

/// Each name in the catalogue occurs once. Names other than patterns and AMD's can be resolved, and
/// have the unit of their entry.
#[test]
fn the_catalogue_resolves() {
    let resolver = bare();
    let mut seen = std::collections::BTreeSet::new();
    for entry in resolver.catalogue() {
        for name in std::iter::once(&entry.name).chain(&entry.aliases) {
            assert!(seen.insert(name.to_lowercase()), "{name} twice");
            // tests/amd.rs resolves AMD's names.
            if !entry.is_pattern && entry.source != "AMD" {
                let counter = resolver.resolve(name).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert_eq!(counter[0].unit, entry.unit, "{name}");
            }
        }
        assert!(!entry.description.is_empty());
    }
    assert!(seen.len() > 50);
}

#[test]
fn entries_apart() {
    for (text, expected) in [
        ("a,b", vec!["a", "b"]),
        (" a:u , {b,c}:k ,", vec!["a:u", "{b,c}:k"]),
        ("cpu/event=1,umask=2/,x", vec!["cpu/event=1,umask=2/", "x"]),
        ("cpu/event=1,x", vec!["cpu/event=1", "x"]),
        ("{a,b,c", vec!["{a", "b", "c"]),
        (
            "s:n/filter=\"a, b\"/,uprobe:/x/y/z:f,d",
            vec!["s:n/filter=\"a, b\"/", "uprobe:/x/y/z:f", "d"],
        ),
        (",,a}},b", vec!["a}}", "b"]),
        ("", vec![]),
    ] {
        assert_eq!(pieces(text), expected, "{text}");
    }
}

#[test]
fn none_stands_alone() {
    assert_eq!(bare().resolve(" none "), Ok(vec![]));
    for text in ["none,page-faults", "page-faults,none", "{none}"] {
        let error = bare().resolve(text).unwrap_err();
        assert!(error.to_string().contains("cannot be combined"), "{error}");
        assert_eq!(error.at, text.find("none").unwrap());
    }
}

/// A counter that the list repeats under another name is left out. Simulated counters and counters
/// in another group stay.
#[test]
fn one_counter_under_two_names() {
    let resolver = Resolver::new(&Machine::at("/nonexistent"));
    for (list, names, notes) in [
        ("page-faults,faults", vec!["page-faults"], 1),
        ("faults,cs,page-faults,context-switches", vec!["faults", "cs"], 2),
        ("{faults,cs},{page-faults,cs:k}", vec!["faults", "cs", "page-faults", "cs:k"], 0),
        ("page-faults,faults:u", vec!["page-faults", "faults:u"], 0),
        ("sim/a,readings=0:5/,sim/b,readings=0:5/", vec!["a", "b"], 0),
        ("PAPI_L1_DCM,L1-dcache-load-misses", vec!["PAPI_L1_DCM"], 1),
    ] {
        let (counters, said) = resolver.resolve_once(list).unwrap();
        let found: Vec<&str> = counters.iter().map(|c| c.name.as_str()).collect();
        assert_eq!((found, said.len()), (names, notes), "{list}: {said:?}");
        let all = resolver.resolve(list).unwrap();
        assert_eq!(all.len(), counters.len() + notes, "{list}");
    }
    let (_, said) = resolver.resolve_once("page-faults,faults").unwrap();
    assert_eq!(said, ["faults is another name of page-faults; it is counted once, as page-faults"]);
}

#[test]
fn too_many_counters() {
    let list: Vec<String> = (0..33).map(|n| format!("mem:{:#x}/1:w", 4096 + n)).collect();
    let error = Resolver::new(&Machine::at("/nonexistent")).resolve(&list.join(",")).unwrap_err();
    assert_eq!(error.what(), "more than 32 counters");
    assert_eq!(error.cause, Some(NameCause::TooMany));
}

/// The error does not report known modifiers as unknown.
#[test]
fn modifiers_in_two_parts() {
    let error = Resolver::new(&Machine::at("/nonexistent")).resolve("faults:u:k").unwrap_err();
    assert_eq!((error.at, error.what().as_str()), (7, "\"u\": modifiers are written together"));
}
