//! The way of all calls: reads the pages of a profile, finds those with nested calls, and shows each
//! page once, with the marks of its calls. Whatever adds up calls by op, thread or CPU sees the same
//! calls in this way, so that all views have the same numbers.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use profile::{Columns, Homes, LossCount, PageDecoder, PageKey, Profile, Role, on_threads};

use crate::amounts::Brackets;
use crate::clusters::{PageSpan, clusters};
use crate::forest::{self, Marker, Marks, Rows};
use crate::probe::InPlace;
use crate::threads::PageTimes;

/// Adds up the calls of pages, in any order.
pub(crate) trait Adder: Rows + Send {
    /// Adds the calls of one page. `marks` says which of them are inside of others; without it, none
    /// is.
    fn add(&mut self, columns: &Columns, brackets: &Brackets, marks: Option<&Marks>);
}

/// What is known after all pages were read.
pub(crate) struct Walked<A> {
    /// What has been added up, in any number of parts.
    pub parts: Vec<A>,
    pub times: PageTimes,
    pub in_place: InPlace,
    /// The pages with nested calls; for each of these clusters, the time in some call.
    pub clusters: Vec<Vec<PageSpan>>,
    pub busy: Vec<u64>,
    /// Number of calls that overlap others without being nested in them.
    pub overlapping: u64,
    /// The threads with calls of two sources.
    pub homes: Homes,
    /// The losses found inside pages, by process.
    pub losses: Vec<Vec<LossCount>>,
}

struct Worker<A> {
    adder: A,
    times: PageTimes,
    in_place: InPlace,
}

/// The role of a page's calls, if they belong to no thread. Such calls have separate pages.
pub(crate) fn apart(profile: &Profile, columns: &Columns) -> Option<Role> {
    let op = profile.ops.of(columns.process, *columns.export.first()?)?;
    profile.ops.get(op).map(|op| op.role).filter(|role| role.is_apart())
}

/// Shows every page to an adder that `make` makes. Pages with nested calls are decoded three times.
pub(crate) fn walk<A: Adder>(
    profile: &Profile,
    workers: usize,
    brackets: &Brackets,
    round: Option<usize>,
    make: impl Fn() -> A + Sync,
) -> Walked<A> {
    let worker =
        || Worker { adder: make(), times: PageTimes::default(), in_place: InPlace::default() };
    let (states, losses) = profile.visit(workers, worker, |worker, columns| {
        worker.in_place.add(columns, profile);
        // Calls that belong to no thread count neither for the times of threads nor for self times.
        let apart = apart(profile, columns).is_some();
        if apart || worker.times.add(columns, profile) {
            worker.adder.add(columns, brackets, None);
        }
    });
    let (mut times, mut in_place) = (PageTimes::default(), InPlace::default());
    let mut parts = Vec::new();
    for state in states {
        parts.push(state.adder);
        times.merge(state.times);
        in_place.merge(state.in_place);
    }
    let homes = profile.homes();
    let clusters = clusters(times.spans(&homes));
    // A page that looks flat can be inside of a call of another page. It was added as if it were not.
    if clusters.iter().flatten().any(|page| page.flat) {
        parts = add_flat(profile, &clusters, workers, brackets, &make);
    }
    let (nested, busy, overlapping) =
        add_nested(profile, &clusters, workers, brackets, round, &make);
    parts.extend(nested);
    Walked { parts, times, in_place, clusters, busy, overlapping, homes, losses }
}

/// Adds the pages that are in no cluster, to new adders.
fn add_flat<A: Adder>(
    profile: &Profile,
    clusters: &[Vec<PageSpan>],
    workers: usize,
    brackets: &Brackets,
    make: &(impl Fn() -> A + Sync),
) -> Vec<A> {
    let nested: HashSet<PageKey> = clusters.iter().flatten().map(|page| page.key).collect();
    let pages = profile.pages();
    let pages: Vec<PageKey> = pages.into_iter().filter(|page| !nested.contains(page)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let (mut adder, mut decoder) = (make(), PageDecoder::new(profile));
        while let Some(page) = pages.get(next.fetch_add(1, Ordering::Relaxed)) {
            adder.add(decoder.decode(*page), brackets, None);
        }
        adder
    };
    on_threads(workers.clamp(1, pages.len().max(1)), work)
}

/// Adds the clusters. Returns the adders, for each cluster the time in some call, and the number of
/// calls that overlap.
fn add_nested<A: Adder>(
    profile: &Profile,
    clusters: &[Vec<PageSpan>],
    workers: usize,
    brackets: &Brackets,
    round: Option<usize>,
    make: &(impl Fn() -> A + Sync),
) -> (Vec<A>, Vec<u64>, u64) {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut adder = make();
        let mut decoder = PageDecoder::new(profile);
        let mut marker = Marker::new(profile, brackets, round);
        let mut found: Vec<(usize, forest::Found)> = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(cluster) = clusters.get(at) else { break };
            let (marks, of_cluster) = marker.mark_at(cluster, &mut adder);
            for (page, marks) in cluster.iter().zip(marks) {
                adder.add(decoder.decode(page.key), brackets, Some(&marks));
            }
            found.push((at, of_cluster));
        }
        (adder, found)
    };
    let workers = workers.clamp(1, clusters.len().max(1));
    let (mut busy, mut overlapping) = (vec![0; clusters.len()], 0);
    let adders = on_threads(workers, work).into_iter().map(|(adder, found)| {
        for (at, found) in found {
            busy[at] = found.busy;
            overlapping += found.overlapping;
        }
        adder
    });
    let adders = adders.collect();
    (adders, busy, overlapping)
}
