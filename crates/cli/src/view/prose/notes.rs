//! Writes the notes below a report, and the reasons why a profile may have no calls.

use std::borrow::Cow;

use analysis::{Contradiction, Key, Violation};
use model::{Loss, Severity};
use profile::{Host, LossCount, Origin, Profile, Role, State, is_over};

use super::losses::by_severity;
use super::overview::{Overview, name_of};
use crate::view::labels::labels;
use crate::view::units::{grouped, plural};

/// A note about contradictory numbers names at most this many rows.
const NAMED: usize = 3;

/// Describes contradictions between numbers. If they come from the subtraction of the recorder's
/// own cost, nothing is subtracted, and the text says so.
fn contradictions(overview: &Overview<'_>) -> Vec<String> {
    let all = &overview.summary.violations;
    let (of_correction, others): (Vec<Violation>, Vec<Violation>) =
        all.iter().partition(|one| one.what.is_of_correction());
    let named = |some: &[Violation]| {
        let first = &some[..some.len().min(NAMED)];
        let keys: Vec<Key> = first.iter().filter_map(|one| one.row).collect();
        let mut names = labels(overview.profile, &keys).into_iter();
        let texts = first.iter().map(|one| {
            let name = one.row.and_then(|_| names.next());
            format!("{} ({})", name.as_deref().unwrap_or("all rows"), words(one.what))
        });
        let texts = texts.collect::<Vec<_>>().join(", ");
        match some.len() - first.len() {
            0 => texts,
            n => format!("{texts} and {}", plural(n as u128, "further row")),
        }
    };
    let mut notes = Vec::new();
    if !of_correction.is_empty() {
        notes.push(format!(
            "all values are as they were recorded, because what was to be subtracted for the \
             recorder contradicts what was recorded: {}",
            named(&of_correction)
        ));
    }
    if !others.is_empty() {
        notes.push(format!("this cannot be, and is an error of Counterpoint: {}", named(&others)));
    }
    notes
}

pub fn words(what: Contradiction) -> &'static str {
    match what {
        Contradiction::NothingLeft => "in most calls, more than there was",
        Contradiction::Value => "a value below 0 or outside of its interval",
        Contradiction::Order => "a mean or a quantile outside of minimum and maximum",
        Contradiction::OwnAboveTotal => "a self time longer than the total",
        Contradiction::Sum => "self times that do not add up",
        Contradiction::Thread => "in calls, or on or off a CPU, for longer than it can have been",
        Contradiction::Price => "recording cost more processor time than there was",
    }
}

/// Returns what to call the ops of a host that can record shapes (`run --shapes`), such as `the ops
/// of PyTorch`. `None` if there are no such ops, or if some of them have shapes.
pub fn without_shapes(profile: &Profile) -> Option<&str> {
    let ops = profile.ops.all().iter();
    let of_host = ops.map(|op| (op, profile.ops.host_of(op)));
    let is_open = |(op, host): &(&profile::Op, &Host)| {
        host.shapes_if_asked && op.role == Role::Op && !host.ops.is_empty()
    };
    let all: Vec<_> = of_host.filter(is_open).collect();
    let known = all.iter().any(|(op, _)| !op.arguments.is_empty());
    all.first().filter(|_| !known).map(|(_, host)| &*host.ops)
}

