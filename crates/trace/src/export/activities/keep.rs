//! Decides which events of an imported trace a filter keeps; see [`crate::export::filter`].
//!
//! The decision is made before the first event is written, because it may depend on later events.
//! Memory: a bit for each event, 16 bytes for each slice that is kept, and about 50 bytes for each
//! end of an arrow (a flow between two slices).

use std::collections::HashMap;
use std::io;

use model::activity::Vocabulary;
use profile::LossCount;
use profile::activities::{Activities, Activity, RowId};

use super::categories::Categories;
use super::visit;
use crate::export::filter::{Filter, LeftOut};

/// The part of a trace that is kept.
#[derive(Debug, Default)]
pub struct Keep {
    /// One bit for each event, in the order of the file.
    events: Vec<u64>,
    /// The points of time series that are moved to the start of the window (the range of time that
    /// is wanted), by their index among the events. The value is this start on the clock of the
    /// trace.
    moved: HashMap<usize, i64>,
    /// What is not kept.
    pub left_out: LeftOut,
}

/// A slice whose end was not read yet.
struct Begun {
    event: usize,
    at_ns: Option<i64>,
    wanted: bool,
}

struct End {
    event: usize,
    row: RowId,
    at_ns: Option<i64>,
    form: u8,
    arrow: usize,
}

struct Choice<'a> {
    filter: &'a Filter,
    base_ns: i64,
    keep: Keep,
    /// The times of the kept slices, by row, without asynchronous slices.
    slices: HashMap<u32, Vec<(i64, i64)>>,
    begun: HashMap<u32, Vec<Begun>>,
    /// Asynchronous slices whose end was not read yet, by category and id.
    begun_async: HashMap<(String, String), Vec<Begun>>,
    ends: Vec<End>,
    /// The number of each arrow, by category, name and id.
    arrows: HashMap<(String, String, String), usize>,
    /// For each time series, by process, name and id: the time of its last point before the window,
    /// and the index of this point among the events.
    before: HashMap<(String, String, String), (i64, usize)>,
}

impl Keep {
    /// Reads a trace and decides which of its events are kept. The times of the trace are relative
    /// to `base_ns` (ns since 1970). The filter refers to categories in `vocabulary`, which is the
    /// vocabulary of the output.
    pub fn of(
        trace: &Activities,
        filter: &Filter,
        vocabulary: Option<Vocabulary>,
        base_ns: i64,
    ) -> io::Result<Self> {
        let mut categories = Categories::new(vocabulary, trace);
        let mut choice = Choice {
            filter,
            base_ns,
            keep: Self::default(),
            slices: HashMap::new(),
            begun: HashMap::new(),
            begun_async: HashMap::new(),
            ends: Vec::new(),
            arrows: HashMap::new(),
            before: HashMap::new(),
        };
        let mut event = 0;
        visit(trace, |activity| {
            let (category, _) = categories.of(activity, activity.more, trace);
            let category = category.as_deref().unwrap_or("");
            choice.event(event, activity, category, trace);
            event += 1;
            Ok(())
        })?;
        Ok(choice.finish())
    }

    fn set(&mut self, event: usize) {
        if self.events.len() <= event / 64 {
            self.events.resize(event / 64 + 1, 0);
        }
        self.events[event / 64] |= 1 << (event % 64);
    }

    fn has(&self, event: usize) -> bool {
        self.events.get(event / 64).is_some_and(|bits| bits >> (event % 64) & 1 == 1)
    }
}

