//! Computes the self times of nested calls, and the other values that a [`Mark`] contains.
//!
//! ```text
//!  a thread's pages over time   ├ 1 ┤ ├ 2 ┤   ├──── 5 ────┤   ├ 6 ┤
//!                                               ├ 3 ┤ ├ 4 ┤
//!                               flat  flat      one cluster   nested calls: a cluster, too
//! ```
//!
//! A page is a block of one thread's records. The calls of a *flat* page are not nested in each
//! other. If a flat page also overlaps no other page of its thread, none of its calls is in another
//! call. So the self time of each of its calls is the call's duration, and each of them is
//! outermost. All other pages form clusters. A cluster is one page with nested calls, or several
//! pages that overlap in time ([`crate::clusters`]). The calls of a cluster must be processed in
//! the order in which they begin. The calls in a page can be in another order, because calls are
//! recorded when they end, and imported traces can have any order. Sorting all calls of a large
//! cluster at once would take too much memory, so the calls are collected in rounds. Each round
//! takes as many of the earliest remaining calls as fit into a buffer, and decodes the pages that
//! may contain some of them. The mark of a call (its computed values) takes 13 bytes, or 17 with a
//! tree node, and is kept until all calls of its page have ended. At the end of that round, the
//! page and its marks are passed to `Marked::page`.
//!
//! **Compensation.** A bracket is the recorder's work before and after a call. A call gets longer
//! by a part of its own bracket, and by the whole brackets of all calls inside. The part of an
//! inner call's bracket that is outside of that call's duration is in the self time of the call
//! around it. Below, *taken of own* is the time that brackets added to a call's self time, and
//! *taken* is the time that they added to its duration:
//!
//! ```text
//!  taken of own = in its duration + Σ over calls directly inside of (whole − in its duration)
//!  taken        = taken of own + Σ over calls directly inside of their taken
//! ```
//!
//! The time that brackets added to a call's self time cannot be longer than that self time. So at
//! most the whole self time is subtracted. No time becomes negative, and no self time becomes
//! longer than the duration.

mod decoded;

use std::collections::HashMap;
use std::iter::repeat_n;
use std::sync::mpsc::{channel, sync_channel};

use profile::{Columns, Origin, Profile};

pub(crate) use crate::amounts::Mark;
use crate::amounts::{Brackets, parts};
use crate::clusters::PageSpan;
use crate::gaps::{Ended, Gathered, Stretch};
use crate::innermost::Innermost;
use decoded::{AHEAD, Ahead, Decoded, decode_ahead};

/// Number of calls that a round takes at first. Up to twice as many calls are in memory, at 48
/// bytes each. The decoded pages in memory contain about [`PAGES_OF_ROUNDS`] times as many calls as
/// a round. A small round stays in the processor's caches.
const FIRST_ROUND: usize = 1 << 14;

/// The largest number of calls that a round takes. Rounds grow if single pages contain calls of
/// many rounds, as in imported traces whose calls are in any order. With small rounds, each round
/// would decode all of these pages.
pub(crate) const ROUND: usize = 1 << 18;

/// The decoded pages that are kept contain about as many calls as this number of rounds takes. To
/// find the earliest calls, a round usually looks at more than twice as many calls as it takes. The
/// next round needs most of the pages that this round has used.
const PAGES_OF_ROUNDS: usize = 4;

/// A round is too small if it looks at more than this many times the number of calls that it takes.
const LOOKED_AT: usize = 3;

/// Clusters with fewer pages are decoded by the thread that marks them: starting another thread
/// would take as long as decoding.
const FEWEST_AHEAD: usize = 4;

/// Stands for "no row" or "no node".
pub(crate) const NO_ROW: u32 = u32::MAX;

/// Assigns calls to rows of a table, and to the nodes of a tree of calls.
pub(crate) trait Rows {
    /// Appends the row of each call of a page, or [`NO_ROW`] for a call without a row.
    fn rows_of(&mut self, columns: &Columns, rows: &mut Vec<u32>);

    /// Returns the tree node for a call of `row` that is directly inside of a call of the node
    /// `parent`, or [`NO_ROW`].
    fn child(&mut self, _parent: u32, _row: u32) -> u32 {
        NO_ROW
    }
}

pub(crate) trait Marked: Rows {
    /// Receives the marks of the calls of a page, once for each page, in any order. `number` is the
    /// page's index in its cluster.
    fn page(&mut self, number: usize, columns: &Columns, marks: Marks);
}

