//! Selects a part of a timeline: certain categories, and a window (a range of time).
//!
//! Items that overlap the window are not cut:
//!
//! | item | the item is kept if |
//! |---|---|
//! | slice | its category is wanted, and a part of the slice is in the window |
//! | moment | its category is wanted, and the moment is in the window |
//! | point of a time series | its category is wanted, and the point is in the window; the last one before the window is moved to the window's start, because its value still holds there |
//! | arrow | both of its ends are at slices or moments that are kept |
//! | names of rows | always |
//!
//! A point that is stored with a slice is at the slice's start. It is kept if its category is
//! wanted and a part of the slice is in the window. Which arrows have both ends in the kept part is
//! known only at the end of the timeline. So a timeline is passed through twice: first by [`Ends`],
//! then by [`Part`]. Imported traces are filtered by `activities::keep`.

use std::collections::{HashMap, HashSet};
use std::io;

use model::activity::Value;
use model::glob;
use serde::Serialize;
use serde_json::json;

use crate::timeline::{
    Arg, ArgValue, Flow, FlowEnd, Id, Instant, ProcessRow, Row, SeriesPoint, Slice, ThreadRow,
    TimelineSink,
};

/// The part of a timeline that is wanted. Times are nanoseconds since 1970.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Filter {
    /// Patterns, one of which must match the category. If there are none, all categories are
    /// wanted.
    pub categories: Vec<String>,
    /// The start of the window; `None` for the beginning of the timeline.
    pub from_ns: Option<i64>,
    /// The first moment after the window; `None` for the end of the timeline.
    pub to_ns: Option<i64>,
}

/// The part of a timeline that is wanted. Times are relative to the timeline's first moment.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// See [`Filter::categories`].
    pub categories: Vec<String>,
    /// In ns after the first moment; see [`Filter::from_ns`].
    pub from_ns: Option<u64>,
    /// In ns after the first moment; see [`Filter::to_ns`].
    pub to_ns: Option<u64>,
}

impl Wish {
    /// Returns whether the whole timeline is wanted.
    pub fn is_all(&self) -> bool {
        self.categories.is_empty() && self.from_ns.is_none() && self.to_ns.is_none()
    }

    /// Returns the filter for a timeline that begins at this moment.
    pub fn since(&self, first_ns: i64) -> Filter {
        let at = |ns: u64| first_ns.saturating_add_unsigned(ns);
        Filter {
            categories: self.categories.clone(),
            from_ns: self.from_ns.map(at),
            to_ns: self.to_ns.map(at),
        }
    }
}

/// The version of the object `counterpoint` in an output with a part of a trace, or with several
/// profiles.
pub const PART_SCHEMA: &str = "counterpoint.trace-part/1";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Slices and moments.
    pub slices: u64,
    /// Points of time series.
    pub points: u64,
    pub arrow_ends: u64,
}

impl LeftOut {
    pub fn and(self, other: Self) -> Self {
        Self {
            slices: self.slices + other.slices,
            points: self.points + other.points,
            arrow_ends: self.arrow_ends + other.arrow_ends,
        }
    }
}

impl Filter {
    /// Returns the object `counterpoint` for an output with a part of a trace, or with several
    /// profiles.
    pub fn facts(&self) -> serde_json::Value {
        json!({ "schema": PART_SCHEMA, "filter": self })
    }

    /// Returns whether the category is wanted.
    pub fn has_category(&self, category: &str) -> bool {
        let mut patterns = self.categories.iter();
        self.categories.is_empty() || patterns.any(|pattern| glob::matches(pattern, category))
    }

    /// Returns whether a moment is in the window.
    pub fn has_moment(&self, at_ns: i64) -> bool {
        !self.is_early(at_ns) && self.to_ns.is_none_or(|to| at_ns < to)
    }

    /// Returns whether a moment is before the window.
    pub fn is_early(&self, at_ns: i64) -> bool {
        self.from_ns.is_some_and(|from| at_ns < from)
    }

    /// Returns whether a slice overlaps the window. A slice of length 0 counts as a moment.
    pub fn has_time(&self, start_ns: i64, end_ns: i64) -> bool {
        if start_ns >= end_ns {
            return self.has_moment(start_ns);
        }
        self.from_ns.is_none_or(|from| end_ns > from) && self.to_ns.is_none_or(|to| start_ns < to)
    }

    fn has_slice(&self, slice: &Slice<'_>) -> bool {
        let end_ns = slice.start_ns.saturating_add_unsigned(slice.duration_ns);
        self.has_category(slice.category) && self.has_time(slice.start_ns, end_ns)
    }

    fn has_instant(&self, instant: &Instant<'_>) -> bool {
        self.has_category(instant.category) && self.has_moment(instant.at_ns)
    }
}

/// Finds the earliest time in a timeline.
#[derive(Debug, Default)]
pub struct First {
    /// The earliest time of a slice, moment or point so far.
    pub at_ns: Option<i64>,
}

