//! Writes the first lines of a report: what was recorded, where and when, and which part is shown.

use std::collections::BTreeMap;

use analysis::Counts;
use analysis::lengths::recorded_ns;
use profile::manifest::Place;
use profile::{CounterInfo, Exit, Manifest, MetricInfo, Origin, Profile, State};
use serde::Serialize;

use super::overview::Overview;
use super::sampled;
use super::{answer, price, ranks, usage};
use crate::terminal::visible;
use crate::view::units::{moment, plural, shorten, time};

/// Returns the lines above a report, each with a label and a text.
pub fn lines(overview: &Overview<'_>) -> Vec<(&'static str, String)> {
    let profile = overview.profile;
    let summary = overview.summary;
    let manifest = &profile.manifest;
    let mut lines = Vec::new();
    if summary.calls > 0 {
        lines.extend(
            answer::lines(overview, recorded_ns(manifest)).into_iter().map(|text| ("", text)),
        );
    }
    lines.extend(ranks::line(profile).map(|text| ("ranks", text)));
    lines.extend(price::warning(profile, &summary.probes).map(|text| ("price", text)));
    lines.extend(sampled::head(profile, summary));
    lines.extend(chosen(overview));
    lines
}

/// Returns lines about the recording.
pub fn recording(overview: &Overview<'_>) -> Vec<(&'static str, String)> {
    let profile = overview.profile;
    let manifest = &profile.manifest;
    let mut lines = Vec::new();
    let imported = manifest.origin == Origin::Import;
    if imported {
        lines.push(("imported", command(manifest)));
    } else if !manifest.command.is_empty() {
        lines.push(("command", format!("{} ({})", command(manifest), ending(profile))));
    }
    // An imported trace may name its host, but says nothing else about the machine.
    if !imported {
        let cpu = if manifest.cpu_model.is_empty() { "unknown CPU" } else { &manifest.cpu_model };
        let cpus = plural(manifest.logical_cpus.into(), "logical CPU");
        let (host, kernel) = (&manifest.host, &manifest.kernel);
        lines.push(("machine", format!("{host}, {cpu}, {cpus}, kernel {kernel}")));
    } else if !manifest.host.is_empty() {
        lines.push(("machine", visible(&manifest.host).into_owned()));
    }
    let labels = labels(manifest);
    if !labels.is_empty() {
        lines.push(("labels", labels));
    }
    let lasted =
        recorded_ns(manifest).map_or(String::new(), |ns| format!(", for {}", time(ns as f64)));
    lines.push(("recorded", format!("{}{lasted}", moment(manifest.created_unix_ns))));
    let clock: record::ClockKind = manifest.clock.into();
    let tick = match clock {
        record::ClockKind::Monotonic => String::new(),
        _ => format!(", {:.6} ns per tick", profile.timeline.ns_per_tick()),
    };
    lines.push(("clock", format!("{clock}{tick}")));
    lines.push(("counters", counters(profile)));
    let asked = overview.metrics.iter().filter(|metric| !metric.builtin);
    let asked: Vec<String> = asked.map(|m| format!("{} = {}", m.name, m.expression)).collect();
    if !asked.is_empty() {
        lines.push(("metrics", visible(&asked.join("; ")).into_owned()));
    }
    if let Some(text) = usage::text(overview) {
        lines.push(("threads", text));
    }
    lines
}

fn chosen(overview: &Overview<'_>) -> Vec<(&'static str, String)> {
    let profile = overview.profile;
    let manifest = &profile.manifest;
    let mut lines = Vec::new();
    if manifest.passes > 0 {
        let text = format!(
            "{}, one for each set of counters: values are means of them, spread is their range",
            match profile.passes() {
                recorded if recorded < manifest.passes => {
                    format!("{recorded} of {}", manifest.passes)
                }
                all => all.to_string(),
            }
        );
        lines.push(("passes", text));
    }
    if let Some(filter) = overview.filter {
        lines.push(("shown", format!("ops that match {filter}")));
    }
    if overview.skip_ms > 0.0 {
        let text = format!(
            "the calls in the first {} ms of each thread, as if they had not been recorded",
            overview.skip_ms
        );
        lines.push(("left out", text));
    }
    if overview.raw {
        let text = "as they were recorded; what an empty call reads is not subtracted";
        lines.push(("values", text.to_owned()));
    }
    lines
}

/// The command that imported a profile is shortened to this width.
const IMPORT_WIDTH: usize = 60;

/// Returns how the program ended, when it was recorded, and what was counted.
pub fn program(overview: &Overview<'_>) -> String {
    let manifest = &overview.profile.manifest;
    let name = manifest.command.first().and_then(|path| path.rsplit('/').next());
    let program = match (name, manifest.origin) {
        (None, _) => String::new(),
        (Some(_), Origin::Import) => format!("{}, ", shorten(&command(manifest), IMPORT_WIDTH)),
        (Some(name), _) => format!("{} ({}), ", visible(name), ending(overview.profile)),
    };
    let counters = counters(overview.profile);
    let counters = match manifest.counters.is_empty() {
        true => "times only".to_owned(),
        false => format!("with {counters}"),
    };
    let labels = match labels(manifest) {
        text if text.is_empty() => text,
        text => format!(", {text}"),
    };
    format!("{program}{}, {counters}{labels}", moment(manifest.created_unix_ns))
}