/// Keeps the marks of all pages. It assigns no nodes.
struct OnlyRows<F> {
    rows: F,
    marks: Vec<Marks>,
}

impl<F: FnMut(&Columns, &mut Vec<u32>)> Rows for OnlyRows<F> {
    fn rows_of(&mut self, columns: &Columns, rows: &mut Vec<u32>) {
        (self.rows)(columns, rows);
    }
}

impl<F: FnMut(&Columns, &mut Vec<u32>)> Marked for OnlyRows<F> {
    fn page(&mut self, number: usize, _: &Columns, marks: Marks) {
        self.marks[number] = marks;
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    /// For each call: its self time, the time subtracted from the self time, and the time
    /// subtracted from the duration.
    parts: Vec<[u32; 3]>,
    inner: Vec<bool>,
    /// The node of each call; empty if no call has a node.
    nodes: Vec<u32>,
    /// Values that do not fit into `parts`, by index of the call and index in its element of
    /// `parts`.
    large: HashMap<(u32, u8), u64>,
}

impl Marks {
    fn set(&mut self, at: u32, mark: Mark, node: u32) {
        let calls = self.parts.len().max(at as usize + 1);
        self.parts.resize(calls, [0; 3]);
        self.inner.resize(calls, false);
        let parts = &mut self.parts[at as usize];
        let values = [mark.own, mark.own_taken, mark.taken];
        for (place, (part, value)) in (0..).zip(parts.iter_mut().zip(values)) {
            *part = u32::try_from(value).unwrap_or(u32::MAX);
            if *part == u32::MAX {
                self.large.insert((at, place), value);
            }
        }
        self.inner[at as usize] = mark.inner;
        if node != NO_ROW {
            self.nodes.resize(calls, NO_ROW);
            self.nodes[at as usize] = node;
        }
    }

    /// Returns the node of call `at` of the page; [`NO_ROW`] if it has none.
    pub fn node(&self, at: usize) -> u32 {
        self.nodes.get(at).copied().unwrap_or(NO_ROW)
    }

    pub fn of(&self, at: usize) -> Mark {
        let Some(parts) = self.parts.get(at) else { return Mark::default() };
        let value = |place: u8| match parts[usize::from(place)] {
            u32::MAX => self.large.get(&(at as u32, place)).copied().unwrap_or(0),
            value => value.into(),
        };
        Mark { own: value(0), own_taken: value(1), taken: value(2), inner: self.inner[at] }
    }
}

/// The results for a cluster besides the marks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    /// The time in which any call was running, in ticks.
    pub busy: u64,
    /// Number of calls that began inside of another call and ended after it; a lower bound.
    pub overlapping: u64,
}

/// A call. Calls have the order that [`Innermost`] needs: they are sorted by start. Of calls that
/// start together, the longest is first. Of two calls that also end together, the outer one is
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Begun {
    begin: u64,
    not_end: u64,
    order: u64,
    page: u32,
    at: u32,
    row: u32,
    export: u32,
    bracket: Option<u32>,
}

struct Open {
    /// The time that the call's own bracket, and the brackets of the calls directly inside, added
    /// to the call's self time.
    wanted: u64,
    /// The time that was subtracted from the durations of the calls directly inside.
    inside: u64,
    inner: bool,
    has_inside: bool,
    node: u32,
}

pub(crate) struct Marker<'a, 'b> {
    profile: &'a Profile,
    decoded: Decoded<'a>,
    /// Whether another thread decodes pages before they are needed.
    is_ahead: bool,
    brackets: &'b Brackets,
    /// The number of calls that a round takes: at present (`round`), in the first round of a
    /// cluster, and at most.
    round: usize,
    first_round: usize,
    largest_round: usize,
    calls: Vec<Begun>,
    rows: Vec<u32>,
}

