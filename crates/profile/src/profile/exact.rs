//! Reads the counts of a profile's calls: see [`crate::counts`].

use model::Loss;
use record::counts::{COUNTS_NAME, CountsFrames, read_frames};

use super::{Process, Profile, Thread};
use crate::counts::{self, CountedCalls};
use crate::error::{Error, Result};
use crate::safe_dir::Dir;
use crate::sparse::read_data;

impl Profile {
    /// Returns the number of calls of each export (function or op) on each thread, sorted by
    /// process, thread and export. The list is empty if the run had no budget.
    pub fn counted(&self) -> &[CountedCalls] {
        &self.counted
    }

    /// Returns whether some of the numbers of calls are estimates ([`CountedCalls::steps`]).
    pub fn estimates_calls(&self) -> bool {
        self.counted.iter().any(|one| one.steps.is_some())
    }

    /// Returns whether the run had a budget, so that only a sample of the calls has records.
    pub fn is_sampled(&self) -> bool {
        self.manifest.budget.is_some()
    }
}

impl Process {
    /// Reads the process's counts: those in its file, and those in `left`, from the pool.
    pub(super) fn open_counts(&mut self, part: Option<&Dir>, left: CountsFrames) -> Result<()> {
        let mut all = CountsFrames::default();
        if let Some(part) = part
            && let Some(file) = self.unless_refused(part.file(COUNTS_NAME))?
        {
            let bytes = read_data(&file).map_err(Error::on("read", &part.path_of(COUNTS_NAME)))?;
            all = read_frames(&bytes);
            // A live process may have written only half of its last frame (entry of the file).
            all.torn = all.torn.saturating_sub(self.alive.into());
        }
        self.lose(Loss::TornCounts, all.torn + left.torn);
        all.frames.extend(left.frames);
        for frame in &all.frames {
            self.meet_thread(frame.thread_uid, frame.tid);
        }
        (self.counted, self.spent, self.steps) = counts::join(all);
        Ok(())
    }

    /// Adds a thread that has counts, unless it is known from its pages.
    fn meet_thread(&mut self, uid: u32, tid: u32) {
        if let Err(place) = self.threads.binary_search_by_key(&uid, |thread| thread.uid) {
            let thread = Thread { uid, tid, name: String::new(), pages: Vec::new() };
            self.threads.insert(place, thread);
        }
    }
}

/// Moves the counts of all processes into one list.
pub(super) fn of_all(processes: &mut [Process]) -> Vec<CountedCalls> {
    let of_one = |(process, p): (usize, &mut Process)| {
        let counted = std::mem::take(&mut p.counted);
        counted.into_iter().map(move |one| CountedCalls { process, ..one })
    };
    processes.iter_mut().enumerate().flat_map(of_one).collect()
}
