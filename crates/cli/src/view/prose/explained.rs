//! Describes what slow calls have in common, for `explain` and for the HTML page. No sentence
//! claims a cause.

use analysis::explain::{Answer, Class, Effect, Level, Silent, What};
use analysis::{Explained, Key};
use profile::Profile;

use super::notes::without_shapes;
use crate::view::labels::{labels, op_of, process_label, thread_label};
use crate::view::units::{number, percent, plural, time};

/// Values with a smaller ratio are too similar to be contrasted.
const HARDLY: f64 = 1.05;

/// Returns how the calls' durations are distributed, or why there are no findings.
pub fn head(explained: &Explained) -> String {
    let Answer { slow, silent, .. } = &explained.answer;
    let calls = match explained.used as u64 == explained.calls {
        true => plural(explained.calls.into(), "call"),
        false => {
            let used = plural(explained.used as u128, "call");
            format!("{used}, drawn from {}", number(explained.calls as f64))
        }
    };
    let median = time(slow.of_all);
    match silent {
        None => {
            format!(
                "{calls}, median {median}; {} ({}) have a median of {} and a mean of {}",
                slowest(explained),
                plural(slow.calls as u128, "call"),
                time(slow.median),
                time(slow.mean)
            )
        }
        Some(Silent::TooFew) => {
            format!("{calls}, which are too few to tell what goes with slow ones")
        }
        Some(Silent::Even) => format!("{calls}, which take about as long as each other: {median}"),
        Some(Silent::Alike) => format!(
            "{calls}, median {median}; calls that follow each other take so nearly the same time that what goes with slow calls cannot be told from chance (a longer run may tell)"
        ),
    }
}

/// Returns a sentence for each finding, the strongest first. Then come sentences about variables
/// that do not stand out, or that were not compared. Empty if [`head`] says why there are no
/// findings.
pub fn sentences(profile: &Profile, explained: &Explained) -> Vec<String> {
    let answer = &explained.answer;
    if answer.silent.is_some() {
        return Vec::new();
    }
    let mut all: Vec<String> = Vec::new();
    for finding in &answer.findings {
        let mut text = sentence(profile, explained, finding.what, &finding.effect);
        let same =
            finding.same.iter().map(|(what, effect)| short(profile, explained, *what, effect));
        let same: Vec<String> = same.collect();
        if !same.is_empty() {
            text.push_str(&format!(
                "; in these calls, that cannot be told apart from {}",
                listed(&same)
            ));
        }
        all.push(text);
    }
    let mut named: Vec<What> = answer.findings.iter().map(|finding| finding.what).collect();
    named.extend(answer.findings.iter().flat_map(|finding| &finding.same).map(|(what, _)| *what));
    let rest = explained.asked.iter().filter(|what| !named.contains(what));
    let rest: Vec<String> = rest.map(|what| name(profile, *what)).collect();
    if !rest.is_empty() {
        let nothing = match all.is_empty() {
            true => "nothing stands out; compared",
            false => "nothing else stands out; also compared",
        };
        all.push(format!("{nothing}: {}", listed(&rest)));
    }
    let of_host = op_of(profile, explained.keys[0]).map(|op| profile.ops.host_of(op));
    if without_shapes(profile).is_some() && of_host.is_some_and(|host| host.shapes_if_asked) {
        all.push(
            "shapes of arguments were not compared, because they were not recorded (`run --shapes`)".into(),
        );
    }
    all
}

pub fn name(profile: &Profile, what: What) -> String {
    match what {
        What::First => "first calls".to_owned(),
        What::Time => "time in the run".to_owned(),
        What::Thread => "thread".to_owned(),
        What::Process => "process".to_owned(),
        What::Cpu => "CPU".to_owned(),
        What::Workgroup => "workgroup".to_owned(),
        What::Arguments => "arguments".to_owned(),
        What::Moved => "moves to another CPU".to_owned(),
        What::Counter(at) => {
            profile.manifest.counters.get(at).map_or(String::new(), |counter| counter.name.clone())
        }
        What::OffCpu => "time off a CPU".to_owned(),
        What::OtherThreads => "calls on other threads".to_owned(),
        What::Beside(key) => format!("{} on other threads", label(profile, key)),
    }
}

