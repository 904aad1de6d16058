//! What stands above the table: whose profile this is.

use analysis::Summary;
use profile::{Exit, Manifest, Origin, Profile, State};

use super::Report;
use super::units::{moment, plural, time};
use crate::terminal::visible;

/// Lines of a label and a text.
pub fn lines(report: &Report<'_>) -> Vec<(&'static str, String)> {
    let profile = report.profile;
    let manifest = &profile.manifest;
    let summary = report.summary;
    let mut lines = Vec::new();
    let imported = manifest.origin == Origin::Import;
    if imported {
        lines.push(("imported", command(manifest)));
    } else if !manifest.command.is_empty() {
        lines.push(("command", format!("{} ({})", command(manifest), ending(profile))));
    }
    // A trace names its host at most.
    if !imported {
        let cpu = if manifest.cpu_model.is_empty() { "unknown CPU" } else { &manifest.cpu_model };
        let cpus = plural(manifest.logical_cpus.into(), "logical CPU");
        let (host, kernel) = (&manifest.host, &manifest.kernel);
        lines.push(("machine", format!("{host}, {cpu}, {cpus}, kernel {kernel}")));
    } else if !manifest.host.is_empty() {
        lines.push(("machine", visible(&manifest.host).into_owned()));
    }
    let lasted = duration_ns(manifest).map_or(String::new(), |ns| format!(", {}", time(ns as f64)));
    lines.push(("recorded", format!("{}{lasted}", moment(manifest.created_unix_ns))));
    let clock: record::ClockKind = manifest.clock.into();
    let tick = match clock {
        record::ClockKind::Monotonic => String::new(),
        _ => format!(", {:.6} ns per tick", profile.timeline.ns_per_tick()),
    };
    lines.push(("clock", format!("{clock}{tick}")));
    lines.push(("counters", counters(profile)));
    let asked = report.metrics.iter().filter(|metric| !metric.builtin);
    let asked: Vec<String> = asked.map(|m| format!("{} = {}", m.name, m.expression)).collect();
    if !asked.is_empty() {
        lines.push(("metrics", visible(&asked.join("; ")).into_owned()));
    }
    let threads = summary.threads.len() as u128;
    let mut processes: Vec<usize> = summary.threads.iter().map(|t| t.process).collect();
    processes.dedup();
    let ns = profile.timeline.ns_per_tick() * summary.total_ticks as f64;
    lines.push((
        "calls",
        format!(
            "{}{} in {}, {}; together {}{}",
            plural(summary.calls.into(), "call"),
            summary
                .dispatches
                // Calls of virtual machines make up no dispatches.
                .filter(|n| *n > 0 || summary.calls == 0)
                .map_or_else(String::new, |n| format!(" of {}", plural(n.into(), "dispatch"))),
            plural(processes.len() as u128, "process"),
            plural(threads, "thread"),
            time(ns),
            shares_of(profile, summary),
        ),
    ));
    if let Some(text) = super::price::usage_text(report) {
        lines.push(("threads", text));
    }
    if manifest.passes > 0 {
        let text = format!(
            "{}: the program ran once for each set of counters. The calls of an op are those of \
             one pass; its total is the mean of the passes, and spread is their range",
            match profile.passes() {
                recorded if recorded < manifest.passes => {
                    format!("{recorded} of {}", manifest.passes)
                }
                all => all.to_string(),
            }
        );
        lines.push(("passes", text));
    }
    if let Some(filter) = report.filter {
        lines.push(("shown", format!("ops that match {filter}")));
    }
    if report.skip_ms > 0.0 {
        let text = format!(
            "the calls in the first {} ms of each thread, as if they had not been recorded",
            report.skip_ms
        );
        lines.push(("left out", text));
    }
    if report.subtract_probe {
        let text = if summary.uncalibrated_probes {
            "reduced by what an empty call reads, if that was calibrated, but not below zero"
        } else {
            "reduced by what an empty call reads (see below), but not below zero"
        };
        lines.push(("values", text.to_owned()));
    }
    lines
}

/// What shares are shares of, behind the sum of all durations.
fn shares_of(profile: &Profile, summary: &Summary) -> String {
    if summary.self_ticks == 0 {
        return String::new();
    }
    if summary.self_ticks == summary.total_ticks {
        return " (percentages are of this)".to_owned();
    }
    let ns = profile.timeline.ns_per_tick() * summary.self_ticks as f64;
    format!(", self time {} (percentages are of this)", time(ns))
}

/// From the first to the last snapshot of `run`, if it took one at the end.
pub fn duration_ns(manifest: &Manifest) -> Option<u64> {
    if manifest.state != State::Finished {
        return None;
    }
    let times = || manifest.snapshots.iter().map(|s| s.monotonic_ns);
    times().max()?.checked_sub(times().min()?).filter(|ns| *ns > 0)
}

/// The program and its arguments, quoted where a shell would need that.
pub fn command(manifest: &Manifest) -> String {
    let quoted = manifest.command.iter().map(|word| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
        match !word.is_empty() && word.chars().all(plain) {
            true => word.clone(),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        }
    });
    visible(&quoted.collect::<Vec<_>>().join(" ")).into_owned()
}

/// How the program ended.
fn ending(profile: &Profile) -> String {
    match profile.manifest.exit {
        None if profile.manifest.origin == Origin::Session => "recorded by a session".to_owned(),
        None if profile.processes.iter().any(|p| p.alive) => "still running".to_owned(),
        None => "its end was not seen".to_owned(),
        Some(Exit { signal: Some(signal), core, .. }) => {
            format!("killed by signal {signal}{}", if core { ", core dumped" } else { "" })
        }
        Some(Exit { code, .. }) => format!("exit {}", code.unwrap_or(0)),
    }
}

/// Groups are read together and separated by `|`.
fn counters(profile: &Profile) -> String {
    let all = &profile.manifest.counters;
    let groups = profile.groups.all().iter().map(|group| {
        let names: Vec<&str> =
            all[group.counters.clone()].iter().map(|c| c.name.as_str()).collect();
        names.join(", ")
    });
    let text = groups.collect::<Vec<_>>().join(" | ");
    if text.is_empty() { "none (timing only)".to_owned() } else { text }
}