impl First {
    fn note(&mut self, at_ns: i64) -> io::Result<()> {
        self.at_ns = Some(self.at_ns.map_or(at_ns, |known| known.min(at_ns)));
        Ok(())
    }
}

impl TimelineSink for First {
    fn process(&mut self, _: &ProcessRow<'_>) -> io::Result<()> {
        Ok(())
    }
    fn thread(&mut self, _: &ThreadRow<'_>) -> io::Result<()> {
        Ok(())
    }
    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        self.note(slice.start_ns)
    }
    fn instant(&mut self, instant: &Instant<'_>) -> io::Result<()> {
        self.note(instant.at_ns)
    }
    fn counter(&mut self, counter: &SeriesPoint<'_>) -> io::Result<()> {
        self.note(counter.at_ns)
    }
}

/// Passes a timeline on to another sink, and records the earliest time in the timeline.
#[derive(Debug)]
pub struct Noted<'a, S> {
    sink: &'a mut S,
    first: First,
}

impl<'a, S> Noted<'a, S> {
    /// Creates a sink that passes everything on to `sink`.
    pub fn new(sink: &'a mut S) -> Self {
        Self { sink, first: First::default() }
    }

    /// Returns the earliest time of a slice, moment or point that was passed on.
    pub fn first(&self) -> Option<i64> {
        self.first.at_ns
    }
}

impl<S: TimelineSink> TimelineSink for Noted<'_, S> {
    fn process(&mut self, process: &ProcessRow<'_>) -> io::Result<()> {
        self.sink.process(process)
    }
    fn thread(&mut self, thread: &ThreadRow<'_>) -> io::Result<()> {
        self.sink.thread(thread)
    }
    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        self.first.slice(slice)?;
        self.sink.slice(slice)
    }
    fn instant(&mut self, instant: &Instant<'_>) -> io::Result<()> {
        self.first.instant(instant)?;
        self.sink.instant(instant)
    }
    fn counter(&mut self, counter: &SeriesPoint<'_>) -> io::Result<()> {
        self.first.counter(counter)?;
        self.sink.counter(counter)
    }
}

/// Finds the arrows with both ends in the wanted part.
#[derive(Debug)]
pub struct Ends<'a> {
    filter: &'a Filter,
    started: HashSet<u64>,
    finished: HashSet<u64>,
}

impl<'a> Ends<'a> {
    /// Creates a sink that records the ends of arrows at the slices and moments that `filter`
    /// keeps.
    pub fn new(filter: &'a Filter) -> Self {
        Self { filter, started: HashSet::new(), finished: HashSet::new() }
    }

    fn note(&mut self, flows: &[Flow<'_>]) {
        for flow in flows {
            match flow.end {
                FlowEnd::Start => self.started.insert(flow.id),
                FlowEnd::Finish => self.finished.insert(flow.id),
            };
        }
    }

    /// Returns the ids of the arrows whose ends are both kept.
    pub fn whole(mut self) -> HashSet<u64> {
        self.started.retain(|id| self.finished.contains(id));
        self.started
    }
}

impl TimelineSink for Ends<'_> {
    fn process(&mut self, _: &ProcessRow<'_>) -> io::Result<()> {
        Ok(())
    }
    fn thread(&mut self, _: &ThreadRow<'_>) -> io::Result<()> {
        Ok(())
    }
    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        if self.filter.has_slice(slice) {
            self.note(slice.flows);
        }
        Ok(())
    }
    fn instant(&mut self, instant: &Instant<'_>) -> io::Result<()> {
        if self.filter.has_instant(instant) {
            self.note(instant.flows);
        }
        Ok(())
    }
    fn counter(&mut self, _: &SeriesPoint<'_>) -> io::Result<()> {
        Ok(())
    }
}

/// Passes the wanted part of a timeline on.
#[derive(Debug)]
pub struct Part<'a, S> {
    sink: &'a mut S,
    filter: &'a Filter,
    arrows: HashSet<u64>,
    /// The last wanted point before the window, for each combination of process, counter name, and
    /// name of the point's first series.
    before: HashMap<(i64, String, String), Before>,
    left_out: LeftOut,
}

/// A point before the window, with the numbers of its process and thread.
#[derive(Debug)]
struct Before {
    row: (i64, i64),
    category: String,
    at_ns: i64,
    /// Name, value and unit of each series.
    series: Vec<(String, f64, String)>,
}

impl<'a, S: TimelineSink> Part<'a, S> {
    /// `arrows` is what [`Ends::whole`] returned for the same filter.
    pub fn new(sink: &'a mut S, filter: &'a Filter, arrows: HashSet<u64>) -> Self {
        let left_out = LeftOut::default();
        Self { sink, filter, arrows, before: HashMap::new(), left_out }
    }