impl<'a, 'b> Marker<'a, 'b> {
    pub fn new(profile: &'a Profile, brackets: &'b Brackets, round: Option<usize>) -> Self {
        let (round, largest_round) = match round {
            Some(round) => (round.max(1), round.max(1)),
            None => (FIRST_ROUND, ROUND),
        };
        Self {
            profile,
            decoded: Decoded::new(profile, PAGES_OF_ROUNDS * round),
            is_ahead: false,
            brackets,
            round,
            first_round: round,
            largest_round,
            calls: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Sets whether another thread decodes a cluster's pages before they are needed. Clusters of
    /// fewer than [`FEWEST_AHEAD`] pages are never decoded ahead.
    pub fn set_ahead(&mut self, is_ahead: bool) {
        self.is_ahead = is_ahead;
    }

    /// Computes the marks of all calls of these pages. The pages must belong to one thread. `rows`
    /// must append the row of each call of a page, or [`NO_ROW`].
    pub fn mark(
        &mut self,
        pages: &[PageSpan],
        rows: impl FnMut(&Columns, &mut Vec<u32>),
    ) -> (Vec<Marks>, Found) {
        let mut of = OnlyRows { rows, marks: repeat_n(Marks::default(), pages.len()).collect() };
        let found = self.mark_at(pages, &mut of, None);
        (of.marks, found)
    }

    /// Computes marks as [`Self::mark`] does, assigns nodes, and passes the pages with their marks
    /// to `places`. With `gaps`, collects the gaps between the outermost calls and, if `gaps` has
    /// `levels`, the times in the calls of each level of nesting.
    pub fn mark_at(
        &mut self,
        pages: &[PageSpan],
        places: &mut impl Marked,
        gaps: Option<&mut Gathered>,
    ) -> Found {
        self.round = self.first_round;
        self.decoded.most = PAGES_OF_ROUNDS * self.round;
        if !self.is_ahead || pages.len() < FEWEST_AHEAD {
            return self.mark_pages(pages, places, gaps);
        }
        let profile = self.profile;
        let ((to, from), (used, reused)) = (sync_channel(AHEAD), channel());
        std::thread::scope(|scope| {
            scope.spawn(move || decode_ahead(profile, pages, &to, &reused));
            let expected = pages.iter().map(|page| page.key).collect::<Vec<_>>().into_iter();
            self.decoded.begin_ahead(Ahead { expected, pages: from, used });
            let marker = EndsAhead(self);
            marker.0.mark_pages(pages, places, gaps)
        })
    }

    fn mark_pages(
        &mut self,
        pages: &[PageSpan],
        places: &mut impl Marked,
        mut gaps: Option<&mut Gathered>,
    ) -> Found {
        let mut stretch = pages.first().map(|page| Stretch::new(page.thread));
        let mut inner = Innermost::default();
        let mut walk = Walk {
            brackets: self.brackets,
            pages,
            marks: repeat_n(Marks::default(), pages.len()).collect(),
            left: vec![None; pages.len()],
            open: Vec::new(),
            of_row: Vec::new(),
        };
        // Pages from which some calls were taken, and whose marks were not passed to `places` yet.
        let mut begun: Vec<usize> = Vec::new();
        let mut after: Option<Begun> = None;
        loop {
            let more = self.bring(pages, after, places, &mut walk.left, &mut begun);
            for call in &self.calls {
                let end = u64::MAX - call.not_end;
                inner.call(call.begin, end, *call, |of, own| {
                    walk.end(&of, own, gaps.as_deref_mut());
                });
                if let (Some(gaps), Some(stretch), true) =
                    (gaps.as_deref_mut(), &mut stretch, walk.open.is_empty())
                {
                    let process = pages[call.page as usize].key.process;
                    stretch.call(gaps, (process as u32, call.export), call.begin, end);
                }
                walk.begin(call, places);
            }
            after = self.calls.last().copied();
            if !more {
                break;
            }
            begun.retain(|page| {
                let is_whole = walk.left[*page] == Some(0);
                if is_whole {
                    let marks = std::mem::take(&mut walk.marks[*page]);
                    places.page(*page, self.decoded.get(pages[*page].key), marks);
                }
                !is_whole
            });
        }
        inner.finish(|of, own| walk.end(&of, own, gaps.as_deref_mut()));
        for page in begun {
            let marks = std::mem::take(&mut walk.marks[page]);
            places.page(page, self.decoded.get(pages[page].key), marks);
        }
        if let (Some(gaps), Some(stretch)) = (gaps, stretch) {
            stretch.finish(gaps);
        }
        Found { busy: inner.busy(), overlapping: inner.overlapping() }
    }
}

/// Ends the thread that decodes pages ahead, also if marking panics. Otherwise, that thread would
/// wait forever to send its pages, and the scope would wait for that thread.
struct EndsAhead<'x, 'a, 'b>(&'x mut Marker<'a, 'b>);

impl Drop for EndsAhead<'_, '_, '_> {
    fn drop(&mut self) {
        self.0.decoded.end_ahead();
    }
}

