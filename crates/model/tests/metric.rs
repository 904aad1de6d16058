//! Tests the syntax, names, groups, units and values of metrics. The values of random metrics are
//! compared with values that are computed without the parser.

use model::Unit;
use model::metric::{
    BUILTINS, Bound, Metric, MetricCause, Operand, TOP_DOWN, named_builtin, offered,
};

fn operand(name: &str, unit: Unit, group: u16) -> Operand<'_> {
    Operand { name, unit, scale: 1.0, group }
}

fn counts<'n>(names: &[&'n str]) -> Vec<Operand<'n>> {
    names.iter().map(|name| operand(name, Unit::Count, 0)).collect()
}

fn run() -> Vec<Operand<'static>> {
    vec![
        operand("cycles", Unit::Cycles, 0),
        operand("instructions", Unit::Count, 0),
        operand("cache-misses", Unit::Count, 0),
        operand("task-clock", Unit::Nanoseconds, 0),
        operand("read", Unit::Bytes, 0),
        operand("msr/tsc/", Unit::Count, 0),
        operand("page-faults:u", Unit::Count, 1),
        operand("page-faults:k", Unit::Count, 1),
        operand("cpu-migrations:u", Unit::Count, 1),
        Operand { scale: 0.25, ..operand("energy", Unit::Count, 2) },
    ]
}