pub fn notes(overview: &Overview<'_>) -> Vec<String> {
    let manifest = &overview.profile.manifest;
    let mut notes = Vec::new();
    notes.extend(manifest.environment.clone());
    notes.extend(manifest.notes.iter().cloned());
    if let Some(ops) = without_shapes(overview.profile) {
        notes.push(format!(
            "{ops} are not told apart by the shapes of their arguments: add --shapes to `run`"
        ));
    }
    if manifest.counters.iter().any(|c| c.simulated) {
        notes
            .push("simulated counters have values that were typed in; they measure nothing".into());
    }
    if analysis::are_means(overview.profile, overview.by) {
        let rows = overview.summary.rows.iter();
        let differ = rows.filter(|row| !row.passes_agree(|pass| pass.calls)).count();
        let recorded = overview.profile.passes();
        if recorded < manifest.passes {
            notes.push(format!("only {recorded} of {} passes recorded something", manifest.passes));
        }
        if differ > 0 {
            notes.push(format!(
                "the passes differ: {} of {} had different call counts (see by pass); do not \
                 compare counters of different passes there",
                differ,
                plural(overview.summary.rows.len() as u128, name_of(overview.by)),
            ));
        }
    }
    notes.extend(contradictions(overview));
    notes.extend(super::first::slow(overview));
    match overview.summary.overlapping {
        0 => {}
        n => notes.push(format!(
            "{} began during another call of the same thread and ended after it; the time that \
             both share is self time of the call that began last",
            plural(n.into(), "call")
        )),
    }
    let apart = overview.summary.apart;
    let kinds = [
        (apart.spans, "asynchronous span", "asynchronous spans"),
        (
            apart.bookkeeping,
            "call of the profiler's own book-keeping",
            "calls of the profiler's own \
          book-keeping",
        ),
    ];
    let kinds = kinds.into_iter().filter(|(n, ..)| *n > 0);
    let kinds = kinds.map(|(n, one, many)| match n {
        1 => format!("1 {one}"),
        n => format!("{} {many}", grouped(n.into())),
    });
    let kinds = kinds.collect::<Vec<_>>().join(" and ");
    if !kinds.is_empty() {
        notes.push(format!(
            "not on a thread: {kinds}; these have rows by op, but are not in the sum of calls, the \
             times of threads, self times and percentages"
        ));
    }
    let alive = overview.profile.processes.iter().any(|p| p.alive);
    let has_ended = !alive && is_over(manifest);
    match (manifest.state, manifest.origin, &manifest.pool) {
        (State::Recording, Origin::Env, Some(pool)) => notes.push(format!(
            "the recording is open for further programs and keeps {}; `counterpoint recover \
             --close` ends it",
            pool.display()
        )),
        (State::Recording, Origin::Run, _) if has_ended => {
            notes.push("`counterpoint run` was killed before the program ended".into());
        }
        (State::Recording, Origin::Hook, _) if has_ended => {
            notes.push("the program crashed or was killed, and wrote no report".into());
        }
        (State::Recording, Origin::Session, _) if has_ended => {
            notes.push("the program ended without ending its session".into());
        }
        (State::Recording, Origin::Import, _) => {
            notes.push("`counterpoint trace import` was stopped before it was done".into());
        }
        _ => {}
    }
    notes
}

/// Returns why calls of hosts (runtimes such as PyTorch) may be missing. Considers the hosts that
/// the recorded processes used and that `which` accepts. Equal sentences are returned once.
pub fn hosts_without_calls(profile: &Profile, which: impl Fn(&Host) -> bool) -> Vec<String> {
    let mut reasons: Vec<String> = Vec::new();
    for host in profile.processes.iter().flat_map(|process| process.seen_hosts()) {
        let reason = &*host.without_calls;
        if which(host) && !reason.is_empty() && !reasons.iter().any(|known| known == reason) {
            reasons.push(reason.to_owned());
        }
    }
    reasons
}

/// Joins the first three texts, and says how many more there are.
pub fn some_of<T: AsRef<str>>(all: Vec<T>) -> String {
    const MOST: usize = 3;
    let mut named: Vec<Cow<'_, str>> =
        all.iter().take(MOST).map(|text| text.as_ref().into()).collect();
    if all.len() > MOST {
        named.push(format!("{} more", all.len() - MOST).into());
    }
    named.join(" and ")
}

/// Returns a sentence if Python was started with an option that keeps it from running
/// Counterpoint's `sitecustomize`, without which TVM and PyTorch are not recorded.
pub fn isolated_python(command: &[String]) -> Option<String> {
    let is_python = |word: &String| {
        let name = word.rsplit('/').next().unwrap_or_default();
        name.strip_prefix("python")
            .is_some_and(|v| v.chars().all(|c| c == '.' || c.is_ascii_digit()))
    };
    let first = command.iter().position(is_python)? + 1;
    let option = isolating_option(&command[first..])?;
    Some(format!(
        "python -{option} does not run the sitecustomize with which `counterpoint run` connects TVM and \
         PyTorch: leave out -{option} (-I, -E and -S)"
    ))
}

