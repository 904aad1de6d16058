//! Checks which variables are reported for slow calls: on data in which no variable has an effect,
//! on data in which one variable has an effect, and on scripted profiles.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write as _;

use analysis::Key;
use analysis::explain::association::{information, ranks, spearman};
use analysis::explain::findings::{Answer, Silent, stand_out};
use analysis::explain::variable::MOST_CLASSES;
use analysis::explain::{Class, Effect, Values, Variable, What, explain};
use testkit::{CallScript, ProfileScript, Random, python};

struct Draw(Random);

impl Draw {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..20).for_each(|_| _ = random.next());
        Self(random)
    }

    fn uniform(&mut self) -> f64 {
        (self.0.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let (a, b) = (self.uniform().max(1e-300), self.uniform());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }

    /// Makes an autoregressive series of normal values with variance 1.
    fn series(&mut self, calls: usize, phi: f64) -> Vec<f64> {
        let mut last = self.normal();
        let rest = (1.0 - phi * phi).sqrt();
        let next = |_| {
            last = phi * last + rest * self.normal();
            last
        };
        (0..calls).map(next).collect()
    }

    /// Makes a series of random classes. With a probability of 1/`stay`, a call draws a class;
    /// otherwise, it has the class of the call before it.
    fn sticky(&mut self, calls: usize, classes: u32, stay: u64) -> Vec<u32> {
        let mut class = 0;
        let next = |_| {
            if self.0.odd(stay) {
                class = self.0.below(classes.into()) as u32;
            }
            class
        };
        (0..calls).map(next).collect()
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    LogNormal,
    /// A Pareto distribution with a shape of 1.1: its mean exists, but its variance does not.
    HeavyTail,
    /// Only three different values.
    Ties,
    /// An autoregressive series with this coefficient: the durations of successive calls are
    /// similar.
    Alike(f64),
    /// Two speeds: about every 50 calls, one of them is drawn.
    Modes,
    /// Periods of small scatter and periods of large scatter, all with the same median.
    Bursts,
}

const KINDS: [Kind; 7] = [
    Kind::LogNormal,
    Kind::HeavyTail,
    Kind::Ties,
    Kind::Alike(0.5),
    Kind::Alike(0.95),
    Kind::Modes,
    Kind::Bursts,
];

fn durations(draw: &mut Draw, kind: Kind, calls: usize) -> Vec<f64> {
    match kind {
        Kind::LogNormal => (0..calls).map(|_| 1_000.0 * (0.3 * draw.normal()).exp()).collect(),
        Kind::HeavyTail => {
            (0..calls).map(|_| 1_000.0 * draw.uniform().max(1e-12).powf(-1.0 / 1.1)).collect()
        }
        Kind::Ties => (0..calls).map(|_| [100.0, 200.0, 300.0][draw.0.place(3)]).collect(),
        Kind::Alike(phi) => {
            draw.series(calls, phi).iter().map(|x| 1_000.0 * (0.3 * x).exp()).collect()
        }
        Kind::Modes => {
            let modes = draw.sticky(calls, 2, 50);
            modes.iter().map(|m| 1_000.0 * (1.0 + f64::from(*m)) + 50.0 * draw.normal()).collect()
        }
        Kind::Bursts => {
            let wild = draw.sticky(calls, 2, 50);
            let size = |w: &u32| if *w == 1 { 0.5 } else { 0.05 };
            wild.iter().map(|w| 1_000.0 * (size(w) * draw.normal()).exp()).collect()
        }
    }
}

/// Makes variables like those of a recording: first calls, the time, alternating threads, a CPU
/// that stays the same for a while, consecutive workgroups, four counters, and the number of calls
/// on other threads. Counter 0 is rarely above 0, counter 2 drifts, and counter 3 has bursts.
fn variables(draw: &mut Draw, calls: usize) -> Vec<Variable> {
    let ordered =
        |at, values| Variable { what: What::Counter(at), values: Values::Ordered(values) };
    let classes = |what, values| Variable { what, values: Values::Classes(values) };
    let rare = (0..calls).map(|_| if draw.0.odd(40) { 1.0 + draw.uniform().round() } else { 0.0 });
    let rare = rare.collect();
    let faults = (0..calls).map(|_| (draw.uniform() * 4.0).floor()).collect();
    let slow = draw.series(calls, 0.98);
    let bursts = draw.sticky(calls, 2, 80).into_iter().map(f64::from).collect();
    let neighbours = draw.sticky(calls, 4, 10).into_iter().map(f64::from).collect();
    vec![
        Variable {
            what: What::First,
            values: Values::First((0..calls).map(|at| at < 4).collect()),
        },
        Variable { what: What::Time, values: Values::Time },
        classes(What::Thread, (0..calls).map(|at| at as u32 % 4).collect()),
        classes(What::Cpu, draw.sticky(calls, 4, 30)),
        classes(What::Workgroup, (0..calls).map(|at| at as u32 % MOST_CLASSES as u32).collect()),
        ordered(0, rare),
        ordered(1, faults),
        ordered(2, slow),
        ordered(3, bursts),
        Variable { what: What::OtherThreads, values: Values::Ordered(neighbours) },
    ]
}

fn leads(answer: &Answer) -> Vec<What> {
    answer.findings.iter().map(|finding| finding.what).collect()
}

#[test]
fn silent_where_nothing_goes_with_anything() {
    let runs: u64 = std::env::var("COUNTERPOINT_RUNS").map_or(100, |n| n.parse().unwrap());
    for kind in KINDS {
        let (mut silent, mut asked) = (0, 0);
        for run in 0..runs {
            let mut draw = Draw::new(1_000 + run);
            let calls = [800, 2_400, 7_200][run as usize % 3];
            let durations = durations(&mut draw, kind, calls);
            let variables = variables(&mut draw, calls);
            let answer = stand_out(&durations, &variables, 1);
            if !answer.findings.is_empty() {
                println!("{kind:?}, {calls} calls: {:?}", leads(&answer));
            }
            silent += u64::from(answer.findings.is_empty());
            asked += u64::from(answer.silent.is_none());
        }
        println!("{kind:?}: {silent} of {runs} silent, {asked} asked");
        assert!(silent * 100 >= runs * 95, "{kind:?}: only {silent} of {runs} are silent");
        // If the durations of successive calls are very similar, no variable is analysed
        // ([`Silent::Alike`]). So the test proves little unless the variables were analysed in at
        // least a quarter of the runs.
        assert!(asked * 4 >= runs, "{kind:?}: only {asked} of {runs} were asked");
    }
}

/// Multiplies the duration of each call by a factor that depends on the variable `what`, and adds a
/// random number below 1.
fn plant(what: What, variables: &mut [Variable], durations: &mut [f64], draw: &mut Draw) {
    let calls = durations.len();
    let variable = variables.iter_mut().find(|one| one.what == what).unwrap();
    for (at, duration) in durations.iter_mut().enumerate() {
        *duration *= match &variable.values {
            Values::First(first) => 1.0 + 9.0 * f64::from(u8::from(first[at])),
            Values::Time => 1.0 + 0.8 * at as f64 / calls as f64,
            Values::Classes(classes) => 1.0 + f64::from(u8::from(classes[at] == 3)),
            Values::Ordered(values) => 1.0 + 0.5 * values[at].max(0.0),
        };
        *duration += draw.uniform();
    }
}

#[test]
fn what_was_planted_is_found() {
    let planted = [
        What::First,
        What::Time,
        What::Thread,
        What::Cpu,
        What::Workgroup,
        What::Counter(0),
        What::Counter(1),
        What::Counter(2),
        What::OtherThreads,
    ];
    for kind in [Kind::LogNormal, Kind::Alike(0.5), Kind::HeavyTail] {
        let mut not_planted = 0;
        for what in planted {
            let (mut found, mut others) = (0, 0);
            for run in 0..20 {
                let mut draw = Draw::new(run);
                let calls = 3_000;
                let mut durations = durations(&mut draw, kind, calls);
                let mut variables = variables(&mut draw, calls);
                plant(what, &mut variables, &mut durations, &mut draw);
                let leads = leads(&stand_out(&durations, &variables, 1));
                found += usize::from(leads.contains(&what));
                if leads != [what] {
                    println!("{kind:?}, {what:?}, run {run}: {leads:?}");
                }
                others += leads.iter().filter(|lead| **lead != what).count();
            }
            println!("{kind:?}, {what:?}: found in {found} of 20, {others} others");
            // The noise of a heavy tail may hide effects on few calls (first calls, one of 64
            // workgroups, a rare counter) and a slow increase over the run.
            let is_hidden = matches!(kind, Kind::HeavyTail)
                && matches!(what, What::First | What::Workgroup | What::Counter(0) | What::Time);
            assert!(found >= 19 || is_hidden, "{kind:?}, {what:?}: {found} of 20");
            not_planted += others;
        }
        let asked = 20 * planted.len();
        assert!(not_planted * 20 <= asked, "{kind:?}: {not_planted} of {asked} were not planted");
    }
}

/// Successive durations of a random walk are too similar to distinguish any finding from chance. If
/// all calls take about the same time, none is slow. Forty calls are too few.
#[test]
fn says_why_it_asked_nothing() {
    let mut draw = Draw::new(7);
    let variables = variables(&mut draw, 2_000);
    let mut sum = 0.0;
    let walk = draw.series(2_000, 0.0).into_iter().map(|step| {
        sum += step;
        (sum / 10.0f64).exp()
    });
    let walk: Vec<f64> = walk.collect();
    assert_eq!(stand_out(&walk, &variables, 1).silent, Some(Silent::Alike));
    assert_eq!(stand_out(&[5.0; 2_000], &variables, 1).silent, Some(Silent::Even));
    let slightly: Vec<f64> = (0..2_000).map(|at| 1_000.0 + f64::from(at % 7)).collect();
    assert_eq!(stand_out(&slightly, &variables, 1).silent, Some(Silent::Even));
    assert_eq!(stand_out(&walk[..40], &variables, 1).silent, Some(Silent::TooFew));
}

/// Two threads run on different CPUs. Calls of thread 1 take about twice as long as those of thread
/// 0, and have 8 page faults instead of 2. One call in 50 of both threads has 5 page faults.
#[test]
fn of_a_profile() {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    let process = script.process(100);
    process.library("mlp", &["matmul", "softmax"]);
    let mut draw = Draw::new(3);
    for thread in 0..2u32 {
        let calls = process.thread(["main", "worker"][thread as usize]);
        for call in 0..1_000u64 {
            let duration = (1 + u64::from(thread)) * (100 + draw.0.below(30));
            let faults = if call % 50 == 0 { 5 } else { 2 + 6 * u64::from(thread) };
            let call = CallScript::new(0, 1_000 + call * 1_000, duration).on(4 + thread, 0);
            calls.call(call.group(duration, &[faults]));
        }
        // `softmax` runs once on each thread, after all calls of `matmul`. So none of its calls is
        // at the same time as a call of `matmul`.
        calls.call(CallScript::new(1, 2_000_000, 50).on(4 + thread, 0).group(50, &[0]));
    }
    let (_scratch, profile) = script.opened();
    let found = explain(&profile, &[vec![Key::Op(0)], vec![Key::Op(1)]], true, 2);
    let [matmul, softmax] = found.as_slice() else { panic!("two were asked for") };
    assert_eq!((matmul.calls, matmul.used), (2_000, 2_000));
    assert_eq!((softmax.calls, softmax.answer.silent), (2, Some(Silent::TooFew)));
    let [finding] = matmul.answer.findings.as_slice() else { panic!("{:?}", matmul.answer) };
    let mut same: Vec<What> = finding.same.iter().map(|(what, _)| *what).collect();
    same.push(finding.what);
    same.sort();
    assert_eq!(same, [What::Thread, What::Cpu, What::Counter(0)]);
    let effects =
        finding.same.iter().map(|(w, e)| (*w, *e)).chain([(finding.what, finding.effect)]);
    for (what, effect) in effects {
        match (what, effect) {
            (What::Counter(0), Effect::Ordered { slow, others, .. }) => {
                assert_eq!((slow.median, others.median), (8.0, 2.0));
            }
            (What::Thread, Effect::Class { class, share, of_slow, .. }) => {
                let of = matmul.class(what, class).unwrap();
                // The mean ranks of threads 0 and 1 are equally far from the middle, so the
                // reported class may be either thread.
                assert!(matches!(of, Class::Thread(0, 0 | 1)), "{of:?}");
                let expected = if of == Class::Thread(0, 1) { 1.0 } else { 0.0 };
                assert_eq!((share, of_slow), (0.5, expected));
            }
            (What::Cpu, Effect::Class { class, .. }) => {
                assert!(matches!(matmul.class(what, class), Some(Class::Cpu(4 | 5))));
            }
            other => panic!("{other:?}"),
        }
    }
    let again = explain(&profile, &[vec![Key::Op(0)]], true, 1);
    assert_eq!(format!("{:?}", again[0].answer), format!("{:?}", matmul.answer));
}

/// About nine of ten calls take 1,000 to 1,029 ns and are on the CPU all the time. The others are
/// also off the CPU for 8,000 ns, and about half of these are on the CPU for 500 ns longer.
#[test]
fn time_off_a_cpu_comes_first() {
    let mut script = ProfileScript::monotonic();
    let _ = script.counter("task-clock", 0);
    let process = script.process(100);
    process.library("mlp", &["matmul"]);
    let mut draw = Draw::new(5);
    let calls = process.thread("main");
    for call in 0..2_000u64 {
        let is_slow = draw.0.odd(10);
        let on = 1_000 + draw.0.below(30) + if is_slow && draw.0.odd(2) { 500 } else { 0 };
        let duration = on + if is_slow { 8_000 } else { 0 };
        let call = CallScript::new(0, 1_000 + call * 20_000, duration).on(4, 0);
        calls.call(call.group(duration, &[on]));
    }
    let (_scratch, profile) = script.opened();
    let found = explain(&profile, &[vec![Key::Op(0)]], true, 1);
    assert!(found[0].asked.contains(&What::OffCpu));
    let first = &found[0].answer.findings[0];
    let Effect::OffCpu { slow, others, means, share, of_excess, .. } = first.effect else {
        panic!("{:?}", found[0].answer)
    };
    assert_eq!((first.what, slow.median, others.median), (What::OffCpu, 8_000.0, 0.0));
    // The slow calls take 9,000 to 9,529 ns. For 8,000 ns of this, they are off the CPU.
    assert!(share > 0.83 && share < 0.89, "{share}");
    assert!(means[0] >= 9_000.0 && means[0] < 9_530.0 && means[1] < 3_000.0, "{means:?}");
    assert!((share * means[0] - slow.mean).abs() < 1e-6);
    // The effect must be computed from the same slowest calls as `answer.slow`.
    assert_eq!(found[0].answer.slow.mean, means[0]);
    assert!(of_excess > 0.9 && of_excess <= 1.0, "{of_excess}");
}

const PROGRAM: &str = include_str!("explain_oracle.py");

#[test]
fn agrees_with_scipy() {
    let Some(python) = python::with("explain", "numpy, scipy.stats") else { return };
    let mut draw = Draw::new(11);
    let mut cases = Vec::new();
    for case in 0..60u64 {
        let (calls, kinds) = (2 + draw.0.below(200), 1 + draw.0.below(9));
        let a: Vec<f64> = (0..calls).map(|_| draw.0.below(kinds) as f64).collect();
        let follow = |x: &f64| if draw.0.odd(1 + case % 4) { *x } else { draw.0.below(5) as f64 };
        let b: Vec<f64> = a.iter().map(follow).collect();
        cases.push((a, b));
    }
    let mut input = String::new();
    for (a, b) in &cases {
        let text = |of: &[f64]| of.iter().map(f64::to_string).collect::<Vec<_>>().join(" ");
        writeln!(input, "{};{}", text(a), text(b)).unwrap();
    }
    let output = python::run(&python, PROGRAM, &input);
    assert_eq!(output.lines().count(), cases.len());
    for (number, ((a, b), line)) in cases.iter().zip(output.lines()).enumerate() {
        let expected: Vec<f64> = line.split(' ').map(|v| v.parse().unwrap()).collect();
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9;
        assert!(close(spearman(a, b), expected[0]), "case {number}: {} {line}", spearman(a, b));
        let classes = |of: &[f64]| of.iter().map(|v| *v as u32).collect::<Vec<u32>>();
        let found = information(&classes(a), &classes(b));
        assert!(close(found.nats, expected[1]), "case {number}: {found:?} {line}");
        assert_eq!(ranks(a), expected[2..], "case {number}");
    }
}
