//! Fits the line that converts ticks to nanoseconds.

use record::{ClockKind, PageHeader, Snapshot, Timeline};

use super::{Process, Profile, Thread};
use crate::live::boot_id;

impl Profile {
    /// Fits the line again with a snapshot of the present moment. Does nothing if the profile is
    /// merged, is known to be of another boot or machine, or counts ticks in ns of
    /// `CLOCK_MONOTONIC`. A recording in progress has an exact snapshot only of its beginning.
    pub fn calibrate_now(&mut self) {
        let kind: ClockKind = self.manifest.clock.into();
        let is_other = !self.manifest.boot_id.is_empty() && self.manifest.boot_id != boot_id();
        if kind == ClockKind::Monotonic || is_other || !self.members.is_empty() {
            return;
        }
        let mut all: Vec<Snapshot> = self.snapshots.iter().map(|s| Snapshot::from(*s)).collect();
        all.push(Snapshot::take(kind));
        let exact = Timeline::fit(kind, &all);
        if exact.calibrated {
            self.timeline = exact;
        }
    }
}

/// Fits the line through the snapshots. Page headers contain less exact readings of ticks and
/// `CLOCK_MONOTONIC`. They are used if the snapshots are too few, or much closer together than the
/// headers (after a crash, there is no snapshot of the end).
pub(super) fn fit(kind: ClockKind, snapshots: &[Snapshot], processes: &[Process]) -> Timeline {
    let exact = Timeline::fit(kind, snapshots);
    if kind == ClockKind::Monotonic {
        return exact;
    }
    // What plugins recorded is left out, because plugins may have reported any times.
    let recorded = || processes.iter().filter(|process| !process.id.is_of_plugins());
    let headers = || recorded().flat_map(|p| &p.threads).flat_map(Thread::headers);
    let offset = snapshots.first().map_or(0, |s| s.realtime_ns.wrapping_sub(s.monotonic_ns));
    let moment = |header: &PageHeader| Snapshot {
        ticks: header.start.base_ticks,
        monotonic_ns: header.start.base_monotonic_ns,
        realtime_ns: header.start.base_monotonic_ns.wrapping_add(offset),
        uncertainty_ticks: u64::MAX,
    };
    let span = |all: &[Snapshot]| {
        let ticks = || all.iter().map(|s| s.ticks);
        ticks().max().unwrap_or(0) - ticks().min().unwrap_or(0)
    };
    let with_pages: Vec<Snapshot> = snapshots
        .iter()
        .copied()
        .chain(headers().max_by_key(|h| h.start.base_ticks).map(moment))
        .chain(headers().min_by_key(|h| h.start.base_ticks).map(moment))
        .collect();
    if exact.calibrated && span(snapshots) >= span(&with_pages) / 2 {
        return exact;
    }
    let wider = Timeline::fit(kind, &with_pages);
    if wider.calibrated { wider } else { exact }
}
