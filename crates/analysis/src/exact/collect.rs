//! Collects the exact statistics of a profile's calls.

use std::collections::HashMap;

use profile::{Columns, Profile};

use super::{Exact, ExactRow, Moments};
use crate::amounts::{Brackets, PARTS, parts};
use crate::forest::{Mark, Marks, NO_ROW, Rows};
use crate::table::{By, Key, Places, Selection};
use crate::walk::{Adder, walk};

/// Reads all calls of a profile and returns their exact statistics. With `raw`, durations are used
/// as recorded; callers should pass [`Summary::raw`](crate::Summary::raw) of the same profile. For
/// a run with a budget (a limit for the cost of recording), the result has no rows.
pub fn exact(profile: &Profile, raw: bool) -> Exact {
    let mut all = Exact::default();
    if profile.is_sampled() {
        return all;
    }
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let by = Selection { by: By::OpInProcess, ..Selection::default() };
    let (places, brackets) = (Places::new(profile, &by), Brackets::new(profile, raw));
    let ns_per_part = profile.timeline.ns_per_tick() / PARTS as f64;
    let make = || Collector::new(profile, &places, ns_per_part);
    for part in walk(profile, workers, &brackets, None, make).parts {
        all.merge(part.finish());
    }
    all
}

struct Collector<'a> {
    profile: &'a Profile,
    places: &'a Places<'a>,
    ns_per_part: f64,
    rows: HashMap<Key, u32>,
    sums: Vec<ExactRow>,
    /// For each export (number of an executable's function) that was found in the thread
    /// `known_of`: the index of its row in `sums`, or `NO_ROW`.
    known: HashMap<u32, u32>,
    known_of: Option<(usize, usize)>,
    page_rows: Vec<u32>,
}

impl<'a> Collector<'a> {
    fn new(profile: &'a Profile, places: &'a Places<'a>, ns_per_part: f64) -> Self {
        Self {
            profile,
            places,
            ns_per_part,
            rows: HashMap::new(),
            sums: Vec::new(),
            known: HashMap::new(),
            known_of: None,
            page_rows: Vec::new(),
        }
    }

    fn find_rows(&mut self, columns: &Columns) {
        let thread = (columns.process, columns.thread);
        if self.known_of != Some(thread) {
            self.known.clear();
            self.known_of = Some(thread);
        }
        self.page_rows.clear();
        let counters = self.profile.groups.counters();
        for export in &columns.export {
            let row = *self.known.entry(*export).or_insert_with(|| {
                let Some(key) = self.places.row(self.profile, thread, *export) else {
                    return NO_ROW;
                };
                *self.rows.entry(key).or_insert_with(|| {
                    let counters = vec![Moments::default(); counters];
                    self.sums.push(ExactRow { counters, ..ExactRow::default() });
                    self.sums.len() as u32 - 1
                })
            });
            self.page_rows.push(row);
        }
    }

    fn finish(self) -> Exact {
        let mut sums: Vec<Option<ExactRow>> = self.sums.into_iter().map(Some).collect();
        let rows = self.rows.into_iter();
        let rows = rows.filter_map(|(key, at)| Some((key, sums.get_mut(at as usize)?.take()?)));
        Exact { rows: rows.collect() }
    }
}

impl Rows for Collector<'_> {
    fn rows_of(&mut self, columns: &Columns, rows: &mut Vec<u32>) {
        self.find_rows(columns);
        rows.extend_from_slice(&self.page_rows);
    }
}

impl Adder for Collector<'_> {
    fn add(&mut self, columns: &Columns, brackets: &Brackets, marks: Option<&Marks>) {
        self.find_rows(columns);
        let classes = brackets.page(columns);
        let groups = self.profile.groups.all();
        for (i, row) in self.page_rows.iter().enumerate() {
            let Some(sum) = self.sums.get_mut(*row as usize) else { continue };
            let duration = parts(columns.duration(i));
            let mark = match marks {
                Some(marks) => marks.of(i),
                None => Mark::of_flat(duration, classes.of(columns, i), brackets),
            };
            if mark.inner {
                continue;
            }
            let ns = ((duration - mark.taken) as f64 * self.ns_per_part).round() as u64;
            sum.durations.add(ns);
            for (g, group) in groups.iter().enumerate() {
                for counter in group.counters.clone() {
                    if let Some(value) = columns.value(g, counter, i) {
                        sum.counters[counter].add(ns, value);
                    }
                }
            }
        }
    }
}
