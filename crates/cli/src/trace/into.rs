//! `trace import --into`: adds the events of IREE's own profiler to a profile of the same run.
//!
//! ```text
//!  bundle ─► dispatches ─┬─ same function, same number of workgroups, at the same time ─► argument "dispatch"
//!  profile ─► dispatches ┘
//!  all events ─► a part of the process for each device of the bundle, on the profile's clock
//! ```
//!
//! The times in the bundle (the file of IREE's profiler) are those of `CLOCK_MONOTONIC`. A dispatch
//! of the bundle that is found in the profile does not become a second call, but is kept for
//! timelines.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::ExitCode;

use analysis::{Dispatched, dispatches};
use profile::safe_dir::Dir;
use profile::{PLUGIN_PARTS, Profile};
use serde_json::json;
use trace::chrome::event::{Event, Raw, Scalar};
use trace::chrome::read::EventSink as _;
use trace::export::activities::PLUGIN_ROWS;
use trace::import::trace::{Import, OneTrace};
use trace::iree::{Bundle, RowKind, Sink};

use crate::failure::Failure;
use crate::input::Input;
use crate::plugin_events::{Converted, add, free_name, write_losses};
use crate::terminal::{note, progress, say};
use crate::view::labels::process_label;
use crate::view::open;
use crate::view::rights::{Change, Needs, confine};
use crate::view::units::plural;

/// Events of a bundle are stored as parts of a process. Such a part has this word in place of the
/// first argument of a program.
const SOURCE: &str = "iree-profile";
/// The name of an event's argument. Its value is the number that the event's dispatch has in the
/// profile.
const NUMBER: &str = "dispatch";

