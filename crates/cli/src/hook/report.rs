//! `hook report`: when the profiled process ends, prints statistics of all threads, and writes the
//! CSV files if they were requested. Then removes the profile, unless one of these steps failed or
//! a forked process is still recording. IREE's original hook printed a thread's statistics when the
//! thread ended.

use std::collections::HashSet;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use analysis::stats::{Options, Stats, stats};
use model::Loss;
use profile::collect::{discard_pool, has_own_pool};
use profile::pools::named_directories;
use profile::safe_dir::Dir;
use profile::{Origin, Profile};

use super::csv;
use super::settings::Settings;
use crate::failure::Failure;
use crate::terminal::say;
use crate::terminal::{Kind, stdout};
use crate::view::losses;
use crate::view::rights::{Change, Needs, confine};
use crate::view::statistics::{Style, render};

pub fn main(directory: &Path) -> Result<ExitCode, Failure> {
    // The settings in the profile say which files to write, so the profile must belong to this
    // user.
    if !has_own_pool(directory).map_err(Failure::new)? {
        return Err(Failure::new(format!(
            "{} is not a profile that a hook of this user has just recorded",
            directory.display()
        )));
    }
    let settings = Settings::read(directory)?;
    let root = Dir::open(directory).map_err(Failure::new)?;
    let pools = named_directories(&root).map_err(Failure::new)?;
    let outputs = settings.csv.iter().flat_map(|csv| csv::outputs(csv)).collect();
    let needs = Needs { change: Change::Remove, pools, outputs, ..Needs::default() };
    confine(Some(&root), &needs);
    let mut profile = Profile::open_at(&root).map_err(Failure::new)?;
    if profile.manifest.origin != Origin::Hook {
        return Err(Failure::new(format!("{} was not made by a hook", directory.display())));
    }
    // The output shows each counter's label (usually what the user typed) instead of its name.
    for (counter, label) in profile.manifest.counters.iter_mut().zip(&settings.labels) {
        counter.name.clone_from(label);
    }
    let result = print(&profile, &settings);
    let others = profile.processes.iter().filter(|p| p.alive && p.id.pid != settings.process);
    let others = others.count();
    if result.is_ok() && others == 0 {
        remove(directory);
        return Ok(ExitCode::SUCCESS);
    }
    if others > 0 {
        say!("processes that it forked are still recording");
    }
    say!("the recorded calls are in {}", directory.display());
    result.map(|()| ExitCode::SUCCESS)
}

fn print(profile: &Profile, settings: &Settings) -> Result<(), Failure> {
    let skip_ns = (settings.skip_ms * 1e6).round() as u64;
    let options = Options {
        skip_ns,
        buckets: settings.buckets,
        tables: settings.tables,
        raw: true,
        ..Options::default()
    };
    let found = stats(profile, &options)
        .map_err(|e| Failure::new(format!("{} calls of one function are too many", e.calls)))?;
    let mut out = BufWriter::with_capacity(1 << 16, stdout(Kind::People));
    let style = Style {
        gamma: settings.gamma,
        name_op: settings.filter.is_none(),
        name_tid: names_repeat(profile, &found),
        totals: true,
        totals_last: true,
        constants_short: false,
        units: false,
        probes: false,
        explained: false,
        width: None,
    };
    render(&mut out, profile, &found, &style)?;
    out.flush()?;
    if found.ops.is_empty() {
        let what = settings.filter.as_ref().map_or(String::new(), |name| format!(" of {name}"));
        say!("no call{what} was recorded");
    }
    // The profiled process waits for this report, so its pages (blocks of the recorder's memory) are
    // still in use. They count as written while they are read, although no call is missing.
    let mut lost = found.losses.clone();
    lost.retain(|loss| loss.name != Loss::WrittenWhileRead.name());
    losses::say(&lost);
    let Some(csv) = &settings.csv else { return Ok(()) };
    csv::write(profile, &settings.labels, skip_ns, csv)
        .map_err(|e| Failure::new(format!("write {}: {e}", csv.display())))
}

fn names_repeat(profile: &Profile, found: &Stats) -> bool {
    let threads: HashSet<(usize, usize)> =
        found.ops.iter().flat_map(|op| &op.threads).map(|t| (t.process, t.thread)).collect();
    let name =
        |(process, thread): &(usize, usize)| &profile.processes[*process].threads[*thread].name;
    let names: HashSet<&String> = threads.iter().map(name).collect();
    names.len() < threads.len()
}

/// Removes the profile. [`main`] has checked that the pool belongs to this profile and to this
/// user.
fn remove(directory: &Path) {
    if let Err(e) = discard_pool(directory) {
        say!("{e}");
    }
    if let Err(e) = fs::remove_dir_all(directory) {
        say!("remove {}: {e}", directory.display());
    }
}