/// The state while the calls of a cluster start and end.
struct Walk<'b> {
    brackets: &'b Brackets,
    pages: &'b [PageSpan],
    marks: Vec<Marks>,
    /// For each page from which calls were taken, the number of its calls that have not ended yet.
    left: Vec<Option<usize>>,
    open: Vec<Open>,
    /// For each row, the number of its calls that have begun and not ended.
    of_row: Vec<u32>,
}

impl Walk<'_> {
    fn begin(&mut self, call: &Begun, places: &mut impl Rows) {
        let mut inner = false;
        let around = self.open.last().map_or(NO_ROW, |open| open.node);
        let node = places.child(around, call.row);
        if call.row != NO_ROW {
            let row = call.row as usize;
            self.of_row.resize(self.of_row.len().max(row + 1), 0);
            inner = self.of_row[row] > 0;
            self.of_row[row] += 1;
        }
        let wanted = self.brackets.in_duration(call.bracket);
        self.open.push(Open { wanted, inside: 0, inner, has_inside: false, node });
    }

    fn end(&mut self, call: &Begun, own: u64, gaps: Option<&mut Gathered>) {
        let Some(open) = self.open.pop() else { return };
        if let Some(calls) = self.of_row.get_mut(call.row as usize) {
            *calls -= 1;
        }
        let (own, duration) = (parts(own), parts((u64::MAX - call.not_end) - call.begin));
        let own_taken = open.wanted.min(own);
        let taken = own_taken.saturating_add(open.inside).min(duration);
        let mark = Mark { own: own - own_taken, own_taken, taken, inner: open.inner };
        if let Some(marks) = self.marks.get_mut(call.page as usize) {
            marks.set(call.at, mark, open.node);
        }
        if let (Some(levels), Some(page)) =
            (gaps.and_then(|gaps| gaps.levels.as_mut()), self.pages.get(call.page as usize))
        {
            let op = (page.key.process as u32, call.export);
            let (depth, has_inside) = (self.open.len(), open.has_inside);
            levels.call(page.thread, &Ended { op, depth, duration, mark, has_inside });
        }
        if let Some(Some(left)) = self.left.get_mut(call.page as usize) {
            *left -= 1;
        }
        if let Some(around) = self.open.last_mut() {
            around.has_inside = true;
            around.wanted += self.brackets.outside(call.bracket);
            around.inside = around.inside.saturating_add(taken);
        }
    }
}

impl Marker<'_, '_> {
    /// Collects the next calls after the call `after` (or the first calls), in the order of
    /// [`Begun`]. Returns whether there are more calls.
    fn bring(
        &mut self,
        pages: &[PageSpan],
        after: Option<Begun>,
        places: &mut impl Rows,
        left: &mut [Option<usize>],
        begun: &mut Vec<usize>,
    ) -> bool {
        // The recorder writes calls when they end, so of two calls with equal times, it writes the
        // outer one last. Imported traces and the events of plugins contain the outer call first.
        let imported = self.profile.manifest.origin == Origin::Import;
        let mut most: Option<Begun> = None;
        let mut looked_at = 0;
        self.calls.clear();
        for (place, page) in (0u32..).zip(pages) {
            if after.is_some_and(|after| page.last_begin < after.begin) {
                continue;
            }
            if most.is_some_and(|most| page.first_begin > most.begin) {
                break;
            }
            let columns = self.decoded.get(page.key);
            looked_at += columns.len();
            let number = place as usize;
            if left[number].is_none() {
                left[number] = Some(columns.len());
                begun.push(number);
            }
            self.rows.clear();
            places.rows_of(columns, &mut self.rows);
            let of_plugins = self.profile.processes[page.key.process].id.is_of_plugins();
            let outer_is_first = imported || of_plugins;
            let brackets = self.brackets.page(columns);
            for (at, row) in (0u32..).zip(&self.rows) {
                let i = at as usize;
                let begin = columns.start_ticks[i];
                let end = begin.saturating_add(columns.duration(i));
                let order = (page.key.page as u64) << 32 | u64::from(at);
                let order = if outer_is_first { order } else { !order };
                let bracket = brackets.of(columns, i);
                let not_end = u64::MAX - end;
                let (row, export) = (*row, columns.export[i]);
                let call = Begun { begin, not_end, order, page: place, at, row, export, bracket };
                if after.is_some_and(|a| call <= a) || most.is_some_and(|most| call > most) {
                    continue;
                }
                self.calls.push(call);
                if self.calls.len() >= 2 * self.round {
                    most = keep(&mut self.calls, self.round);
                }
            }
        }
        if most.is_some() {
            keep(&mut self.calls, self.round);
        }
        self.calls.sort_unstable();
        // The last round takes all remaining calls, which may be few, so it does not show whether
        // rounds are too small.
        if most.is_some() && looked_at > LOOKED_AT * self.calls.len() {
            self.round = (2 * self.round).min(self.largest_round);
            self.decoded.most = PAGES_OF_ROUNDS * self.round;
        }
        most.is_some()
    }
}