fn label(profile: &Profile, key: Key) -> String {
    labels(profile, &[key]).concat()
}

/// Returns the name of a class of calls: `thread worker (4712)`.
fn class_name(profile: &Profile, class: Option<Class>) -> String {
    match class {
        Some(Class::Thread(process, thread)) => {
            format!("thread {}", thread_label(profile, process, thread))
        }
        Some(Class::Process(process)) => format!("process {}", process_label(profile, process)),
        Some(Class::Cpu(cpu)) => format!("CPU {cpu}"),
        Some(Class::Workgroups(from, to)) if from == to => format!("workgroup {from}"),
        Some(Class::Workgroups(from, to)) => format!("workgroups {from} to {to}"),
        Some(Class::Arguments(op)) => {
            let arguments = op_of(profile, Key::Op(op)).map_or("", |op| op.arguments.as_str());
            format!("arguments ({arguments})")
        }
        Some(Class::Others) | None => "all others".to_owned(),
    }
}

fn listed(all: &[String]) -> String {
    match all {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

fn slowest(explained: &Explained) -> String {
    format!("the slowest {:.0} %", (100.0 * explained.answer.slow.share).max(1.0))
}

/// Returns the ratio of `a` to `b` as text: `12`, `2.3`, `0.41`.
fn times(a: f64, b: f64) -> String {
    match a / b {
        ratio if ratio >= 9.95 => number(ratio.round()),
        ratio if ratio >= 1.0 => format!("{ratio:.1}"),
        ratio if ratio < 0.1 => number(ratio),
        ratio => format!("{ratio:.2}"),
    }
}

fn differ(a: f64, b: f64) -> bool {
    a > 0.0 && b > 0.0 && (a / b > HARDLY || b / a > HARDLY)
}

fn sentence(profile: &Profile, explained: &Explained, what: What, effect: &Effect) -> String {
    let slow_calls = format!("{} of the calls", slowest(explained));
    match (what, effect) {
        (What::Moved, Effect::Ordered { slow, others, .. }) => format!(
            "{} of {slow_calls} ended on another CPU than the call before them on their thread, against {} of the others",
            percent(slow.mean), percent(others.mean)
        ),
        (What::OtherThreads, Effect::Ordered { slow, others, .. }) => format!(
            "when {slow_calls} began, {} other threads were in calls on average, against {} for the others",
            number(slow.mean), number(others.mean)
        ),
        (What::Beside(key), Effect::Ordered { slow, others, .. }) if differ(slow.some, others.some) || others.some == 0.0 || slow.some == 0.0 => format!(
            "when {slow_calls} began, other threads were in {} in {} of the cases, against {} for the others",
            label(profile, key), percent(slow.some), percent(others.some)
        ),
        (What::Beside(key), Effect::Ordered { slow, others, .. }) => format!(
            "when {slow_calls} began, other threads were in {} calls of {} on average, against {} for the others",
            number(slow.mean), label(profile, key), number(others.mean)
        ),
        (_, Effect::Ordered { slow, others, spearman }) => {
            format!("{slow_calls} have {}", amount(&name(profile, what), slow, others, *spearman))
        }
        (_, Effect::OffCpu { slow, others, means, share, of_others, .. }) => format!(
            "{slow_calls} were off a CPU for {} of their time (on average {} of {}), against {} for the others ({} of {})",
            percent(*share), time(slow.mean), time(means[0]), percent(*of_others), time(others.mean), time(means[1])
        ),
        (_, Effect::Class { class, median, others, share, of_slow, .. })
            if (0.95..1.05).contains(&(median / others)) =>
        {
            format!(
                "calls on {} are {} of the calls, and {} of {}; most of them take as long as the others (median {} against {})",
                class_name(profile, explained.class(what, *class)).trim_start_matches("all "),
                percent(*share), percent(*of_slow), slowest(explained), time(*median), time(*others)
            )
            .replace("calls on arguments", "calls with arguments")
            .replace("calls on workgroup", "calls of workgroup")
        }
        (_, Effect::Class { class, median, others, share, of_slow, .. }) => format!(
            "calls on {} take {} times as long as the others (median {} against {}): they are {} of the calls, and {} of {}",
            class_name(profile, explained.class(what, *class)).trim_start_matches("all "),
            times(*median, *others), time(*median), time(*others), percent(*share), percent(*of_slow), slowest(explained)
        )
        .replace("calls on arguments", "calls with arguments").replace("calls on workgroup", "calls of workgroup"),
        (_, Effect::First { calls, median, others, of_slow }) => {
            let (which, of_first) = match calls {
                1 => ("the first call takes".to_owned(), time(*median)),
                n => (format!("the first calls of {n} threads take"), format!("median {}", time(*median))),
            };
            let of_others = match calls {
                1 => format!("a median of {}", time(*others)),
                _ => time(*others),
            };
            let ratio = times(*median, *others);
            let also = match (of_slow, calls) {
                (0, _) => String::new(),
                (1, 1) => format!("; it is one of {}", slowest(explained)),
                (1, _) => format!("; one of them is among {}", slowest(explained)),
                (some, all) if some == all => format!("; they are among {}", slowest(explained)),
                (some, _) => format!("; {some} of them are among {}", slowest(explained)),
            };
            format!("{which} {ratio} times as long as the others ({of_first} against {of_others}){also}")
        }
        (_, Effect::Time { spearman, first, last, slowest: (tenth, most), all }) => {
            let how = if *spearman > 0.0 { "slower" } else { "faster" };
            match spearman.abs() >= 0.3 && differ(*first, *last) && (last > first) == (*spearman > 0.0) {
                true => format!(
                    "calls became {how} over the run: median {} in its first tenth, {} in its last",
                    time(*first), time(*last)
                ),
                false => format!(
                    "durations change over the run: calls are slowest in tenth {} of 10 (median {}, against {} of all calls)",
                    tenth + 1, time(*most), time(*all)
                ),
            }
        }
    }
}

/// Describes how the values of a counter differ between slow calls and the others: `12 times the
/// page-faults (median 24, against 2 for the others)`.
fn amount(name: &str, slow: &Level, others: &Level, spearman: f64) -> String {
    let rare = slow.some.min(others.some) < 0.5;
    if !rare && differ(slow.median, others.median) {
        let ratio = times(slow.median, others.median);
        let (a, b) = (number(slow.median), number(others.median));
        return format!("{ratio} times the {name} (median {a}, against {b} for the others)");
    }
    if rare && (others.some == 0.0 || slow.some == 0.0 || differ(slow.some, others.some)) {
        let (a, b) = (percent(slow.some), percent(others.some));
        return format!("{name} in {a} of the cases, against {b} for the others");
    }
    if differ(slow.mean, others.mean) {
        let ratio = times(slow.mean, others.mean);
        let (a, b) = (number(slow.mean), number(others.mean));
        return format!("{ratio} times the {name} (mean {a}, against {b} for the others)");
    }
    let more = if spearman < 0.0 { "fewer" } else { "more" };
    format!("slightly {more} {name} (correlation of ranks {spearman:.2})")
}

/// Returns a short text about a variable that cannot be told apart from the variable of a finding.
fn short(profile: &Profile, explained: &Explained, what: What, effect: &Effect) -> String {
    match effect {
        Effect::Class { class, .. } => class_name(profile, explained.class(what, *class)),
        Effect::Ordered { slow, others, .. } if differ(slow.median, others.median) => {
            let (a, b) = (number(slow.median), number(others.median));
            format!("{} (median {a} against {b})", name(profile, what))
        }
        Effect::OffCpu { share, of_others, .. } => {
            let (a, b) = (percent(*share), percent(*of_others));
            format!("{} ({a} of the slow calls' time, against {b})", name(profile, what))
        }
        _ => name(profile, what),
    }
}
