//! Losses, notes and likely reasons, as every view says them.

use std::io;

use model::{Loss, Severity};
use profile::{LossCount, Origin, State};

use super::units::{grouped, plural};
use super::{Report, RowKind};
use crate::terminal::say;

/// What the error number means, `EMFILE` and all.
pub fn errno_text(loss: &LossCount) -> Option<String> {
    loss.errno.map(|errno| match model::errno::kernel_only(errno) {
        Some((name, meaning)) => format!("{name}: {meaning} (os error {errno})"),
        None => io::Error::from_raw_os_error(errno).to_string(),
    })
}

/// Worst first, then in the order of the table of losses.
pub fn by_severity(losses: &[LossCount]) -> Vec<&LossCount> {
    let mut sorted: Vec<&LossCount> = losses.iter().collect();
    sorted.sort_by_key(|loss| std::cmp::Reverse(severity(loss)));
    sorted
}

/// One line on stderr for each, for views whose stdout is for other programs.
pub fn say(losses: &[LossCount]) {
    for loss in losses {
        say!("{}: {} × {}: {}", severity(loss).name(), loss.count, loss.name, loss.help());
    }
}

pub fn severity(loss: &LossCount) -> Severity {
    loss.severity()
}

/// What a reader should know about this profile besides its numbers.
pub fn notes(report: &Report<'_>) -> Vec<String> {
    let manifest = &report.profile.manifest;
    let mut notes = Vec::new();
    notes.extend(manifest.environment.clone());
    notes.extend(manifest.notes.iter().cloned());
    if manifest.counters.iter().any(|c| c.simulated) {
        notes
            .push("simulated counters have values that were typed in; they measure nothing".into());
    }
    if report.by == RowKind::Op && manifest.passes > 0 {
        let differ = report.summary.rows.iter().filter(|row| !row.passes_agree()).count();
        let recorded = report.profile.passes();
        if recorded < manifest.passes {
            notes.push(format!("only {recorded} of {} passes recorded something", manifest.passes));
        }
        if differ > 0 {
            notes.push(format!(
                "the passes differ: {} of {} had different call counts (see by pass); do not \
                 compare counters of different passes for them",
                differ,
                plural(report.summary.rows.len() as u128, "op"),
            ));
        }
    }
    notes.extend(super::first::slow(report));
    match report.summary.overlapping {
        0 => {}
        n => notes.push(format!(
            "{} began inside another call of the same thread and ended after it; the time in \
             common counts as self time of the call that began last",
            plural(n.into(), "call")
        )),
    }
    let apart = report.summary.apart;
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
    let alive = report.profile.processes.iter().any(|p| p.alive);
    match (manifest.state, manifest.origin, &manifest.pool) {
        (State::Recording, Origin::Env, Some(pool)) => notes.push(format!(
            "the recording is open for further programs and keeps {}; `counterpoint recover \
             --close` ends it",
            pool.display()
        )),
        (State::Recording, Origin::Run, None) if !alive => {
            notes.push("`counterpoint run` was killed before the program ended".into());
        }
        (State::Recording, Origin::Hook, None) if !alive => {
            notes.push("the program crashed or was killed, and wrote no report".into());
        }
        (State::Recording, Origin::Session, None) if !alive => {
            notes.push("the program ended without ending its session".into());
        }
        (State::Recording, Origin::Import, _) => {
            notes.push("`counterpoint trace import` was stopped before it was done".into());
        }
        _ => {}
    }
    notes
}

/// A virtual machine of TVM that nobody saw working.
pub const MACHINE_WITHOUT_CALLS: &str = "a virtual machine of TVM was seen, but none of its calls: it was not called, or it was \
     compiled with exec_mode=\"compiled\", which makes no calls that can be seen";

fn is_machine(library: &profile::Library) -> bool {
    library.kind == profile::LibraryKind::RelaxVm
}

/// Why there may be no calls. What is known comes alone, guesses only without it.
pub fn reasons(report: &Report<'_>) -> Vec<String> {
    let profile = report.profile;
    let manifest = &profile.manifest;
    let mut reasons = Vec::new();
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
        // These leave the calls themselves.
        Some(Loss::CounterOpenFailed | Loss::CounterReadFailed | Loss::DescriptorLost) => false,
        // And these have nothing to do with them.
        Some(Loss::TornTrack | Loss::TrackOverrun | Loss::TrackReadFailed) => false,
        _ => loss.severity() == Severity::Missing,
    };
    let lost: Vec<String> = by_severity(&report.summary.losses)
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
        // A note says what is in it.
        reasons.push("the trace has no slices; a note below says what it has".into());
        return reasons;
    }
    if profile.processes.is_empty() {
        reasons.push(
            "no process loaded an IREE executable or a virtual machine of TVM: the program uses a \
             device other than the CPU, or it failed before it loaded a module (see its exit status)"
                .into(),
        );
        reasons.push(
            "the process that does the work was started in a way that cannot be followed: by a bare \
             system call, or by a program that is not recorded itself"
                .into(),
        );
    } else if profile.processes.iter().flat_map(|p| &p.libraries).any(is_machine) {
        reasons.push(MACHINE_WITHOUT_CALLS.into());
    } else {
        reasons.push("an executable was loaded, but none of its functions was called".into());
    }
    if !manifest.filters.is_empty() {
        reasons.push(format!("the filter {} matches no function", manifest.filters.join(", ")));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The C library says "Unknown error" of numbers that only the kernel has.
    #[test]
    fn numbers_have_words() {
        let text = |errno| {
            let loss = LossCount { name: "counter_open_failed".into(), count: 1, errno };
            errno_text(&loss)
        };
        let own = text(Some(524)).unwrap();
        assert!(own.starts_with("ENOTSUPP: ") && own.ends_with("(os error 524)"), "{own}");
        assert_eq!(text(Some(libc::EMFILE)).as_deref(), Some("Too many open files (os error 24)"));
        assert_eq!(text(None), None);
    }
}