/// Keeps the `n` calls that come first in the order of [`Begun`], and returns the last of them.
fn keep(calls: &mut Vec<Begun>, n: usize) -> Option<Begun> {
    if calls.len() > n {
        calls.select_nth_unstable(n - 1);
        calls.truncate(n);
    }
    calls.iter().max().copied()
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use profile::PageDecoder;
    use testkit::{CallScript, Item, ProfileScript};

    use super::*;
    use crate::clusters::clusters;

    /// Makes 41 pages that are one cluster: the call of the last page is around all others.
    fn nested() -> (testkit::Scratch, Profile) {
        let mut script = ProfileScript::monotonic();
        let process = script.process(1);
        process.library("m", &["outer", "inner"]);
        let thread = process.thread("main");
        for page in 0..40 {
            let start = 1_000 + 100 * page;
            for call in 0..3 {
                thread.call(CallScript::new(1, start + 10 * call, 10));
            }
            thread.then(Item::NextPage(start + 90, 0, 0));
        }
        thread.call(CallScript::new(0, 900, 5_000));
        script.opened()
    }

    fn spans(profile: &Profile) -> Vec<PageSpan> {
        let mut decoder = PageDecoder::new(profile);
        let mut span = |key: profile::PageKey| {
            let columns = decoder.decode(key);
            let ends = (0..columns.len()).map(|i| columns.start_ticks[i] + columns.duration(i));
            PageSpan {
                key,
                thread: (key.process, key.thread),
                first_begin: columns.start_ticks.iter().copied().min().unwrap_or(0),
                last_begin: columns.start_ticks.iter().copied().max().unwrap_or(0),
                last_end: ends.max().unwrap_or(0),
                flat: false,
            }
        };
        let spans: Vec<PageSpan> = profile.pages().into_iter().map(&mut span).collect();
        clusters(spans.into_iter()).remove(0)
    }

    #[derive(Default)]
    struct Sum {
        own: u64,
        pages: usize,
        panics_at: Option<usize>,
    }

    impl Rows for Sum {
        fn rows_of(&mut self, columns: &Columns, rows: &mut Vec<u32>) {
            rows.extend(&columns.export);
        }
    }

    impl Marked for Sum {
        fn page(&mut self, _: usize, columns: &Columns, marks: Marks) {
            assert!(self.panics_at != Some(self.pages), "as the test wants");
            self.pages += 1;
            self.own += (0..columns.len()).map(|at| marks.of(at).own).sum::<u64>();
        }
    }

    /// One marker processes the same pages three times, with and without decoding ahead. In small
    /// rounds, pages are needed again after they were dropped.
    #[test]
    fn decoding_ahead_changes_nothing() {
        let (_scratch, profile) = nested();
        let (spans, brackets) = (spans(&profile), Brackets::new(&profile, true));
        assert_eq!(spans.len(), 41);
        for round in [None, Some(1), Some(7), Some(64)] {
            let mut marker = Marker::new(&profile, &brackets, round);
            for is_ahead in [false, true, true] {
                marker.set_ahead(is_ahead);
                let mut sum = Sum::default();
                let found = marker.mark_at(&spans, &mut sum, None);
                assert_eq!((sum.pages, found.busy, found.overlapping), (41, 5_000, 0));
                assert_eq!(sum.own, parts(5_000), "self times add up to the outermost call");
            }
        }
    }

    /// The thread that decodes ahead waits until its pages are taken, so a panic of the marker must
    /// end that thread.
    #[test]
    fn a_panic_while_pages_are_decoded_ahead_ends() {
        let (_scratch, profile) = nested();
        let (spans, brackets) = (spans(&profile), Brackets::new(&profile, true));
        let mut marker = Marker::new(&profile, &brackets, Some(3));
        marker.set_ahead(true);
        let mut sum = Sum { panics_at: Some(0), ..Sum::default() };
        let marked = catch_unwind(AssertUnwindSafe(|| marker.mark_at(&spans, &mut sum, None)));
        assert!(marked.is_err());
        let mut sum = Sum::default();
        assert_eq!(marker.mark_at(&spans, &mut sum, None).busy, 5_000);
    }
}
