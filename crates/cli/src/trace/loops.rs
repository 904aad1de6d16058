//! Writes loops into timelines. Single hits (executions of a loop or function), which only the
//! loops' mode `log` records, become slices. The sums over all hits become metadata.

use std::io;

use analysis::loops::Mode;
use analysis::loops::log::{LoggedHit, hits};
use profile::{Clock, Profile};
use serde_json::Value;
use trace::export::loops::{LoopSlice, export_loops};
use trace::timeline::TimelineSink;

use crate::terminal::say;
use crate::view::loops::{Loops, expensive, full_name_of};
use crate::view::units::plural;

pub fn fill(profile: &Profile, sink: &mut impl TimelineSink) -> io::Result<()> {
    let recorded = profile.loops().map_err(io::Error::other)?;
    if recorded.events.is_empty() || !has_times(profile) {
        return Ok(());
    }
    let loops = Loops::new(profile, &recorded, &[], true);
    let mut trees = vec![None; recorded.modules.len()];
    for tree in &loops.table.modules {
        tree.registrations.iter().for_each(|index| trees[*index] = Some(tree));
    }
    let name = |hit: &LoggedHit| {
        let table = trees[hit.module].and_then(|tree| tree.table.as_ref());
        full_name_of(table.and_then(|table| table.entries.get(hit.id as usize)), hit.id)
    };
    let (mut all, _) = hits(&recorded.modules, &recorded.events);
    all.retain(|hit| hit.end.is_some());
    let process = |hit: &LoggedHit| recorded.modules[hit.module].process;
    // Of hits with the same begin, the outermost one ends last and must come first.
    all.sort_by_key(|hit| (process(hit), hit.tid, hit.begin, std::cmp::Reverse(hit.end)));
    let names: Vec<String> = all.iter().map(name).collect();
    let slice = |(hit, name)| {
        let &LoggedHit { tid, id, begin, .. } = hit;
        let at = |ticks| profile.timeline.realtime_ns(ticks);
        let start_ns = at(begin);
        // The end is converted, and not the length: with a rounded length, the slice could end
        // after the slice around it.
        let duration_ns = at(hit.end.unwrap_or(begin)).abs_diff(start_ns);
        LoopSlice { process: process(hit), tid, name, id, start_ns, duration_ns }
    };
    let slices: Vec<LoopSlice<'_>> =
        all.iter().zip(names.iter().map(String::as_str)).map(slice).collect();
    export_loops(profile, &slices, sink)
}

/// Whether the profile's clock is the TSC, which is also the clock of the loops' times.
fn has_times(profile: &Profile) -> bool {
    matches!(profile.manifest.clock, Clock::Tsc)
}

/// Returns sums over all functions and loops, and the ones that took the most time. `None` if none
/// was entered.
pub fn facts(profile: &Profile) -> io::Result<Option<Value>> {
    let recorded = profile.loops().map_err(io::Error::other)?;
    let loops = Loops::new(profile, &recorded, &[], false);
    Ok(match expensive::json(&loops) {
        Some(totals) => Some(serde_json::to_value(totals)?),
        None => None,
    })
}

pub fn say_left_out(profile: &Profile) -> io::Result<()> {
    let recorded = profile.loops().map_err(io::Error::other)?;
    let of = |logged: bool| {
        let is =
            |m: &&profile::loops::LoopModule| (Mode::from_number(m.mode) == Mode::Log) == logged;
        recorded.modules.iter().filter(is).count() as u128
    };
    let sums = "the sums are in the trace's metadata, and `counterpoint loops report` shows all";
    if of(false) > 0 {
        let modules = plural(of(false), "module");
        say!(
            "loops of {modules} have no slices, because only mode log records single hits; {sums}"
        );
    }
    if of(true) > 0 && !has_times(profile) {
        let modules = plural(of(true), "module");
        say!(
            "loops of {modules} have no slices, because they were timed with another clock than the \
             calls; {sums}"
        );
    }
    Ok(())
}
