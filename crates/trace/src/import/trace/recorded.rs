//! Adds traces to a recorded profile: events that profiler plugins handed over in its programs.
//!
//! Such traces become activities, calls and tracks in the same way as imported ones. Their calls
//! have the ticks of the profile's clock, and belong to parts that the caller chooses.

use std::collections::HashMap;

use profile::safe_dir::Dir;
use profile::writer::CallsWriter;
use profile::{Clock, LossCount, Manifest, Moment, PartId, Timeline, merge_losses};

use super::{EPOCH_TICKS, Import, OneTrace};
use crate::chrome::event::Event;
use crate::import::Imported;

/// A recorded profile to which traces are added. Times of such traces are ns since 1970, on the
/// profile's own timeline.
#[derive(Debug)]
pub(super) struct Recorded {
    timeline: Timeline,
    /// The parts of processes by their id in the traces, and the arguments that are kept with each.
    pub(super) parts: HashMap<i64, (PartId, Vec<String>)>,
}

/// The data that was added to a recorded profile.
#[derive(Debug, Default)]
pub struct Added {
    /// Numbers of calls, spans and samples that were imported.
    pub counts: Imported,
    /// The losses of all traces.
    pub losses: Vec<LossCount>,
    /// Notes for a reader.
    pub notes: Vec<String>,
}

impl Import {
    /// Starts to write the data that is to be added to a recorded profile with this clock. `dir` is
    /// an empty directory; the caller moves its contents into the profile at the end.
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

    /// Sets the time on `CLOCK_MONOTONIC` of the trace's time 0, in ns. The time 0 may be before
    /// the machine was started; events may not.
    pub fn begins_at(&mut self, monotonic_ns: i64) {
        self.epoch = monotonic_ns;
    }

    /// Writes the data that is not written yet, all of which is added to a recorded profile.
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

    /// Returns the ticks of a time of the first trace.
    pub(super) fn ticks(&self, ns: i64) -> u64 {
        match &self.recorded {
            Some(Recorded { timeline, .. }) => {
                timeline.ticks(timeline.realtime_to_monotonic_ns(ns))
            }
            None => self.epoch.saturating_add(ns).max(0).unsigned_abs(),
        }
    }

    /// Converts a time of the first trace to the form that series with
    /// [`profile::tracks::Times::Monotonic`] have.
    pub(super) fn monotonic(&self, ns: i64) -> i64 {
        match &self.recorded {
            Some(Recorded { timeline, .. }) => timeline.realtime_to_monotonic_ns(ns),
            None => self.epoch.saturating_add(ns),
        }
    }
}

impl OneTrace<'_> {
    /// Keeps an event, but makes no call of the event, because the profile has the call already.
    ///
    /// # Errors
    /// Fails if the disk is full.
    pub fn keep_only(&mut self, event: &Event<'_>) -> Result<(), String> {
        self.keep(event).map(|_| ())
    }

    /// Sets the part of the recorded profile to which the calls of a process belong, and the
    /// arguments that are kept for the part. `id` is the id of the process in the trace.
    pub fn place(&mut self, id: i64, part: PartId, arguments: Vec<String>) {
        if let Some(recorded) = &mut self.all.recorded {
            recorded.parts.insert(id, (part, arguments));
        }
    }

    /// Notes that the process with this id in the trace has a number that another process has as well.
    pub fn place_again(&mut self, id: i64, number: u32) {
        self.numbers.insert(id, number);
    }
}

/// Returns a moment of the trace, for the profile's clock.
pub(super) fn moment(base: i64, ns: i64, epoch: i64) -> Moment {
    let realtime_ns = u64::try_from(base.saturating_add(ns)).unwrap_or(0);
    let ticks = epoch.saturating_add(ns).max(0).unsigned_abs();
    Moment { ticks, monotonic_ns: ticks, realtime_ns, uncertainty_ticks: 0 }
}
