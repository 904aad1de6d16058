//! Adds traces to a recorded profile: those that profiler plugins handed over in the recorded
//! programs, and recordings of IREE's own profiler.
//!
//! Like other imported traces, these traces become activities, calls and tracks. But the times of
//! their calls are ticks of the profile's clock, and the caller chooses the parts (directories) of
//! the profile in which the calls are stored.

use std::collections::HashMap;

use profile::safe_dir::Dir;
use profile::writer::CallsWriter;
use profile::{Clock, LossCount, Manifest, Moment, PartId, Timeline, merge_losses};

use super::{EPOCH_TICKS, Import, OneTrace};
use crate::chrome::event::Event;
use crate::import::Imported;

/// A recorded profile to which traces are added. The times in the traces are ns since 1970, on the
/// profile's own timeline.
#[derive(Debug)]
pub(super) struct Recorded {
    timeline: Timeline,
    /// By the id of a process in the traces: the part of the profile for the process's calls, and
    /// what is stored as the arguments of the process's program.
    pub(super) parts: HashMap<i64, (PartId, Vec<String>)>,
}

/// What was added to a recorded profile.
#[derive(Debug, Default)]
pub struct Added {
    /// How many events, calls and other items were imported.
    pub counts: Imported,
    /// The losses.
    pub losses: Vec<LossCount>,
    /// Remarks for people who read the profile.
    pub notes: Vec<String>,
}

impl Import {
    /// Begins to write data for a recorded profile with this clock. `dir` must be an empty
    /// directory, whose content the caller moves into the profile at the end.
    ///
    /// # Errors
    /// Fails if the directory is not writable.
    pub fn create_for(dir: &Dir, clock: Clock, timeline: Timeline) -> profile::Result<Self> {
        Ok(Self {
            dir: dir.clone(),
            calls: CallsWriter::create_for(dir, clock, timeline)?,
            next_pid: 1 << 30,
            epoch: EPOCH_TICKS as i64,
            base_ns: None,
            first_ns: i64::MAX,
            last_ns: i64::MIN,
            counters_ns: None,
            manifest: Manifest::new(),
            counts: Imported::default(),
            losses: Vec::new(),
            forms: Box::new([0; 256]),
            recorded: Some(Recorded { timeline, parts: HashMap::new() }),
        })
    }

    /// Sets what `CLOCK_MONOTONIC` showed at the trace's time 0, in ns. The time 0 may be before
    /// the start of the machine, but no event may be.
    pub fn begins_at(&mut self, monotonic_ns: i64) {
        self.epoch = monotonic_ns;
    }

    /// Writes the rest of the calls, and returns what was added. The caller then moves the content
    /// of the directory into the recorded profile.
    ///
    /// # Errors
    /// Fails if the disk is full.
    pub fn finish_added(mut self) -> profile::Result<Added> {
        self.counts.calls = self.calls.calls() - self.counts.spans;
        self.calls.finish()?;
        Ok(Added {
            counts: self.counts,
            losses: merge_losses(&self.losses),
            notes: self.manifest.notes,
        })
    }

    /// Converts a time on the clock of the first trace to ticks of the profile's clock.
    pub(super) fn ticks(&self, ns: i64) -> u64 {
        match &self.recorded {
            Some(Recorded { timeline, .. }) => {
                timeline.ticks(timeline.realtime_to_monotonic_ns(ns))
            }
            None => self.epoch.saturating_add(ns).max(0).unsigned_abs(),
        }
    }

    /// Converts a time on the clock of the first trace for a series with
    /// [`profile::tracks::Times::Monotonic`].
    pub(super) fn monotonic(&self, ns: i64) -> i64 {
        match &self.recorded {
            Some(Recorded { timeline, .. }) => timeline.realtime_to_monotonic_ns(ns),
            None => self.epoch.saturating_add(ns),
        }
    }
}

impl OneTrace<'_> {
    /// Stores an event but makes no call of it, because the profile already has the call.
    ///
    /// # Errors
    /// Fails if the disk is full.
    pub fn keep_only(&mut self, event: &Event<'_>) -> Result<(), String> {
        self.keep(event).map(|_| ())
    }

    /// Sets the part of the recorded profile for the calls of a process, and what is stored as the
    /// arguments of its program. `id` is the id of the process in the trace.
    pub fn place(&mut self, id: i64, part: PartId, arguments: Vec<String>) {
        if let Some(recorded) = &mut self.all.recorded {
            recorded.parts.insert(id, (part, arguments));
        }
    }

    /// Sets the number that a process has in the profile. `id` is the id of the process in the
    /// trace. Another process may have the same number.
    pub fn place_again(&mut self, id: i64, number: u32) {
        self.numbers.insert(id, number);
    }
}

/// Returns a moment of the trace as a snapshot (the same moment on several clocks).
pub(super) fn moment(base: i64, ns: i64, epoch: i64) -> Moment {
    let realtime_ns = u64::try_from(base.saturating_add(ns)).unwrap_or(0);
    let ticks = epoch.saturating_add(ns).max(0).unsigned_abs();
    Moment { ticks, monotonic_ns: ticks, realtime_ns, uncertainty_ticks: 0 }
}
