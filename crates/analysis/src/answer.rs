//! What matters most in a summary: the few rows that have most of the time, and the time that the
//! threads spent outside of what was recorded.

use profile::Profile;

use crate::summary::Summary;
use crate::table::{Row, devices};
use crate::threads::ThreadTime;

/// With fewer rows, the table says at a glance where the time went.
const ROWS: usize = 3;
/// A larger part of the time than this is what "most" means.
const MOST: f64 = 0.5;

/// The fewest rows that have more than half of the time together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Most {
    /// How many there are, less than half of all rows.
    pub rows: usize,
    /// Their part of the time, from 0 to 1.
    pub share: f64,
}

/// The time that threads spent in nothing that was recorded, from each one's first call on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outside {
    /// How many threads.
    pub threads: usize,
    /// That time in ns, all threads together.
    pub ns: f64,
    /// All of the threads' time in ns.
    pub wall_ns: f64,
    /// How much of `ns` they were on no CPU. `None` if it is not known of some thread, or only
    /// bounded.
    pub off_cpu_ns: Option<f64>,
}

impl Summary {
    /// A row's part of [`Summary::total`], from 0 to 1. `None` if it is not known, or if the row's calls
    /// belong to no thread and so are in no total.
    pub fn share(&self, profile: &Profile, row: &Row) -> Option<f64> {
        if row.key.is_apart(profile) {
            return None;
        }
        if self.sampled.is_some() {
            return Some(row.sampled.as_ref()?.share?.value);
        }
        let all = self.total.filter(|all| all.value > 0.0)?;
        Some((row.own.value / all.value).clamp(0.0, 1.0))
    }

    /// `None` if a share is not known, or if it takes half of the rows to have half of the time.
    pub fn most(&self, profile: &Profile) -> Option<Most> {
        let rows = self.rows.iter().filter(|row| !row.key.is_apart(profile));
        let shares: Option<Vec<f64>> = rows.map(|row| self.share(profile, row)).collect();
        let mut shares = shares.filter(|shares| shares.len() >= ROWS)?;
        shares.sort_by(|a, b| b.total_cmp(a));
        let mut share = 0.0;
        let last = shares.iter().position(|part| {
            share += part;
            share > MOST
        })?;
        let rows = last + 1;
        (rows * 2 < shares.len()).then_some(Most { rows, share: share.min(1.0) })
    }

    /// What the own times of all rows leave of the threads' wall times, in ns: with them, it adds up
    /// to those. `None` if that is not known, or if nothing is left.
    pub fn between(&self, profile: &Profile) -> Option<f64> {
        self.outside(profile).map(|outside| outside.ns).filter(|ns| *ns > 0.0)
    }

    /// `None` if the time in calls is not known of some thread, or no thread has any.
    pub fn outside(&self, profile: &Profile) -> Option<Outside> {
        let on_device = devices(profile);
        let is_thread = |time: &&ThreadTime| on_device.get(time.process) == Some(&false);
        let threads: Vec<&ThreadTime> = self.threads.iter().filter(is_thread).collect();
        let all_known = threads.iter().all(|thread| thread.dispatch_known);
        let wall_ns: f64 = threads.iter().map(|thread| thread.wall_ns).sum();
        if !all_known || wall_ns <= 0.0 {
            return None;
        }
        let ns = threads.iter().map(|thread| thread.no_dispatch_ns()).sum();
        let off = threads.iter().map(|t| Some(t.off_cpu.filter(|off| !off.assumed)?.ns));
        let off_cpu_ns = off.sum::<Option<f64>>().map(|off: f64| off.min(ns));
        Some(Outside { threads: threads.len(), ns, wall_ns, off_cpu_ns })
    }
}