/// Returns which of Python's options `-I`, `-E` and `-S` comes first.
fn isolating_option(words: &[String]) -> Option<char> {
    let mut words = words.iter();
    while let Some(letters) = words.next().and_then(|word| word.strip_prefix('-')) {
        if letters.is_empty() {
            return None; // The program comes from stdin.
        }
        if letters.starts_with('-') {
            if letters == "-check-hash-based-pycs" {
                words.next();
            }
            continue;
        }
        for (at, letter) in letters.char_indices() {
            match letter {
                'I' | 'E' | 'S' => return Some(letter),
                // The words after this option are arguments of the program.
                'c' | 'm' => return None,
                // The value of this option is the rest of the word or, if nothing is left, the next
                // word.
                'W' | 'X' => {
                    if at + 1 == letters.len() {
                        words.next();
                    }
                    break;
                }
                _ => {}
            }
        }
    }
    None
}

/// Returns the reasons why the profile has no calls: those that are certain or, if there are none,
/// those that are likely.
pub fn reasons(overview: &Overview<'_>) -> Vec<String> {
    let profile = overview.profile;
    let manifest = &profile.manifest;
    let mut reasons = Vec::new();
    if overview.skip_ms > 0.0 && profile.calls() > 0 {
        reasons.push(format!(
            "{} recorded, all of them in the first {} ms of their threads, which --skip-ms leaves out",
            plural(profile.calls().into(), "call"),
            overview.skip_ms
        ));
        return reasons;
    }
    let exports = || {
        let libraries = profile.processes.iter().flat_map(|p| &p.libraries);
        libraries.flat_map(|library| &library.exports)
    };
    if !manifest.filters.is_empty() && exports().next().is_some() && exports().all(|e| !e.recorded)
    {
        reasons.push(format!(
            "the filter {} matches none of the {} that were loaded",
            manifest.filters.join(", "),
            plural(exports().count() as u128, "function")
        ));
    }
    let explains = |loss: &&LossCount| match loss.loss() {
        Some(Loss::CallCutShort) => true,
        // Calls are recorded in spite of these losses.
        Some(Loss::CounterOpenFailed | Loss::CounterReadFailed | Loss::DescriptorLost) => false,
        // These losses are not about calls.
        Some(Loss::TornTrack | Loss::TrackOverrun | Loss::TrackReadFailed) => false,
        _ => loss.severity() == Severity::Missing,
    };
    let lost: Vec<String> = by_severity(&overview.summary.losses)
        .into_iter()
        .filter(explains)
        .map(|loss| format!("{} × {}", loss.count, loss.name))
        .collect();
    if !lost.is_empty() {
        reasons.push(format!("data was lost, see below: {}", lost.join(", ")));
    }
    if !reasons.is_empty() {
        return reasons;
    }
    if manifest.origin == Origin::Import {
        // Another note says what the trace contains.
        reasons.push("the trace has no slices; a note below says what it has".into());
        return reasons;
    }
    if profile.processes.is_empty() {
        reasons.extend(isolated_python(&manifest.command));
        reasons.push(
            "the program used none of IREE, TVM and PyTorch on the CPU: it has nothing to do with them, \
             uses another device, or failed before that (see its exit status)"
                .into(),
        );
        reasons.push(
            "the process that does the work was started in a way that cannot be followed: by a bare \
             system call, or by a program that is not recorded itself"
                .into(),
        );
    } else {
        let hosts = hosts_without_calls(profile, |_| true);
        match hosts.is_empty() {
            true => reasons.push("none of the functions that can be recorded was called".into()),
            false => reasons.extend(hosts),
        }
    }
    if !manifest.filters.is_empty() {
        reasons.push(format!("the filter {} matches no function", manifest.filters.join(", ")));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::isolated_python;

    #[test]
    fn options_that_leave_our_sitecustomize_out() {
        let option = |command: &str| {
            let words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            let reason = isolated_python(&words)?;
            reason.strip_prefix("python -")?.chars().next()
        };
        for (command, expected) in [
            ("python -I x.py", Some('I')),
            ("/usr/bin/python3.11 -uBE -m x", Some('E')),
            ("env A=1 python3 -X importtime -S", Some('S')),
            ("python -Wignore -I", Some('I')),
            ("python -W -I x.py", None),
            ("python -u x.py -I", None),
            ("python -m timeit -S", None),
            ("python -cI -E", None),
            ("python - -I", None),
            ("python --check-hash-based-pycs never -I x.py", Some('I')),
            ("pythonic -I", None),
            ("python", None),
            ("./model -I", None),
        ] {
            assert_eq!(option(command), expected, "{command}");
        }
    }
}