fn bound(text: &str) -> Bound {
    let metric = Metric::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    metric.bind(&run()).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Returns the value of an expression whose counters are 1, 2, 3, … and whose duration is 10 ns.
fn value(text: &str) -> Option<f64> {
    let bound = bound(&format!("x = {text}"));
    let values: Vec<f64> = (1..=bound.counters.len()).map(|v| v as f64).collect();
    bound.value(10.0, &values)
}

#[test]
fn values_and_units() {
    // The counters have the values 1, 2, … in the order of the recording's list, and not in that of
    // the expression: in `instructions / cycles`, `cycles` is 1.
    #[rustfmt::skip]
    let golden = [
        ("instructions / cycles", Some(2.0), "ratio"),
        ("instructions/cycles", Some(2.0), "ratio"),
        ("cycles / duration", Some(1e8), "Hz"),
        ("cycles / duration in GHz", Some(0.1), "GHz"),
        ("instructions / duration", Some(1e8), "/s"),
        ("instructions / duration in /ms", Some(1e5), "/ms"),
        ("read / duration", Some(1e8), "bytes/s"),
        ("read / duration in GB/s", Some(0.1), "GB/s"),
        ("read / duration in KiB/s", Some(97_656.25), "KiB/s"),
        ("cache-misses * 64B / duration in MB/s", Some(6_400.0), "MB/s"),
        ("task-clock / duration in %", Some(10.0), "%"),
        ("task-clock", Some(1.0), "ns"),
        ("duration - task-clock in ns", Some(9.0), "ns"),
        ("duration * 1s", Some(1e-8), "s^2"),
        ("duration in us", Some(0.01), "us"),
        ("read in bytes", Some(1.0), "bytes"),
        ("cycles", Some(1.0), "cycles"),
        ("calls", Some(1.0), "count"),
        ("calls / duration in G/s", Some(0.1), "G/s"),
        ("instructions / duration in M/s", Some(100.0), "M/s"),
        ("2e6 * calls / duration in T/s", Some(200.0), "T/s"),
        ("cycles + 1", Some(2.0), "cycles"),
        ("cycles + instructions", Some(3.0), "ratio"),
        ("instructions + cache-misses", Some(3.0), "count"),
        ("1000 * cache-misses / instructions", Some(2_000.0), "ratio"),
        ("1 - instructions / (4 * cycles)", Some(0.5), "ratio"),
        // Minus signs and dashes.
        ("cycles - 3", Some(-2.0), "cycles"),
        ("cycles -3", Some(-2.0), "cycles"),
        ("cycles- 3", Some(-2.0), "cycles"),
        ("-cycles", Some(-1.0), "cycles"),
        ("--cycles", Some(1.0), "cycles"),
        ("2 - -cycles", Some(3.0), "cycles"),
        // Precedence.
        ("cycles - 3 - 4", Some(-6.0), "cycles"),
        ("12 / instructions / 3 * 2", Some(8.0), "ratio"),
        ("1 + 2 * cycles", Some(3.0), "cycles"),
        ("(1 + 2) * instructions", Some(3.0), "count"),
        ("min(cycles, 7, 0.5) + max(cycles)", Some(1.5), "cycles"),
        ("max(task-clock, 5ns)", Some(5.0), "ns"),
        // Numbers.
        ("cycles * 1.5e3", Some(1_500.0), "cycles"),
        ("cycles * 2Ki", Some(2_048.0), "cycles"),
        ("cycles * .5M", Some(500_000.0), "cycles"),
        ("cycles * 50%", Some(0.5), "cycles"),
        ("read + 1KiB", Some(1_025.0), "bytes"),
        ("duration + 1ms + 1µs", Some(1_001_010.0), "ns"),
        // Names.
        ("CPU-CYCLES", Some(1.0), "cycles"),
        ("perf::CYCLES", Some(1.0), "cycles"),
        ("PAPI_TOT_INS", Some(1.0), "count"),
        ("\"msr/tsc/\" / 2", Some(0.5), "count"),
        ("'msr/tsc/'/2", Some(0.5), "count"),
        ("page-faults:u / page-faults:k", Some(0.5), "ratio"),
        ("migrations", Some(1.0), "count"),
        // A raw value of 1 for `energy` stands for a quarter of its unit.
        ("energy * 2", Some(0.5), "count"),
        // No value.
        ("cycles / 0", None, "cycles"),
        ("0 / (cycles - cycles)", None, "ratio"),
        ("cycles / (instructions - 2)", None, "ratio"),
        ("max(1, cycles / 0)", None, "cycles"),
        ("0 * (cycles / 0)", None, "cycles"),
        ("cycles * 1e300 * 1e300", None, "cycles"),
        ("cycles * 1e300 * 1e300 * 0", None, "cycles"),
    ];
    for (text, expected, unit) in golden {
        assert_eq!(value(text), expected, "{text}");
        assert_eq!(bound(&format!("x={text}")).unit.name, unit, "{text}");
    }
    // A result of 0 must not be −0.
    assert_eq!(value("-(cycles - 1)").map(f64::is_sign_negative), Some(false));
}

#[test]
fn errors_name_the_problem_and_its_place() {
    #[rustfmt::skip]
    let golden = [
        ("", "byte 0: expected NAME=EXPRESSION, found the end", ""),
        ("ipc", "byte 3: expected NAME=EXPRESSION, found the end", ""),
        ("= cycles", "byte 0: \"\" cannot name a metric: use letters, digits, \"_\", \"-\" and \".\", starting with a letter", ""),
        ("a b = cycles", "byte 0: \"a b\" cannot name a metric: use letters, digits, \"_\", \"-\" and \".\", starting with a letter", ""),
        ("x=", "byte 2: expected a number, a counter or \"(\", found the end", ""),
        ("x=cycles +", "byte 10: expected a number, a counter or \"(\", found the end", ""),
        ("x=cycles + *", "byte 11: expected a number, a counter or \"(\", found '*'", ""),
        ("x=(cycles", "byte 9: expected an operator or \")\", found the end", ""),
        ("x=cycles)", "byte 8: expected an operator or the end, found ')'", ""),
        ("x=cycles instructions", "byte 9: expected an operator or the end, found 'i'", "UnquotedName"),
        ("x=\"cycles", "byte 9: expected a closing quote, found the end", ""),
        ("x=\"\"", "byte 3: expected a counter, found '\"'", ""),
        ("x=1.2.3", "byte 5: expected an operator or the end, found '.'", ""),
        ("x=.", "byte 2: \".\" is not a number", ""),
        ("x=1e400*cycles", "byte 2: \"1e400\" is not a number", ""),
        ("x=1e308TB*cycles", "byte 2: \"1e308TB\" is not a number", ""),
        ("x=5parsec*cycles", "byte 3: unknown unit \"parsec\"", "Units(\"%, ratio, count, cycles, and with a prefix (n u m k M G T, Ki Mi Gi Ti) s, B, Hz, J, W; also one per another: GB/s, G/s, /s\")"),
        ("x=avg(cycles)", "byte 2: unknown function \"avg\"", ""),
        ("x=min(cycles", "byte 12: expected an operator, \",\" or \")\", found the end", ""),
        ("x=min()", "byte 6: expected a number, a counter or \"(\", found ')'", ""),
        ("x=2+2", "byte 2: the expression has neither a counter nor the duration", ""),
        ("x=cycles in", "byte 11: expected a unit, found the end", "Units(\"%, ratio, count, cycles, and with a prefix (n u m k M G T, Ki Mi Gi Ti) s, B, Hz, J, W; also one per another: GB/s, G/s, /s\")"),
        ("x=cycles in furlongs", "byte 12: unknown unit \"furlongs\"", "Units(\"%, ratio, count, cycles, and with a prefix (n u m k M G T, Ki Mi Gi Ti) s, B, Hz, J, W; also one per another: GB/s, G/s, /s\")"),
        ("x=cycles in GB/s", "byte 2: its value is in cycles, not in GB/s", ""),
        ("x=cycels / 2", "byte 2: \"cycels\" is not counted in this recording", "Near([\"cycles\"])"),
        ("x=branch-misses/2", "byte 2: \"branch-misses\" is not counted in this recording", "Near([\"cache-misses\"])"),
        ("x=nothing-like-it", "byte 2: \"nothing-like-it\" is not counted in this recording", "Counters([\"cycles\", \"instructions\", \"cache-misses\", \"task-clock\", \"read\", \"msr/tsc/\", \"page-faults:u\", \"page-faults:k\", \"cpu-migrations:u\", \"energy\"])"),
        ("x=cycles-instructions", "byte 2: \"cycles-instructions\" is not counted in this recording", "Minus { left: \"cycles\", right: \"instructions\" }"),
        ("x=cache-misses-3", "byte 2: \"cache-misses-3\" is not counted in this recording", "Minus { left: \"cache-misses\", right: \"3\" }"),
        ("x=cycles:k", "byte 2: \"cycles:k\" is not counted in this recording", "Near([\"cycles\"])"),
        ("x=page-faults", "byte 2: \"page-faults\" can be page-faults:u or page-faults:k", ""),
        ("x = cycles / page-faults:u", "byte 13: cycles and page-faults:u are not in one group, so they were not read together", "OneGroup([\"cycles\", \"page-faults:u\"])"),
        ("x=cpu-migrations/page-faults:k", "byte 17: cpu-migrations:u and page-faults:k count in different modes", ""),
        ("x=cycles + task-clock", "byte 9: cycles and ns cannot be combined", ""),
        ("x=task-clock + 5", "byte 13: ns and ratio cannot be combined", "PlainNumber"),
        ("x=max(read, duration)", "byte 2: bytes and ns cannot be combined", ""),
    ];
    for (text, message, cause) in golden {
        let error = match Metric::parse(text) {
            Err(error) => error,
            Ok(metric) => match metric.bind(&run()) {
                Err(error) => error,
                Ok(bound) => panic!("{text}: {bound:?}"),
            },
        };
        let found = error.cause.as_ref().map_or_else(String::new, |cause| format!("{cause:?}"));
        assert_eq!((error.to_string().as_str(), found.as_str()), (message, cause), "{text}");
    }
    let long = format!("x={}cycles", "1+".repeat(600));
    let error = Metric::parse(&long).unwrap_err().to_string();
    assert_eq!(error, "byte 2: the expression has 1206 bytes, but at most 1024 are allowed");
    assert!(Metric::parse("x=1").unwrap_err().to_string().contains("neither"));
    let nothing = Metric::parse("x=cycles").unwrap().bind(&[]).unwrap_err();
    assert_eq!(nothing.cause, Some(MetricCause::Counters(vec![])));
}

/// The deepest expression that is accepted does not overflow the default stack of a thread.
#[test]
fn depth() {
    let deep = [
        format!("x={}cycles{}", "(".repeat(63), ")".repeat(63)),
        format!("x={}cycles", "-".repeat(63)),
        format!("x=cycles{}", "+1".repeat(500)),
        format!("x={}cycles{}", "min(".repeat(63), ")".repeat(63)),
    ];
    for (sign, end) in [("(", ")"), ("-", ""), ("max(", ")")] {
        let text = format!("x={}cycles{}", sign.repeat(64), end.repeat(64));
        let error = Metric::parse(&text).unwrap_err();
        assert_eq!(error.at, 2 + 64 * sign.len());
        assert!(error.to_string().contains("more than 64"), "{error}");
    }
    let test = move || {
        for text in deep {
            let metric = Metric::parse(&text).unwrap();
            let bound = metric.bind(&run()).unwrap();
            assert!(bound.value(1.0, &[7.0]).is_some());
        }
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(test).unwrap().join().unwrap();
}

/// A random number generator with Knuth's MMIX multiplier.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

const NAMES: [&str; 4] = ["a", "b-c", "d:u", "e/f=1/"];

/// Returns a random expression, and its value, computed at the same time. The levels follow the
/// grammar: 0 is a sum, 1 a product, 2 a factor.
fn random(r: &mut Random, depth: u64, level: u64, values: &[f64]) -> (String, Option<f64>) {
    let space = |r: &mut Random| " ".repeat(r.below(3) as usize);
    let finite = |v: f64| Some(v).filter(|v| v.is_finite());
    match (level, r.below(6)) {
        (0 | 1, 0..=2) if depth > 0 => {
            let (a, x) = random(r, depth - 1, level, values);
            let (b, y) = random(r, depth - 1, level + 1, values);
            let plus = r.below(2) == 0;
            let sign = match (level, plus) {
                (0, true) => "+",
                (0, false) => "-",
                (_, true) => "*",
                (_, false) => "/",
            };
            let value = x.zip(y).and_then(|(x, y)| {
                finite(match (level, plus) {
                    (0, true) => x + y,
                    (0, false) => x - y,
                    (_, true) => x * y,
                    (_, false) => x / y,
                })
            });
            // A space comes before the sign, because a dash between two letters would become part
            // of a name.
            (format!("{a} {sign}{}{b}", space(r)), value)
        }
        (0 | 1, _) => random(r, depth, level + 1, values),
        (_, 0) if depth > 0 => {
            let (a, x) = random(r, depth - 1, 0, values);
            (format!("({}{a}{})", space(r), space(r)), x)
        }
        (_, 1) if depth > 0 => {
            let (a, x) = random(r, depth - 1, 2, values);
            (format!("-{}{a}", space(r)), x.map(|x| -x))
        }
        (_, 2) if depth > 0 => {
            let (a, x) = random(r, depth - 1, 0, values);
            let (b, y) = random(r, depth - 1, 0, values);
            let max = r.below(2) == 0;
            let value = x.zip(y).map(|(x, y)| if (x > y) == max { x } else { y });
            (format!("{}({a},{}{b})", if max { "max" } else { "min" }, space(r)), value)
        }
        (_, 3) => {
            let n = r.below(2_000);
            (format!("{}", n as f64 / 8.0), Some(n as f64 / 8.0))
        }
        _ => {
            let i = r.below(4) as usize;
            let quoted = i == 3 || r.below(4) == 0;
            let name = if quoted { format!("\"{}\"", NAMES[i]) } else { NAMES[i].to_owned() };
            (name, Some(values[i]))
        }
    }
}

#[test]
fn random_expressions() {
    let operands = counts(&NAMES);
    let mut r = Random(7);
    let (mut defined, mut undefined) = (0, 0);
    for round in 0..20_000 {
        let values: Vec<f64> = (0..4).map(|_| r.below(5) as f64 * 3.0).collect();
        let depth = r.below(6);
        let (text, expected) = random(&mut r, depth, 0, &values);
        let Ok(metric) = Metric::of("x", &text) else {
            // An expression may be refused only if it names no counter. (The `a` in `max` names
            // none.)
            assert!(!text.contains(['a', 'b', 'd', 'e']) || text.contains("max"), "{text}");
            continue;
        };
        let bound = metric.bind(&operands).unwrap();
        let of: Vec<f64> = bound.counters.iter().map(|i| values[*i]).collect();
        let value = bound.value(1.0, &of);
        assert_eq!(value, expected, "round {round}: {text} of {values:?}");
        // The metric's printed form must have the same value as the metric.
        let again = Metric::parse(&metric.to_string()).unwrap();
        assert_eq!(again.bind(&operands).unwrap().value(1.0, &of), expected, "{metric}");
        match value {
            Some(_) => defined += 1,
            None => undefined += 1,
        }
    }
    assert!(defined > 5_000 && undefined > 100, "{defined} {undefined}");
}

/// Random texts do not make the parser panic, and the printed form of an accepted text is accepted.
#[test]
fn random_text() {
    let pieces = [
        "a", "in", " ", "-", "+", "/", "*", "(", ")", "\"", "'", "min(", ",", "1", ".", "e9", "Ki",
        "GB/s", "duration", "=", ":", "µ", "é", "%", "x=", "{", "0x", "_",
    ];
    let mut r = Random(3);
    let mut accepted = 0;
    for _ in 0..200_000 {
        let text: String =
            (0..r.below(9)).map(|_| pieces[r.below(pieces.len() as u64) as usize]).collect();
        let Ok(metric) = Metric::of("x", &text) else { continue };
        accepted += 1;
        let printed = metric.to_string();
        let again =
            Metric::parse(&printed).unwrap_or_else(|e| panic!("{text:?}: {printed:?}: {e}"));
        assert_eq!(again.to_string(), printed);
    }
    assert!(accepted > 1_000, "{accepted}");
}

fn names_offered(operands: &[Operand<'_>]) -> Vec<(String, Vec<usize>)> {
    offered(operands).into_iter().map(|bound| (bound.name, bound.counters)).collect()
}

#[test]
fn builtins_are_offered_where_they_can_be_formed() {
    let list = |operands: &[Operand<'_>]| -> Vec<String> {
        names_offered(operands).into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(list(&[]), [""; 0]);
    assert_eq!(list(&counts(&["cycles"])), ["frequency"]);
    assert_eq!(list(&counts(&["cycles", "instructions"])), ["ipc", "cpi", "frequency"]);
    assert_eq!(list(&counts(&["cpu-cycles:u", "PAPI_TOT_INS:u"])), ["ipc", "cpi", "frequency"]);
    // In the first list below, the counters are in different groups; in the second, they count in
    // different modes.
    let apart = [operand("cycles", Unit::Cycles, 0), operand("instructions", Unit::Count, 1)];
    assert_eq!(list(&apart), ["frequency"]);
    assert_eq!(list(&counts(&["cycles:u", "instructions:k"])), ["frequency"]);
    let twice = counts(&["cycles:u", "instructions:k", "cycles:k", "instructions:u"]);
    assert_eq!(
        names_offered(&twice),
        [
            ("ipc:u".into(), vec![0, 3]),
            ("ipc:k".into(), vec![1, 2]),
            ("cpi:u".into(), vec![0, 3]),
            ("cpi:k".into(), vec![1, 2]),
            ("frequency:u".into(), vec![0]),
            ("frequency:k".into(), vec![2]),
        ]
    );
    for builtin in BUILTINS {
        let metric = builtin.metric().unwrap_or_else(|| panic!("{}", builtin.name));
        let names = [
            "instructions",
            "stalled-cycles-frontend",
            "stalled-cycles-backend",
            "cache-misses",
            "cache-references",
            "L1-dcache-load-misses",
            "L1-dcache-loads",
            "LLC-load-misses",
            "LLC-loads",
            "dTLB-load-misses",
            "dTLB-loads",
            "branch-misses",
            "branches",
            "faults",
            "cs",
        ];
        let mut all = counts(&names);
        all.push(operand("cycles", Unit::Cycles, 0));
        all.push(operand("task-clock", Unit::Nanoseconds, 0));
        let bound = metric.bind(&all).unwrap_or_else(|e| panic!("{}: {e}", builtin.name));
        assert!(bound.value(1.0, &vec![1.0; bound.counters.len()]).is_some());
        assert!(offered(&all).iter().any(|b| b.name == builtin.name && b.builtin));
    }
}

/// The inputs are counter values as processors would report them. The expected metrics were
/// computed by hand. The inputs were not measured on a processor.
#[test]
fn top_down_metrics_by_vendor() {
    let counts = |names: &[&'static str]| -> Vec<Operand<'static>> {
        names.iter().map(|name| operand(name, Unit::Count, 0)).collect()
    };
    let intel = [
        ("slots", 1_000.0),
        ("topdown-retiring", 500.0),
        ("topdown-bad-spec", 100.0),
        ("topdown-fe-bound", 150.0),
        ("topdown-be-bound", 250.0),
        ("topdown-br-mispredict", 80.0),
        ("topdown-fetch-lat", 120.0),
        ("topdown-mem-bound", 200.0),
    ];
    let values = |all: &[(&'static str, f64)]| -> Vec<(String, f64)> {
        let names: Vec<&'static str> = all.iter().map(|(name, _)| *name).collect();
        let found = offered(&counts(&names))
            .into_iter()
            .filter(|bound| TOP_DOWN.iter().any(|builtin| builtin.name == bound.name));
        found
            .map(|bound| {
                let sums: Vec<f64> = bound.counters.iter().map(|place| all[*place].1).collect();
                (bound.name.clone(), bound.value(1.0, &sums).unwrap())
            })
            .collect()
    };
    let expect = |found: Vec<(String, f64)>, expected: &[(&str, f64)]| {
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for ((name, value), (expected_name, expected)) in found.iter().zip(expected) {
            assert_eq!(name, expected_name);
            assert!((value - expected).abs() < 1e-9, "{name}: {value} {expected}");
        }
    };
    let first = [
        ("retiring", 50.0),
        ("bad-speculation", 10.0),
        ("frontend-bound", 15.0),
        ("backend-bound", 25.0),
    ];
    expect(values(&intel[..5]), &first);
    let second = [
        ("branch-mispredicts", 8.0),
        ("fetch-latency", 12.0),
        ("memory-bound", 20.0),
        ("core-bound", 5.0),
    ];
    expect(values(&intel), &[first, second].concat());
    // The Zen 4 counts are for 100 cycles with six pipeline slots each.
    let zen4 = [
        ("ls_not_halted_cyc", 100.0),
        ("ex_ret_ops", 240.0),
        ("de_src_op_disp.all", 270.0),
        ("de_no_dispatch_per_slot.no_ops_from_frontend", 90.0),
        ("de_no_dispatch_per_slot.backend_stalls", 210.0),
        ("de_no_dispatch_per_slot.smt_contention", 30.0),
    ];
    let parts = [
        ("retiring", 40.0),
        ("bad-speculation", 5.0),
        ("frontend-bound", 15.0),
        ("backend-bound", 35.0),
        ("smt-contention", 5.0),
    ];
    assert_eq!(parts.iter().map(|(_, part)| part).sum::<f64>(), 100.0);
    expect(values(&zen4), &parts);
    let of_zen4 = named_builtin("retiring", &counts(&["ls_not_halted_cyc", "ex_ret_ops"])).unwrap();
    assert!(of_zen4.expression.contains("ls_not_halted_cyc"));
    assert!(named_builtin("retiring", &[]).unwrap().expression.contains("topdown"));
    expect(values(&intel[..4]), &[]);
}

/// There are three calls of 10 ns and 4 cycles each, in two dispatches.
#[test]
fn a_number_beside_a_sum_stands_for_each_call() {
    let cycles = Operand { name: "cycles", unit: Unit::Cycles, scale: 1.0, group: 0 };
    for (expression, expected) in [
        ("64B / duration in GB/s", 6.4),
        ("2e6 * calls / duration in T/s", 200.0),
        ("calls", 3.0),
        ("cycles / dispatches", 6.0),
        ("calls / dispatches", 1.5),
        ("duration - 4ns", 18.0),
        ("cycles + 1", 15.0),
        ("max(duration, 5ns)", 30.0),
        ("min(5ns, duration)", 15.0),
        ("1 - cycles / duration / 1GHz", 0.6),
        ("cycles / (2 * calls)", 2.0),
        ("duration", 30.0),
    ] {
        let bound = Metric::of("x", expression).unwrap().bind(&[cycles]).unwrap();
        let values = vec![12.0; bound.counters.len()];
        let found = bound.value_of(3.0, Some(2.0), 30.0, &values).unwrap();
        assert!((found - expected).abs() < 1e-9, "{expression}: {found}");
    }
    let each = Metric::of("x", "cycles / dispatches").unwrap().bind(&[cycles]).unwrap();
    assert_eq!(each.value_of(3.0, None, 30.0, &[12.0]), None, "it is not known how many there are");
    assert_eq!(each.value(30.0, &[12.0]), None, "of one call");
}