/// Returns the labels of the run, and its place in a series: `commit=1a2b, run A of round 3`.
fn labels(manifest: &Manifest) -> String {
    let labels = manifest.labels.iter().map(|(key, value)| format!("{key}={value}"));
    let place = manifest.series.as_ref();
    let place = place.map(|at| format!("run {} of round {}", at.side.name(), at.round));
    visible(&labels.chain(place).collect::<Vec<_>>().join(", ")).into_owned()
}

/// Returns the name of the program. For an imported profile, returns the command that imported it.
pub fn program_name(profile: &Profile) -> String {
    let manifest = &profile.manifest;
    match (manifest.command.first().and_then(|path| path.rsplit('/').next()), manifest.origin) {
        (None, _) => "profile".to_owned(),
        (Some(_), Origin::Import) => shorten(&command(manifest), IMPORT_WIDTH),
        (Some(name), _) => visible(name).into_owned(),
    }
}

/// Returns the numbers of processes, threads and devices: `1 process, 3 threads, 2 devices`.
pub fn places(counts: Counts) -> String {
    let Counts { processes, threads, devices } = counts;
    let all = [(processes, "process"), (threads, "thread"), (devices, "device")];
    // Processes and threads are left out if their number is 0 and there are devices.
    let is_shown = |number: usize, word| match word {
        "device" => number > 0,
        _ => number > 0 || devices == 0,
    };
    let shown = all.into_iter().filter(|(number, word)| is_shown(*number, *word));
    shown.map(|(number, word)| plural(number as u128, word)).collect::<Vec<_>>().join(", ")
}

/// Returns the program and its arguments. Words that a shell would interpret are quoted.
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

/// Returns the names of the counters, with `|` between groups (the counters of a group are read
/// together).
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

/// The facts about the profile that stand at the beginning of each view's JSON document.
#[derive(Serialize)]
pub struct ProfileHead<'a> {
    program_version: &'a str,
    origin: Origin,
    state: State,
    created_unix_ns: u64,
    duration_ns: Option<u64>,
    command: &'a [String],
    working_directory: &'a str,
    exit: Option<Exit>,
    host: &'a str,
    kernel: &'a str,
    cpu_model: &'a str,
    logical_cpus: u32,
    environment: Option<&'a str>,
    clock: ClockOut,
    #[serde(skip_serializing_if = "Option::is_none")]
    passes: Option<u32>,
    counters: &'a [CounterInfo],
    metrics: &'a [MetricInfo],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    multiplex: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<f64>,
    filters: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    series: Option<&'a Place>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    members: Vec<MemberHead<'a>>,
}

#[derive(Serialize)]
struct MemberHead<'a> {
    profile: &'a str,
    host: &'a str,
    aligned: profile::merged::Aligned,
}

#[derive(Serialize)]
struct ClockOut {
    kind: &'static str,
    ns_per_tick: f64,
    calibrated: bool,
    /// Absent if the profile is of an earlier version, which did not measure the steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    steps_ns: Option<StepsOut>,
}

/// The smallest and the typical step of the clock in ns. If the processes measured different
/// values, each field has the largest of them.
#[derive(Serialize)]
struct StepsOut {
    smallest: f64,
    typical: f64,
}

fn steps(profile: &Profile) -> Option<StepsOut> {
    let ns = |ticks: u64| profile.timeline.duration_ns(ticks);
    let all = || profile.processes.iter().filter_map(|process| process.clock_steps);
    Some(StepsOut {
        smallest: ns(all().map(|steps| steps.smallest_ticks).max()?),
        typical: ns(all().map(|steps| steps.typical_ticks).max()?),
    })
}

impl<'a> ProfileHead<'a> {
    pub fn new(manifest: &'a Manifest, profile: &'a Profile) -> Self {
        let kind: record::ClockKind = manifest.clock.into();
        Self {
            program_version: &manifest.program_version,
            origin: manifest.origin,
            state: manifest.state,
            created_unix_ns: manifest.created_unix_ns,
            duration_ns: recorded_ns(manifest),
            command: &manifest.command,
            working_directory: &manifest.working_directory,
            exit: manifest.exit,
            host: &manifest.host,
            kernel: &manifest.kernel,
            cpu_model: &manifest.cpu_model,
            logical_cpus: manifest.logical_cpus,
            environment: manifest.environment.as_deref(),
            clock: ClockOut {
                kind: kind.name(),
                ns_per_tick: profile.timeline.ns_per_tick(),
                calibrated: profile.timeline.calibrated,
                steps_ns: steps(profile),
            },
            passes: Some(manifest.passes).filter(|n| *n > 0),
            counters: &manifest.counters,
            metrics: &manifest.metrics,
            multiplex: manifest.multiplex,
            budget: manifest.budget,
            filters: &manifest.filters,
            labels: &manifest.labels,
            series: manifest.series.as_ref(),
            members: profile
                .members
                .iter()
                .map(|m| MemberHead { profile: &m.name, host: &m.host, aligned: m.aligned })
                .collect(),
        }
    }
}