/// Calls `each` with the events that are kept, or with all if there is no filter. Returns the
/// losses (the damage in the trace) that were found.
pub fn visit_kept(
    trace: &Activities,
    keep: Option<&Keep>,
    mut each: impl FnMut(&Activity<'_>) -> io::Result<()>,
) -> io::Result<Vec<LossCount>> {
    let Some(keep) = keep else { return visit(trace, each) };
    let mut number = 0;
    visit(trace, |event| {
        let this = number;
        number += 1;
        if !keep.has(this) {
            return Ok(());
        }
        match keep.moved.get(&this) {
            Some(at_ns) => each(&Activity { time_ns: Some(*at_ns), ..*event }),
            None => each(event),
        }
    })
}

impl Choice<'_> {
    fn event(&mut self, event: usize, activity: &Activity<'_>, category: &str, trace: &Activities) {
        let filter = self.filter;
        let at_ns = activity.time_ns.map(|ns| ns.saturating_add(self.base_ns));
        let wanted = filter.has_category(category);
        // An event without a time counts as inside of the window.
        let in_window = at_ns.is_none_or(|at| filter.has_moment(at));
        let name = || activity.name.and_then(|name| trace.text(name)).unwrap_or("").to_owned();
        let id = || activity.id.unwrap_or("").to_owned();
        match activity.form {
            b'M' => self.keep.set(event),
            b's' | b't' | b'f' => {
                let known = self.arrows.len();
                let arrow = (category.to_owned(), name(), id());
                let arrow = *self.arrows.entry(arrow).or_insert(known);
                let (row, form) = (activity.row, activity.form);
                self.ends.push(End { event, row, at_ns, form, arrow });
            }
            b'X' => {
                let duration = activity.duration_ns.unwrap_or(0).max(0);
                let times = at_ns.map(|at| (at, at.saturating_add(duration)));
                self.slice(&[event], activity.row, wanted, times);
            }
            b'B' => {
                let begun = Begun { event, at_ns, wanted };
                self.begun.entry(activity.row.0).or_default().push(begun);
            }
            b'E' => match self.begun.get_mut(&activity.row.0).and_then(Vec::pop) {
                Some(begun) => {
                    let times = begun.at_ns.zip(at_ns);
                    self.slice(&[begun.event, event], activity.row, begun.wanted, times);
                }
                None => self.keep.left_out.slices += 1,
            },
            b'b' => {
                let begun = Begun { event, at_ns, wanted };
                self.begun_async.entry((category.to_owned(), id())).or_default().push(begun);
            }
            b'e' => {
                let key = (category.to_owned(), id());
                match self.begun_async.get_mut(&key).and_then(Vec::pop) {
                    Some(begun) => {
                        let times = begun.at_ns.zip(at_ns);
                        self.both(&[begun.event, event], begun.wanted, times);
                    }
                    None => self.keep.left_out.slices += 1,
                }
            }
            b'C' if wanted && in_window => self.keep.set(event),
            b'C' => {
                self.keep.left_out.points += 1;
                if let Some(at) = at_ns.filter(|at| wanted && filter.is_early(*at)) {
                    let process = trace.row(activity.row).0.unwrap_or("").to_owned();
                    let last = self.before.entry((process, name(), id())).or_insert((at, event));
                    if last.0 <= at {
                        *last = (at, event);
                    }
                }
            }
            _ if wanted && in_window => self.keep.set(event),
            _ => self.keep.left_out.slices += 1,
        }
    }

    /// Decides whether the events of a slice (its start and its end, or its only event) are kept:
    /// all of them, or none.
    fn both(&mut self, events: &[usize], wanted: bool, times: Option<(i64, i64)>) -> bool {
        let in_window = times.is_none_or(|(from, to)| self.filter.has_time(from, to));
        if wanted && in_window {
            events.iter().for_each(|event| self.keep.set(*event));
            return true;
        }
        self.keep.left_out.slices += 1;
        false
    }

    fn slice(&mut self, events: &[usize], row: RowId, wanted: bool, times: Option<(i64, i64)>) {
        if self.both(events, wanted, times) {
            self.slices.entry(row.0).or_default().extend(times);
        }
    }

    fn finish(mut self) -> Keep {
        // A slice without an end lasts to the end of the trace.
        for (row, all) in std::mem::take(&mut self.begun) {
            for begun in all {
                let times = begun.at_ns.map(|at| (at, i64::MAX));
                self.slice(&[begun.event], RowId(row), begun.wanted, times);
            }
        }
        for begun in std::mem::take(&mut self.begun_async).into_values().flatten() {
            let times = begun.at_ns.map(|at| (at, i64::MAX));
            self.both(&[begun.event], begun.wanted, times);
        }
        for (at, event) in std::mem::take(&mut self.before).into_values() {
            self.keep.left_out.points -= 1;
            self.keep.set(event);
            let from = self.filter.from_ns.unwrap_or(at);
            self.keep.moved.insert(event, from.saturating_sub(self.base_ns));
        }
        self.arrows();
        self.keep
    }

    /// Keeps the events of an arrow that are at kept slices, if the start and the finish of the
    /// arrow are among them.
    fn arrows(&mut self) {
        for slices in self.slices.values_mut() {
            slices.sort_unstable();
            // The end of each slice is replaced by the latest end of this slice and those that
            // began before it.
            let mut latest = i64::MIN;
            for (_, end) in slices {
                latest = latest.max(*end);
                *end = latest;
            }
        }
        let at_slice = |end: &End| {
            let slices = self.slices.get(&end.row.0);
            slices.zip(end.at_ns).is_some_and(|(slices, at)| {
                let begun = slices.partition_point(|(start, _)| *start <= at);
                begun > 0 && slices[begun - 1].1 >= at
            })
        };
        let mut whole = vec![[false; 2]; self.arrows.len()];
        for end in self.ends.iter().filter(|end| at_slice(end)) {
            match end.form {
                b's' => whole[end.arrow][0] = true,
                b'f' => whole[end.arrow][1] = true,
                _ => {}
            }
        }
        for end in &self.ends {
            if whole[end.arrow] == [true; 2] && at_slice(end) {
                self.keep.set(end.event);
            } else {
                self.keep.left_out.arrow_ends += 1;
            }
        }
    }
}
