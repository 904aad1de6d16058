//! The parser and resolver against tables: what is typed, what it must mean (numbers from
//! linux/perf_event.h and perf's own tables), and what must be said when it means nothing.

use counters::machine::Machine;
use counters::names::{Entries, Head, Item, List, Modifiers, Resolver, Term, parse};
use model::{Counter, PerfAttr, SimReading, Source, Unit};

/// A machine without PMUs and tracefs, so that only what is built in has a meaning.
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
    // name, type, config
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
    assert_eq!(of("cycles:upp").precise_ip, 2);
    assert!(of("cycles:I").exclude_idle && of("cycles:D").pinned);
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

/// What is typed, the byte, the message behind the byte, the hint.
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
        ("cs,page-fualts:u", 3, "unknown counter \"page-fualts\"", "did you mean page-faults?"),
        ("cycels", 0, "unknown counter \"cycels\"", "did you mean cycles?"),
        ("qqqqq", 0, "unknown counter \"qqqqq\"", "counterpoint list shows every name"),
        ("L1-icache-stores", 0, "unknown counter \"L1-icache-stores\"", "did you mean L1-dcache-stores, L1-icache-loads, L1-dcache-loads?"),
        ("faults:ux", 8, "unknown modifier 'x'", "u user, k kernel, h hypervisor, G guest, H host, I not idle, p precise, D pinned"),
        ("{cs}:q", 5, "unknown modifier 'q'", "u user, k kernel, h hypervisor, G guest, H host, I not idle, p precise, D pinned"),
        ("cs:uS", 4, "not supported yet: modifier 'S' (of sampling)", ""),
        ("cycles:pppp", 10, "\"pppp\": at most three p", ""),
        ("perf::CYCLES", 0, "not supported yet: PAPI's spelling perf::…", "perf's own names: cycles, instructions, page-faults:u"),
        ("r12345678123456789", 0, "\"r12345678123456789\": a raw counter has at most 16 hexadecimal digits", ""),
        ("cs,faults,cs", 10, "\"cs\" is there twice", ""),
        ("{cs,sim/a,readings=1/}", 4, "a group has simulated counters or real ones, not both", ""),
        ("{cs,faults:D}", 4, "only the first counter of a group can be pinned", ""),
        ("sim/a,readings=1/u", 0, "a simulated counter has no modifiers", ""),
        ("sim/a", 5, "expected a second \"/\", found the end", "the first one is at byte 3"),
        ("sim/a/", 0, "\"a\": a simulated counter needs readings=", "for example sim/NAME,readings=0:5/"),
        ("sim//", 0, "\"\": a simulated counter begins with its name", "for example sim/NAME,readings=0:5/"),
        ("sim/a,readings=1:y/", 6, "\"y\": a reading is ADD[@RUNNING][!][xTIMES], as in 7, 7@400, !, 7x3", ""),
        ("sim/a,readings=1x99999/", 6, "\"1x99999\": a script has at most 65536 readings", ""),
        ("sim/a,readings=1,unit=m/", 17, "\"m\": a unit is count, ns, bytes or cycles", ""),
        ("sim/a,x=1/", 6, "sim has no event or term \"x\"", "readings=, enabled=, unit="),
        ("sim/a,,b/", 6, "expected a term, found ','", ""),
        ("sim/a,readings=/", 15, "expected a value, found '/'", ""),
        ("cpu/event=1/", 0, "this machine has no PMU \"cpu\"", "this machine describes no PMU in sysfs"),
        ("mem:xyz", 4, "\"xyz\": not a number of 64 bits (0x… or decimal)", ""),
        ("mem:0x10/3:w", 0, "\"mem:0x10/3:w\": a breakpoint watches 1, 2, 4 or 8 bytes", ""),
        ("mem:0x10:rx", 0, "\"mem:0x10:rx\": a breakpoint counts executions or accesses, not both", ""),
        ("syscalls:sys_enter_read", 0, "syscalls:sys_enter_read: tracefs is not mounted or not readable here", "sudo mount -t tracefs tracefs /sys/kernel/tracing"),
        ("syscalls:*", 0, "not supported yet: a pattern of tracepoints (syscalls:*)", ""),
        ("größe", 0, "unknown counter \"größe\"", "counterpoint list shows every name"),
    ];
    for &(text, at, message, hint) in golden {
        let error = bare().resolve(text).err().unwrap_or_else(|| panic!("{text:?} is accepted"));
        let got = (error.at, error.to_string(), error.hint.as_deref().unwrap_or(""));
        let expected = format!("counter list, byte {at}: {message}");
        assert_eq!(got, (at, expected, hint), "{text:?}");
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

#[test]
fn more_than_can_be_recorded() {
    let many: Vec<String> = (0..33).map(|i| format!("r{i:x}")).collect();
    let error = bare().resolve(&many.join(",")).unwrap_err();
    assert!(error.to_string().ends_with("more than 32 counters"), "{error}");
    assert_eq!(bare().resolve(&many[..32].join(",")).unwrap().len(), 32);
}

/// Every name of the catalogue means something, itself, and has no namesake.
#[test]
fn the_catalogue_resolves() {
    let resolver = bare();
    let mut seen = std::collections::BTreeSet::new();
    for entry in resolver.catalogue() {
        for name in std::iter::once(&entry.name).chain(&entry.aliases) {
            assert!(seen.insert(name.to_lowercase()), "{name} twice");
            // AMD's names resolve on AMD's processors: tests/amd.rs.
            if !entry.is_pattern && entry.source != "AMD" {
                let counter = resolver.resolve(name).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert_eq!(counter[0].unit, entry.unit, "{name}");
            }
        }
        assert!(!entry.description.is_empty());
    }
    assert!(seen.len() > 50);
}

/// A small generator of random numbers (xorshift64*), so that failures repeat.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }

    fn pick<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[self.below(from.len())]
    }

    fn flip(&mut self) -> bool {
        self.below(2) == 1
    }

    fn modifiers(&mut self) -> Modifiers {
        if self.flip() {
            return Modifiers::default();
        }
        Modifiers {
            user: self.flip(),
            kernel: self.flip(),
            hypervisor: self.flip(),
            guest: self.flip(),
            host: self.flip(),
            not_idle: self.flip(),
            precise: self.below(4) as u8,
            pinned: self.flip(),
        }
    }

    fn head(&mut self) -> Head {
        let words = ["cycles", "L1-dcache-loads", "r01c2", "größe", "a.b_c*", "0"];
        match self.below(4) {
            0 => Head::Word((*self.pick(&words)).into()),
            1 => Head::Tracepoint {
                system: (*self.pick(&words)).into(),
                name: (*self.pick(&["sys_enter_read", "xyz", "1"])).into(),
            },
            2 => {
                let terms = (0..self.below(4)).map(|_| Term {
                    at: 0,
                    name: (*self.pick(&["event", "umask", "NAME"])).into(),
                    value: None,
                });
                let mut terms: Vec<Term> = terms.collect();
                for term in &mut terms {
                    let values = ["0x3c", "1:2@3!x4", "{a b}"];
                    term.value = self.flip().then(|| (*self.pick(&values)).into());
                }
                Head::Pmu { pmu: (*self.pick(&["cpu", "sim", "msr"])).into(), terms }
            }
            _ => Head::Breakpoint {
                address: self.0,
                len: self.flip().then_some(8),
                access: self.flip().then(|| counters::names::Access {
                    read: true,
                    write: self.flip(),
                    execute: self.flip(),
                }),
            },
        }
    }

    fn item(&mut self) -> Item {
        Item { at: 0, head: self.head(), modifiers: self.modifiers() }
    }

    fn list(&mut self) -> List {
        let entries = (0..1 + self.below(4)).map(|_| match self.flip() {
            true => Entries::Single(self.item()),
            false => Entries::Group {
                items: (0..1 + self.below(3)).map(|_| self.item()).collect(),
                modifiers: self.modifiers(),
            },
        });
        List { entries: entries.collect() }
    }
}