    /// Writes the points that are moved to the start of the window, and returns what was left out.
    pub fn finish(self) -> io::Result<LeftOut> {
        let mut points: Vec<_> = self.before.into_iter().collect();
        points.sort_by(|a, b| a.0.cmp(&b.0));
        let mut left_out = self.left_out;
        for ((_, name, _), point) in points {
            left_out.points -= point.series.len() as u64;
            let (process, thread) = point.row;
            let float = |(key, value, _): &'_ (String, f64, String)| (key.clone(), *value);
            let known: Vec<_> = point.series.iter().map(float).collect();
            let series: Vec<Arg<'_>> = known
                .iter()
                .map(|(key, n)| Arg { key, value: ArgValue::Plain(Value::Float(*n)) })
                .collect();
            let units = point.series.iter().map(|(key, _, unit)| (key.as_str(), unit.as_str()));
            let units: Vec<_> = units.collect();
            self.sink.counter(&SeriesPoint {
                row: Row { process: Id::Number(process), thread: Id::Number(thread) },
                category: &point.category,
                name: &name,
                at_ns: self.filter.from_ns.unwrap_or(point.at_ns).max(point.at_ns),
                series: &series,
                label: None,
                units: &units,
            })?;
        }
        Ok(left_out)
    }

    fn flows<'f>(&mut self, flows: &[Flow<'f>]) -> Vec<Flow<'f>> {
        let kept = flows.iter().filter(|flow| self.arrows.contains(&flow.id));
        let kept: Vec<_> = kept.copied().collect();
        self.left_out.arrow_ends += (flows.len() - kept.len()) as u64;
        kept
    }
}

impl<S: TimelineSink> TimelineSink for Part<'_, S> {
    fn process(&mut self, process: &ProcessRow<'_>) -> io::Result<()> {
        self.sink.process(process)
    }

    fn thread(&mut self, thread: &ThreadRow<'_>) -> io::Result<()> {
        self.sink.thread(thread)
    }

    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        let has_slice = self.filter.has_slice(slice);
        let end_ns = slice.start_ns.saturating_add_unsigned(slice.duration_ns);
        let has_time = self.filter.has_time(slice.start_ns, end_ns);
        let wanted =
            |counter: &&SeriesPoint<'_>| has_time && self.filter.has_category(counter.category);
        let counters: Vec<_> = slice.counters.iter().filter(wanted).copied().collect();
        let points = |counters: &[SeriesPoint<'_>]| {
            counters.iter().map(|counter| counter.series.len() as u64).sum::<u64>()
        };
        self.left_out.points += points(slice.counters) - points(&counters);
        if has_slice {
            let flows = self.flows(slice.flows);
            return self.sink.slice(&Slice { flows: &flows, counters: &counters, ..*slice });
        }
        self.left_out.slices += 1;
        self.left_out.arrow_ends += slice.flows.len() as u64;
        counters.iter().try_for_each(|counter| self.sink.counter(counter))
    }

    fn instant(&mut self, instant: &Instant<'_>) -> io::Result<()> {
        if self.filter.has_instant(instant) {
            let flows = self.flows(instant.flows);
            return self.sink.instant(&Instant { flows: &flows, ..*instant });
        }
        self.left_out.slices += 1;
        self.left_out.arrow_ends += instant.flows.len() as u64;
        Ok(())
    }

    fn counter(&mut self, counter: &SeriesPoint<'_>) -> io::Result<()> {
        let wanted = self.filter.has_category(counter.category);
        if wanted && self.filter.has_moment(counter.at_ns) {
            return self.sink.counter(counter);
        }
        self.left_out.points += counter.series.len() as u64;
        let (Id::Number(process), Id::Number(thread)) = (counter.row.process, counter.row.thread)
        else {
            return Ok(());
        };
        if !wanted || !self.filter.is_early(counter.at_ns) {
            return Ok(());
        }
        let unit = |key: &str| {
            let unit = counter.units.iter().find(|(of, _)| *of == key);
            unit.map_or(String::new(), |(_, unit)| (*unit).to_owned())
        };
        let series = counter.series.iter().filter_map(|arg| match arg.value {
            ArgValue::Plain(Value::Float(n)) => Some((arg.key.to_owned(), n, unit(arg.key))),
            ArgValue::Plain(Value::Uint(n)) => Some((arg.key.to_owned(), n as f64, unit(arg.key))),
            _ => None,
        });
        let point = Before {
            row: (process, thread),
            category: counter.category.to_owned(),
            at_ns: counter.at_ns,
            series: series.collect(),
        };
        let Some(first) = counter.series.first().map(|arg| arg.key.to_owned()) else {
            return Ok(());
        };
        let key = (process, counter.name.to_owned(), first);
        let later = self.before.get(&key).is_none_or(|known| known.at_ns <= point.at_ns);
        if later {
            self.before.insert(key, point);
        }
        Ok(())
    }
}
