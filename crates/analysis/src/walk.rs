//! Reads the pages of a profile (blocks of recorded calls of one thread), and passes each page to
//! the code that adds calls up (an [`Adder`]). A page with nested calls is passed together with
//! marks: the self times of its calls, and how the calls are nested. Most views use this code, so
//! that they show the same numbers.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use profile::{Columns, Homes, LossCount, PageDecoder, PageKey, Profile, Role, on_threads};

use crate::amounts::Brackets;
use crate::clusters::{PageSpan, clusters};
use crate::forest::{self, Marked, Marker, Marks, Rows};
use crate::gaps::{Gathered, Wanted};
use crate::probe::InPlace;
use crate::threads::{Again, Inside, PageTimes};

/// Adds up the calls of pages. The pages can come in any order.
pub(crate) trait Adder: Rows + Send {
    /// Adds the calls of one page. Without `marks`, no call is inside of another.
    fn add(&mut self, columns: &Columns, brackets: &Brackets, marks: Option<&Marks>);
}

pub(crate) struct Walked<A> {
    /// The adders of all workers.
    pub parts: Vec<A>,
    pub times: PageTimes,
    pub in_place: InPlace,
    /// The clusters: groups of pages of a thread that overlap in time, and single pages with nested
    /// calls.
    pub clusters: Vec<Vec<PageSpan>>,
    /// For each cluster, the time in which any call was running.
    pub busy: Vec<u64>,
    /// Number of calls that overlap other calls without being nested in them.
    pub overlapping: u64,
    /// Maps the threads of plugins and of hosts' profilers to recorded threads.
    pub homes: Homes,
    /// The gaps between the calls, if they were requested.
    pub gaps: Option<Gathered>,
    /// The losses found inside pages, by process.
    pub losses: Vec<Vec<LossCount>>,
}

struct Worker<A> {
    adders: Vec<A>,
    times: PageTimes,
    in_place: InPlace,
    gaps: Option<Gathered>,
}

/// Returns the role of a page's calls if they belong to no thread. Such a page has no other calls.
pub(crate) fn apart(profile: &Profile, columns: &Columns) -> Option<Role> {
    let op = profile.ops.of(columns.process, *columns.export.first()?)?;
    profile.ops.get(op).map(|op| op.role).filter(|role| role.is_apart())
}

/// Passes every page to one of the adders that `make` returns. Pages with nested calls are usually
/// decoded twice.
pub(crate) fn walk<A: Adder>(
    profile: &Profile,
    workers: usize,
    brackets: &Brackets,
    round: Option<usize>,
    make: impl Fn() -> A + Sync,
) -> Walked<A> {
    let Walked { parts, times, in_place, clusters, busy, overlapping, homes, gaps, losses } =
        walk_several(profile, workers, brackets, round, None, || vec![make()]);
    let parts = parts.into_iter().flatten().collect();
    Walked { parts, times, in_place, clusters, busy, overlapping, homes, gaps, losses }
}

/// Like [`walk`], but each worker has several adders, each of which gets every page of the worker.
/// The adders may assign the same call to different rows, so the marks of nested calls are computed
/// once for each adder. `with_gaps` selects which times between the calls are collected.
pub(crate) fn walk_several<A: Adder>(
    profile: &Profile,
    workers: usize,
    brackets: &Brackets,
    round: Option<usize>,
    with_gaps: Option<Wanted>,
    make: impl Fn() -> Vec<A> + Sync,
) -> Walked<Vec<A>> {
    let homes = profile.homes();
    let no_gaps = || with_gaps.map(Gathered::new);
    let worker = || Worker {
        adders: make(),
        times: PageTimes::default(),
        in_place: InPlace::default(),
        gaps: no_gaps(),
    };
    let (states, losses) = profile.visit(workers, worker, |worker, columns| {
        worker.in_place.add(columns, profile);
        // Calls that belong to no thread are left out of the times of threads, and are treated as
        // calls without nesting.
        let apart = apart(profile, columns).is_some();
        if apart || worker.times.add(columns, profile) {
            worker.adders.iter_mut().for_each(|adder| adder.add(columns, brackets, None));
            if let Some(gaps) = worker.gaps.as_mut().filter(|_| !apart) {
                gaps.page(columns, homes.of((columns.process, columns.thread)), brackets);
            }
        }
    });
    let mut gaps = no_gaps();
    let (mut times, mut in_place) = (PageTimes::default(), InPlace::default());
    let mut parts = Vec::new();
    for state in states {
        parts.push(state.adders);
        times.merge(state.times);
        in_place.merge(state.in_place);
        merge(&mut gaps, state.gaps);
    }
    let clusters = clusters(times.spans(&homes));
    // The calls of a page without nested calls can be inside of a call of another page. If there is
    // such a page, the code above added it without marks, which is wrong. So the adders of this
    // code are dropped, and all pages outside of clusters are added to new adders.
    if clusters.iter().flatten().any(|page| page.flat) {
        parts.clear();
        gaps = no_gaps();
        for (adders, found) in add_flat(profile, &clusters, workers, brackets, with_gaps, &make) {
            parts.push(adders);
            merge(&mut gaps, found);
        }
    }
    let inside = times.inside_of_later(&homes);
    let nested =
        add_nested(profile, (&clusters, &inside), workers, brackets, round, with_gaps, &make);
    let (mut busy, mut overlapping) = (vec![0; clusters.len()], 0);
    for (adders, of_clusters, found, again) in nested {
        parts.push(adders);
        times.replace(again);
        merge(&mut gaps, found);
        for (at, found) in of_clusters {
            busy[at] = found.busy;
            overlapping += found.overlapping;
        }
    }
    let in_place = in_place.joined(profile);
    Walked { parts, times, in_place, clusters, busy, overlapping, homes, gaps, losses }
}