/// Without places, which printing moves.
fn placeless(mut list: List) -> List {
    let clear = |item: &mut Item| {
        item.at = 0;
        if let Head::Pmu { terms, .. } = &mut item.head {
            terms.iter_mut().for_each(|t| t.at = 0);
        }
    };
    for entry in &mut list.entries {
        match entry {
            Entries::Single(item) => clear(item),
            Entries::Group { items, .. } => items.iter_mut().for_each(clear),
        }
    }
    list
}

#[test]
fn parsing_undoes_printing() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..20_000 {
        let list = random.list();
        let text = list.to_string();
        let again = parse(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(placeless(again), list, "{text}");
    }
}

/// Whatever is typed: an answer, never a panic, and a place inside the text.
#[test]
fn no_text_panics() {
    let pieces = [
        "cs",
        "cycles",
        ":",
        "u",
        "/",
        ",",
        "{",
        "}",
        "=",
        "mem:",
        "0x",
        "sim/",
        "é",
        " ",
        "r",
        "9",
        "*",
        "@",
        "!",
        "x",
        "readings=",
    ];
    let mut random = Random(42);
    let resolver = bare();
    for _ in 0..20_000 {
        let text: String = (0..random.below(12)).map(|_| *random.pick(&pieces)).collect();
        if let Err(error) = resolver.resolve(&text) {
            assert!(error.at <= text.len(), "{text:?}: {error}");
            error.pointed_at(&text);
        }
    }
}

#[test]
fn none_stands_alone() {
    assert_eq!(bare().resolve(" none "), Ok(vec![]));
    for text in ["none,page-faults", "page-faults,none", "{none}"] {
        let error = bare().resolve(text).unwrap_err();
        assert!(error.to_string().contains("none stands alone"), "{error}");
        assert_eq!(error.at, text.find("none").unwrap());
    }
}