pub fn main(files: &[Input], path: &Path) -> Result<ExitCode, Failure> {
    let root = Dir::open(path).map_err(|e| open::explain(path, e))?;
    confine(Some(&root), &Needs { change: Change::Inside, ..Needs::default() });
    for file in files {
        progress::phase(progress::reading(format!("reading {}", file.name()), file.bytes()));
        let bundle = Bundle::read(&mut file.read())
            .map_err(|e| Failure::new(format!("read {}: {e}", file.name())))?;
        let mut said = String::new();
        let done = add(&root, |profile, stage| {
            let (done, text) = write(profile, stage, bundle, file.name())?;
            said = text;
            Ok(Some(done))
        })?;
        done.iter().flat_map(|done| &done.notes).for_each(|note| say!("{note}"));
        note!("{}: {said}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the events of each device of the bundle as a part of a process of the profile. Also
/// returns a text with the number of dispatches that were found in the profile, and of events that
/// were added.
fn write(
    profile: &Profile,
    stage: &Dir,
    mut bundle: Bundle,
    file: &str,
) -> Result<(Converted, String), Failure> {
    let (process, found, of) = join(profile, &mut bundle)
        .map_err(|why| Failure::new(format!("{file} into {}: {why}", profile.dir.display())))?;
    let failed =
        |e: &dyn std::fmt::Display| Failure::new(format!("write {}: {e}", profile.dir.display()));
    let mut import = Import::create_for(stage, profile.manifest.clock, profile.timeline)
        .map_err(Failure::new)?;
    let mut trace = import.trace(&free_name(profile, "iree"), 0).map_err(Failure::new)?;
    let mut added = Added::new(&mut trace, profile, process);
    let events = bundle.emit(&mut added).map_err(|e| failed(&e))?;
    let name = process_label(profile, process);
    added.name_processes(&name).map_err(|e| failed(&e))?;
    let mut summary = bundle.summary;
    summary.events = events;
    trace.finish(file, &summary).map_err(Failure::new)?;
    let added = import.finish_added().map_err(Failure::new)?;
    let part = profile.processes[process].id.of_plugins(free_part(profile, process));
    write_losses(stage, part, &added.losses)?;
    let said = format!(
        "{} of {} {} {name}, {} added",
        found,
        plural(of as u128, "dispatch"),
        if of == 1 { "is that of" } else { "are those of" },
        plural(events.into(), "event")
    );
    Ok((Converted::of_events(events, added.notes), said))
}

/// Finds the dispatches of the bundle's rows for the host in the profile, and adds to each found
/// dispatch its number in the profile. Returns the process with most of the found dispatches, how
/// many were found (in all processes), and how many were searched for.
fn join(profile: &Profile, bundle: &mut Bundle) -> Result<(usize, usize, usize), String> {
    let Some(recorded) = dispatches(profile) else {
        return Err("a run with a budget recorded only some workgroups of each dispatch".to_owned());
    };
    let ns = |ticks| profile.timeline.monotonic_ns(ticks);
    let mut by_function: HashMap<(&str, u64), Vec<&Dispatched>> = HashMap::new();
    for dispatch in &recorded {
        let name = profile.ops.get(dispatch.op).map_or("", |op| op.name.as_str());
        by_function.entry((name, dispatch.of)).or_default().push(dispatch);
    }
    // The dispatches of each process are sorted already, but those of all processes together are
    // not.
    by_function.values_mut().for_each(|all| all.sort_by_key(|dispatch| dispatch.begin));
    let on_host = |at: &usize| bundle.slices[*at].row.kind == RowKind::Host;
    let wanted: Vec<usize> = bundle.dispatches().filter(on_host).collect();
    let mut of_process: BTreeMap<usize, usize> = BTreeMap::new();
    let mut found: Vec<(usize, u64)> = Vec::new();
    // The dispatches of the bundle are sorted by their begins, and so is each list of
    // `by_function`. So each search continues where the last one in the same list stopped.
    let mut next: HashMap<(&str, u64), usize> = HashMap::new();
    for at in &wanted {
        let slice = &bundle.slices[*at];
        let key = (slice.name.as_str(), slice.workgroups.unwrap_or(0));
        let Some((key, same)) = by_function.get_key_value(&key) else { continue };
        let end_ns = slice.begin_ns.saturating_add(slice.duration_ns);
        let from = next.entry(*key).or_default();
        *from += same[*from..].partition_point(|one| ns(one.end) <= slice.begin_ns);
        if let Some(one) = same.get(*from).filter(|one| ns(one.begin) < end_ns) {
            found.push((*at, one.number));
            *of_process.entry(one.process).or_default() += 1;
            *from += 1;
        }
    }
    let most = of_process.iter().max_by_key(|(process, count)| (**count, usize::MAX - **process));
    let Some((process, _)) = most else {
        return Err(format!(
            "none of its {} ran there at the same time under the same name: it is of another run, or \
             its dispatches ran on a device",
            plural(wanted.len() as u128, "dispatch")
        ));
    };
    let process = *process;
    for (at, number) in &found {
        bundle.slices[*at].args.insert(NUMBER.to_owned(), (*number).into());
        bundle.slices[*at].is_known = true;
    }
    Ok((process, found.len(), wanted.len()))
}

/// Returns the first free number for a part with events of this process: it is greater than the
/// numbers of all such parts.
fn free_part(profile: &Profile, process: usize) -> u32 {
    let owner = profile.processes[process].id;
    let parts = profile.processes.iter().filter(|p| p.id.owner() == Some(owner));
    parts.filter_map(|p| p.id.plugins_number()).max().map_or(0, |last| last + 1)
}

struct Added<'a, 'b> {
    trace: &'a mut OneTrace<'b>,
    profile: &'a Profile,
    process: usize,
    first_part: u32,
    /// The number of each device's row, by the name of the device.
    rows: BTreeMap<String, i64>,
}

impl<'a, 'b> Added<'a, 'b> {
    fn new(trace: &'a mut OneTrace<'b>, profile: &'a Profile, process: usize) -> Self {
        let first_part = free_part(profile, process);
        Self { trace, profile, process, first_part, rows: BTreeMap::new() }
    }

    fn row(&mut self, device: &str) -> i64 {
        if let Some(row) = self.rows.get(device) {
            return *row;
        }
        let index = self.first_part + self.rows.len() as u32;
        // Each process of the profile has a block of numbers for the rows of plugins' events. The
        // block after the last one is free.
        let block = self.profile.processes.len() as i64;
        let row = PLUGIN_ROWS + block * i64::from(PLUGIN_PARTS) + i64::from(index);
        let number = device.rsplit(' ').next().unwrap_or_default().to_owned();
        let part = self.profile.processes[self.process].id.of_plugins(index);
        self.trace.place(row, part, vec![SOURCE.to_owned(), number]);
        self.rows.insert(device.to_owned(), row);
        row
    }

    /// Gives a name to each device's process in the trace: the name of the device and `process`,
    /// the name of the recorded process.
    fn name_processes(&mut self, process: &str) -> Result<(), String> {
        for (device, row) in self.rows.clone() {
            let args = json!({ "name": format!("{device} of {process}") }).to_string();
            self.trace.event(
                0,
                &Event {
                    phase: b'M',
                    name: Some(Cow::Borrowed("process_name")),
                    pid: Some(Scalar::Int(row)),
                    tid: Some(Scalar::Int(0)),
                    args: Some(Raw::of(&args)),
                    ..Event::default()
                },
            )?;
        }
        Ok(())
    }
}

impl Sink for Added<'_, '_> {
    fn event(&mut self, event: &Event<'_>, is_known: bool) -> Result<(), String> {
        let timeline = &self.profile.timeline;
        let time_ns = event.time_ns.map(|ns| timeline.monotonic_to_realtime_ns(ns));
        let device = event.pid.as_ref().map(ToString::to_string).unwrap_or_default();
        let pid = Some(Scalar::Int(self.row(&device)));
        let event = Event { pid, time_ns, ..event.clone() };
        match is_known {
            true => self.trace.keep_only(&event),
            false => self.trace.event(0, &event),
        }
    }
}