fn merge(gaps: &mut Option<Gathered>, other: Option<Gathered>) {
    if let Some((gaps, other)) = gaps.as_mut().zip(other) {
        gaps.merge(other);
    }
}

/// Adds the pages that are in no cluster to new adders.
fn add_flat<A: Adder>(
    profile: &Profile,
    clusters: &[Vec<PageSpan>],
    workers: usize,
    brackets: &Brackets,
    with_gaps: Option<Wanted>,
    make: &(impl Fn() -> Vec<A> + Sync),
) -> Vec<(Vec<A>, Option<Gathered>)> {
    let homes = profile.homes();
    let nested: HashSet<PageKey> = clusters.iter().flatten().map(|page| page.key).collect();
    let pages = profile.pages();
    let pages: Vec<PageKey> = pages.into_iter().filter(|page| !nested.contains(page)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut adders, mut decoder) = (make(), PageDecoder::new(profile));
        let mut gaps = with_gaps.map(Gathered::new);
        while let Some(page) = pages.get(next.fetch_add(1, Ordering::Relaxed)) {
            let columns = decoder.decode(*page);
            adders.iter_mut().for_each(|adder| adder.add(columns, brackets, None));
            if let Some(gaps) = gaps.as_mut().filter(|_| apart(profile, columns).is_none()) {
                gaps.page(columns, homes.of((page.process, page.thread)), brackets);
            }
        }
        (adders, gaps)
    };
    on_threads(workers.clamp(1, pages.len().max(1)), work)
}

/// Passes each page of a cluster to its adder as soon as the page has its marks.
struct Added<'x, 'y, A> {
    adder: &'x mut A,
    brackets: &'x Brackets,
    /// Computes the times of some pages again: of those with calls that are inside of calls of
    /// later pages.
    again: Option<&'x mut Again<'y>>,
}

impl<A: Adder> Rows for Added<'_, '_, A> {
    fn rows_of(&mut self, columns: &Columns, rows: &mut Vec<u32>) {
        self.adder.rows_of(columns, rows);
    }

    fn child(&mut self, parent: u32, row: u32) -> u32 {
        self.adder.child(parent, row)
    }
}

impl<A: Adder> Marked for Added<'_, '_, A> {
    fn page(&mut self, _: usize, columns: &Columns, marks: Marks) {
        self.adder.add(columns, self.brackets, Some(&marks));
        if let Some(again) = &mut self.again {
            again.page(columns);
        }
    }
}

/// A worker's adders, the index and result of each cluster that it marked, its gaps, and the times
/// of pages that it computed again.
type Nested<A> = (Vec<A>, Vec<(usize, forest::Found)>, Option<Gathered>, PageTimes);

/// Marks the pages of all clusters and adds them to new adders.
fn add_nested<A: Adder>(
    profile: &Profile,
    (clusters, inside): (&[Vec<PageSpan>], &Inside),
    workers: usize,
    brackets: &Brackets,
    round: Option<usize>,
    with_gaps: Option<Wanted>,
    make: &(impl Fn() -> Vec<A> + Sync),
) -> Vec<Nested<A>> {
    let next = AtomicUsize::new(0);
    let all_pages: usize = clusters.iter().map(Vec::len).sum();
    let work = || {
        let mut adders = make();
        let mut gaps = with_gaps.map(Gathered::new);
        let mut marker = Marker::new(profile, brackets, round);
        let mut found: Vec<(usize, forest::Found)> = Vec::new();
        let mut again = Again::new(profile, inside);
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(cluster) = clusters.get(at) else { break };
            // While one worker marks most of the pages, the others are idle, so another thread can
            // decode pages ahead.
            marker.set_ahead(workers > 1 && 2 * cluster.len() > all_pages);
            for (number, adder) in adders.iter_mut().enumerate() {
                let gaps = gaps.as_mut().filter(|_| number == 0);
                let again = (number == 0).then_some(&mut again);
                let mut added = Added { adder, brackets, again };
                let of_cluster = marker.mark_at(cluster, &mut added, gaps);
                // The results for a cluster are the same with every adder.
                if number == 0 {
                    found.push((at, of_cluster));
                }
            }
        }
        (adders, found, gaps, again.finish())
    };
    on_threads(workers.clamp(1, clusters.len().max(1)), work)
}
