//! Parses the arguments of a call.

use std::collections::HashMap;

use serde::Deserialize;

use super::counters::Counters;
use crate::chrome::event::{Raw, args};

/// The contents of an event's `args`. It is reused for each event.
#[derive(Clone, Debug, Default)]
pub(super) struct CallArgs {
    /// Whether there are any arguments.
    pub any: bool,
    pub workgroup: Option<[u32; 3]>,
    pub workgroups: Option<[u32; 3]>,
    pub worker: Option<u32>,
    pub cpu: u32,
    pub node: u32,
    pub start_ticks: Option<u64>,
    pub duration_ticks: Option<u64>,
    pub process: Option<usize>,
    pub thread: Option<u32>,
    pub export: Option<u32>,
    /// One per counter of the run.
    pub values: Vec<Option<u64>>,
    /// The times enabled and running, one per group.
    pub groups: Vec<Option<(u64, u64)>>,
    pub extras: Vec<(u32, u64)>,
    /// Period, counter period and skipped calls.
    pub drawn: Option<(u32, u32, u64)>,
}

/// An element of `groups`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Group {
    /// The group counted all the time; the values are arguments by name.
    Whole(u64),
    /// Time enabled, time running, and a value per counter, as they were read.
    Raw(Vec<Option<u64>>),
    /// The group was not read, or the element is unknown.
    Other(serde::de::IgnoredAny),
}

/// Tells a counter's argument from another argument of the same name. A counter always has its
/// argument, so if more arguments than counters have a name, the additional one is the other
/// argument. Arguments for views come before the counters, and arguments for imports after them.
struct Twice {
    counts: HashMap<String, (usize, usize)>,
    ticks: bool,
}

impl Twice {
    fn of(raw: Raw<'_>, counters: &Counters, ticks: bool) -> Self {
        let mut counts: HashMap<String, (usize, usize)> = HashMap::new();
        if counters.any_called() {
            args(raw, |key, _| {
                if counters.called(key) > 0 {
                    counts.entry(key.to_owned()).or_default().0 += 1;
                }
            });
        }
        Self { counts, ticks }
    }

    fn is_counter(&mut self, key: &str, counters: &Counters) -> bool {
        let Some((there, seen)) = self.counts.get_mut(key) else {
            return false;
        };
        *seen += 1;
        let first = match key {
            "start_ticks" | "duration_ticks" => self.ticks,
            _ => [
                "workgroup",
                "worker",
                "cpu",
                "node",
                "dispatch",
                "correlation",
                "weight",
                "skipped",
                "counter_weight",
            ]
            .contains(&key),
        };
        let place = if first { 1 } else { *there };
        *there <= counters.called(key) || *seen != place
    }
}

impl CallArgs {
    /// `ticks` says whether every call has raw ticks among its arguments.
    pub fn read(&mut self, raw: Option<Raw<'_>>, counters: &Counters, ticks: bool) {
        let (mut values, mut groups) =
            (std::mem::take(&mut self.values), std::mem::take(&mut self.groups));
        let mut extras = std::mem::take(&mut self.extras);
        values.clear();
        values.resize(counters.count(), None);
        groups.clear();
        groups.resize(counters.groups().len(), None);
        extras.clear();
        *self = Self { values, groups, extras, ..Self::default() };
        let Some(raw) = raw else { return };
        let mut times: Option<Raw<'_>> = None;
        let mut twice = Twice::of(raw, counters, ticks);
        args(raw, |key, value| {
            self.any = true;
            if twice.is_counter(key, counters) {
                return;
            }
            match key {
                "workgroup" => self.workgroup = value.parse().ok(),
                "workgroups" => self.workgroups = value.parse().ok(),
                "worker" => self.worker = value.parse().ok(),
                "cpu" => self.cpu = value.parse().unwrap_or(0),
                "node" => self.node = value.parse().unwrap_or(0),
                "start_ticks" => self.start_ticks = value.parse().ok(),
                "duration_ticks" => self.duration_ticks = value.parse().ok(),
                "process" => self.process = value.parse().ok(),
                "thread" => self.thread = value.parse().ok(),
                "export" => self.export = value.parse().ok(),
                "groups" => times = Some(value),
                "values" => self.extras = value.parse().unwrap_or_default(),
                "drawn" => self.drawn = value.parse().ok(),
                name => {
                    if let Some(counter) = counters.named(name) {
                        self.values[counter] = value.parse().ok();
                    }
                }
            }
        });
        let times = times.and_then(|times| times.parse::<Vec<Group>>().ok()).unwrap_or_default();
        for (at, (group, range)) in times.into_iter().zip(counters.groups()).enumerate() {
            match group {
                Group::Whole(ns) => self.groups[at] = Some((ns, ns)),
                Group::Raw(fields) => {
                    let word = |i: usize| fields.get(i).copied().flatten();
                    self.groups[at] = word(0).zip(word(1));
                    for (i, counter) in range.clone().enumerate() {
                        self.values[counter] = word(2 + i);
                    }
                }
                Group::Other(_) => {}
            }
        }
    }
}
