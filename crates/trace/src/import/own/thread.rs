//! Puts the calls of one thread from the order of the events back into pages.

use std::collections::HashMap;

use profile::raw::{Drawn, PageFacts, RawCall, RawCalls};

use super::call::CallArgs;
use super::counters::Counters;
use crate::round_trip::events::{PageArgs, by_ends};

/// Number of calls in a page that the trace does not describe.
const MADE_CALLS: usize = 2048;
/// More calls than a page can hold, whatever the trace says.
const MOST_CALLS: usize = 1 << 16;

/// A thread of the trace.
#[derive(Debug, Default)]
pub(super) struct Thread {
    /// The page to which the next calls belong.
    page: Option<PageArgs>,
    /// Its kernel thread id, if an event has one.
    pub tid: Option<u32>,
    name: Option<String>,
    next_sequence: u32,
    held: Vec<Held>,
    values: Vec<Option<u64>>,
    groups: Vec<Option<(u64, u64)>>,
    extras: Vec<(usize, u32, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    call: RawCall,
    drawn: Drawn,
    /// Whether the workgroup is known.
    placed: bool,
    monotonic_ns: u64,
}

impl Thread {
    /// Starts a page. The previous one was flushed.
    pub fn begin(&mut self, page: PageArgs) {
        self.tid = Some(page.page.tid);
        self.name.clone_from(&page.page.name);
        self.page = Some(page);
    }

    pub fn push(
        &mut self,
        export: u32,
        (start, duration): (u64, u64),
        monotonic_ns: u64,
        args: &CallArgs,
    ) {
        let at = self.held.len();
        let call = RawCall {
            export,
            workgroup: args.workgroup.unwrap_or_default(),
            count: args.workgroups.unwrap_or_default(),
            worker: args.worker.unwrap_or(0),
            location: args.node << 12 | args.cpu & 0xfff,
            start,
            end: start.wrapping_add(duration),
        };
        // A record has either all of it or nothing.
        let placed = args.workgroup.is_some() && args.worker.is_some();
        let drawn = args.drawn.map_or(Drawn::default(), |(period, counter_period, skipped)| {
            Drawn { period: period.max(1), counter_period: counter_period.max(1), skipped }
        });
        self.held.push(Held { call, drawn, placed, monotonic_ns });
        self.values.extend_from_slice(&args.values);
        self.groups.extend_from_slice(&args.groups);
        self.extras.extend(args.extras.iter().map(|(key, bits)| (at, *key, *bits)));
    }

    /// Whether the page has all its calls.
    pub fn is_full(&self) -> bool {
        self.held.len()
            >= self.page.as_ref().map_or(MADE_CALLS, |page| page.page.calls.min(MOST_CALLS))
    }

    /// Passes the page to `write`, which returns how many of its calls did not fit. Returns whether
    /// the calls differ from those that the page had.
    pub fn flush(
        &mut self,
        (process, uid, pass): (usize, u32, u32),
        counts: &HashMap<u32, [u32; 3]>,
        counters: &Counters,
        mut write: impl FnMut(&PageFacts, &RawCalls) -> profile::Result<usize>,
    ) -> profile::Result<bool> {
        let page = self.page.take();
        if page.is_none() && self.held.is_empty() {
            return Ok(false);
        }
        let mixed = page.as_ref().is_some_and(|page| page.page.calls != self.held.len());
        let (mut facts, order) = match page {
            Some(page) => (page.page, page.order),
            None => (self.made_up(process, uid, counters.mask(pass)), Vec::new()),
        };
        facts.sequence = facts.sequence.max(self.next_sequence);
        let mut calls = self.ordered(&order, mixed, counts, counters, facts.counters);
        if mixed {
            // The calls before a clock record are those that had ended by then.
            let mut before = 0;
            for clock in &mut facts.clocks {
                let ended = calls.calls[before..].iter().take_while(|c| c.end <= clock.0).count();
                before += ended;
                clock.3 = before;
            }
        }
        loop {
            let left = write(&facts, &calls)?;
            self.next_sequence = facts.sequence.saturating_add(1);
            let kept = calls.calls.len() - left;
            if left == 0 || kept == 0 {
                break;
            }
            // The calls do not fit if their order has changed.
            calls.drop_first(kept, counters.count(), counters.groups().len());
            facts.clocks.clear();
            facts.sequence = self.next_sequence;
        }
        self.held.clear();
        self.values.clear();
        self.groups.clear();
        self.extras.clear();
        Ok(mixed)
    }

    /// Makes up a page that no event describes.
    fn made_up(&self, process: usize, thread: u32, counters: u32) -> PageFacts {
        let first = self.held.first();
        let ticks = first.map_or(0, |held| held.call.start);
        PageFacts {
            process,
            thread,
            tid: self.tid.unwrap_or(0),
            name: self.name.clone(),
            sequence: self.next_sequence,
            counters,
            base: [ticks, 0, first.map_or(0, |held| held.monotonic_ns)],
            ..PageFacts::default()
        }
    }

    /// The calls in the order in which they were recorded.
    fn ordered(
        &self,
        order: &[u32],
        mixed: bool,
        counts: &HashMap<u32, [u32; 3]>,
        counters: &Counters,
        mask: u32,
    ) -> RawCalls {
        let mut places: Vec<Option<usize>> = vec![None; self.held.len()];
        for (at, place) in order.iter().enumerate() {
            if let Some(free) = places.get_mut(*place as usize).filter(|p| p.is_none()) {
                *free = Some(at);
            }
        }
        let ends = self.held.iter().map(|held| {
            let ticks = held.call.end.wrapping_sub(held.call.start);
            let ticks = if ticks > i64::MAX as u64 { 0 } else { ticks };
            (held.call.start, held.call.start.saturating_add(ticks))
        });
        let told = !mixed && order.len() == places.len();
        let places: Vec<usize> = match places.into_iter().collect::<Option<Vec<usize>>>() {
            Some(places) if told => places,
            _ => by_ends(ends),
        };
        let mut extras: HashMap<usize, Vec<(u32, u64)>> = HashMap::new();
        for (of, key, bits) in &self.extras {
            extras.entry(*of).or_default().push((*key, *bits));
        }
        let (counters_each, groups_each) = (counters.count(), counters.groups().len());
        let mut calls = RawCalls::default();
        for (at, place) in places.iter().enumerate() {
            let held = &self.held[*place];
            let mut call = held.call;
            if held.placed && call.count == [0; 3] {
                call.count = counts.get(&call.export).copied().unwrap_or_default();
            }
            if !held.placed || call.count == [0; 3] {
                (call.count, call.workgroup, call.worker) = ([0; 3], [0; 3], 0);
            }
            calls.calls.push(call);
            calls.drawn.push(held.drawn);
            let values = &self.values[place * counters_each..][..counters_each];
            let groups = &self.groups[place * groups_each..][..groups_each];
            calls.values.extend(values.iter().map(|value| value.unwrap_or(0)));
            calls.groups.extend(groups.iter().zip(counters.groups()).map(|(times, range)| {
                let known = |i: usize| mask >> i & 1 == 0 || values[i].is_some();
                times.filter(|_| range.clone().all(known))
            }));
            let more = extras.get(place).into_iter().flatten();
            calls.extras.extend(more.map(|(key, bits)| (at, *key, *bits)));
        }
        calls
    }
}
