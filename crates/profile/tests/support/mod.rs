//! Reads a profile back as a list of tuples.

#![allow(dead_code, reason = "not every test file uses everything")]

use std::path::Path;

use profile::{LossCount, PageDecoder, Profile, Status};

/// A call: process id, thread, export (number of the function), x coordinate of the workgroup,
/// start, duration, and the values of the counters.
pub type Call = (u32, u32, u32, u32, u64, u64, Vec<Option<u64>>);

/// Returns the calls in the order in which the reader finds them, and the losses.
pub fn read(dir: &Path) -> (Vec<Call>, Vec<LossCount>) {
    read_profile(&Profile::open(dir).expect("the profile opens"))
}

pub fn read_profile(profile: &Profile) -> (Vec<Call>, Vec<LossCount>) {
    let mut decoder = PageDecoder::new(profile);
    let mut calls = Vec::new();
    let mut losses = profile.all_losses();
    for key in profile.pages() {
        let columns = decoder.decode(key);
        let process = &profile.processes[key.process];
        for i in 0..columns.len() {
            let values = profile.groups.all().iter().zip(&columns.groups).flat_map(|(g, c)| {
                let status = c.status.get(i).copied().unwrap_or(Status::NotRead);
                g.counters.clone().map(move |n| (n, status))
            });
            let values =
                values.map(|(n, status)| status.has_values().then(|| columns.values[n][i]));
            calls.push((
                process.id.pid,
                process.threads[key.thread].uid,
                columns.export[i],
                columns.workgroup[0][i],
                columns.start_ticks[i],
                columns.duration_ticks[i],
                values.collect(),
            ));
        }
        losses.extend(columns.losses());
    }
    (calls, profile::merge_losses(&losses))
}

pub fn names(losses: &[LossCount]) -> Vec<(&str, u64)> {
    losses.iter().map(|loss| (loss.name.as_str(), loss.count)).collect()
}
