//! Turns the files of events that profiler plugins wrote in the recorded programs into activities,
//! calls and tracks.
//!
//! ```text
//!  processes/PID-START-GEN/plugins-N.events ─┬► a directory with processes, activities, tracks
//!  processes/PID-START-GEN/trace-N.json     ─┘   (recordings of a host's own profiler)
//! ```
//!
//! At the end of a recording, the result is on disk ([`super::keep`]). For a view of an unfinished
//! profile, it is in memory ([`super::show()`]).

use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _};
use std::time::SystemTime;

use model::Loss;
use plugin_host::stream::{Ending, Reader};
use profile::activities::ACTIVITIES_NAME;
use profile::launches::PROCESSES_KEY;
use profile::safe_dir::Dir;
use profile::tracks::TRACKS_NAME;
use profile::{
    Host, LossCount, Manifest, PartId, Process, Profile, Timeline, UtcClock, merge_losses,
};
use record::Snapshot;
use record::meta::{self, PARTS_NAME};
use serde::{Deserialize, Serialize};
use trace::chrome::event::Raw;
use trace::chrome::read::{EventSink as _, ReadSummary};
use trace::import::trace::Import;

use super::owner::Owner;
use super::sink::{Events, losses};
use super::times::Window;
use crate::failure::Failure;
use crate::view::units::plural;

pub(super) const WRITTEN: [&str; 3] = [PARTS_NAME, ACTIVITIES_NAME, TRACKS_NAME];
/// A conversion adds at most this many notes to the manifest.
const MOST_NOTES: usize = 100;

/// The base of a trace file's times is searched for in this many bytes at the file's beginning.
const HEAD: u64 = 1 << 20;

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Converted {
    /// Number of events, including values of counters.
    pub events: u64,
    pub notes: Vec<String>,
    /// The converted files, as paths relative to the profile.
    files: Vec<String>,
}

impl Converted {
    /// Makes the result for events that came from a file outside of the profile.
    pub fn of_events(events: u64, notes: Vec<String>) -> Self {
        Self { events, notes, files: Vec::new() }
    }

    /// Returns each file as the name of its part (a directory in the profile) and the file's own
    /// name. Paths of another form are left out, because somebody may have forged the file that
    /// describes an interrupted conversion.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|path| {
            let (part, name) = path.strip_prefix(PARTS_NAME)?.strip_prefix('/')?.split_once('/')?;
            (PartId::parse(part).is_some() && is_file_of_events(name)).then_some((part, name))
        })
    }

    /// Adds to the manifest at most `MOST_NOTES` notes that it does not contain yet. Returns
    /// whether there were any.
    pub(super) fn add_notes(&self, manifest: &mut Manifest) -> bool {
        let is_new = |note: &&String| !manifest.notes.contains(note);
        let new: Vec<String> = self.notes.iter().filter(is_new).take(MOST_NOTES).cloned().collect();
        let any = !new.is_empty();
        manifest.notes.extend(new);
        any
    }
}

pub(super) fn is_file_of_events(name: &str) -> bool {
    meta::events_number(name).is_some() || meta::trace_number(name).is_some()
}

/// Converts the events of processes that have ended. Writes the result to `stage`, which must be an
/// empty directory. Returns `None` if there are no files with events.
pub(super) fn write(profile: &Profile, stage: &Dir) -> Result<Option<Converted>, Failure> {
    let mut all = Vec::new();
    for process in profile.processes.iter().filter(|p| !p.alive && !p.id.is_of_plugins()) {
        let files = process.open_events().map_err(Failure::new)?;
        if !files.is_empty() {
            all.push((process, files));
        }
    }
    if all.is_empty() {
        return Ok(None);
    }
    let failed =
        |e: &dyn std::fmt::Display| Failure::new(format!("write {}: {e}", profile.dir.display()));
    let timeline = profile.timeline;
    let mut import =
        Import::create_for(stage, profile.manifest.clock, timeline).map_err(Failure::new)?;
    let mut trace = import.trace(&free_name(profile, "plugins"), 0).map_err(Failure::new)?;
    let (mut done, mut summary) = (Converted::default(), ReadSummary::default());
    let mut losses = Vec::new();
    let mut recordings = Vec::new();
    let mut parts = Vec::new();
    // The number of a stream becomes a part of the ids of its arrows (flows between two slices), so
    // that arrows of different streams have different ids. Stream 0 has the profile's own calls.
    let mut streams = 1..;
    for (index, (process, files)) in all.into_iter().enumerate() {
        parts.push(process.id.name());
        let clock = (clock_of(profile, timeline), window_of(profile));
        let mut owner = Owner::new(process.id, name_of(process), index, clock);
        let mut lost = Vec::new();
        let host = with_profiler(process);
        let ops_are_calls = has_ops_of(process, host);
        for (name, file) in files {
            owner.begin_stream(streams.next().unwrap_or_default());
            owner.begin_plugin(&host.title, process.id.pid);
            let mut events = Events::new(&mut trace, &mut owner, host);
            events.recording.ops_are_calls = ops_are_calls;
            let one = match meta::trace_number(&name) {
                Some(_) => convert_trace(events, file, &mut lost, &mut summary),
                None => convert_stream(events, file, &mut lost, &mut summary),
            };
            let (notes, fields) = one.map_err(|e| failed(&e))?;
            done.notes.extend(notes);
            if let Some(mut fields) = fields {
                fields.insert("process".to_owned(), process.id.pid.into());
                recordings.push(serde_json::Value::Object(fields));
            }
            done.files.push(format!("{PARTS_NAME}/{}/{name}", process.id.name()));
        }
        owner.finish(&mut trace).map_err(|e| failed(&e))?;
        losses.push((process.id, merge_losses(&lost)));
    }
    done.events = summary.events;
    if profile.manifest.plugin_ids {
        let parts = serde_json::Value::from(parts).to_string();
        trace.top(0, PROCESSES_KEY, Raw::of(&parts)).map_err(|e| failed(&e))?;
    }
    if !recordings.is_empty() {
        let recordings = serde_json::Value::Array(recordings).to_string();
        trace.top(0, "recordings", Raw::of(&recordings)).map_err(|e| failed(&e))?;
    }
    trace.finish("plugins", &summary).map_err(Failure::new)?;
    let added = import.finish_added().map_err(Failure::new)?;
    done.notes.extend(added.notes);
    if let Some((_, first)) = losses.first_mut() {
        *first = merge_losses(first.iter().chain(&added.losses));
    }
    for (id, losses) in losses {
        write_losses(stage, id.of_plugins(0), &losses)?;
    }
    Ok(Some(done))
}

/// Writes losses to a part (a process or a row of a plugin). The losses of all plugins in a process
/// are written to the first of the parts that have the plugins' events.
pub fn write_losses(stage: &Dir, part: PartId, losses: &[LossCount]) -> Result<(), Failure> {
    let part = stage.make_dir(PARTS_NAME).and_then(|p| p.make_dir(&part.name()));
    part.and_then(|part| profile::write_losses(&part, losses)).map_err(Failure::new)
}

/// Notes about a file, and facts about the recording if a framework's own profiler (such as
/// PyTorch's) wrote the file.
type OfFile = (Vec<String>, Option<serde_json::Map<String, serde_json::Value>>);

/// Returns the host of the process (a framework that runs ops, such as PyTorch) that has its own
/// profiler; [`Host::UNKNOWN`] if there is none.
fn with_profiler(process: &Process) -> &Host {
    let host = process.hosts.iter().find(|(_, host)| !host.profiler.is_empty());
    host.map_or(&Host::UNKNOWN, |(_, host)| host)
}

/// Whether Counterpoint itself recorded this host's ops in this process.
fn has_ops_of(process: &Process, host: &Host) -> bool {
    !host.profiler.is_empty() && process.seen_hosts().any(|seen| seen == host)
}

/// Returns the name that notes use for the host's profiler.
fn profiler(host: &Host) -> &str {
    match &*host.profiler {
        "" => "a recording of a host's own profiler",
        name => name,
    }
}

fn convert_trace(
    mut events: Events<'_, '_>,
    mut file: File,
    lost: &mut Vec<LossCount>,
    summary: &mut ReadSummary,
) -> Result<OfFile, String> {
    let process = events.owner.process().map_or_else(String::new, |(_, name)| name.to_owned());
    let mut head = Vec::new();
    let begun = (&mut file).take(HEAD).read_to_end(&mut head).and_then(|_| file.rewind());
    let read = match begun {
        Ok(()) => events.read_file(BufReader::new(file), &head).map_err(|e| e.to_string()),
        Err(error) => Err(error.to_string()),
    };
    if let Some(error) = events.error {
        return Err(error);
    }
    let why = match read {
        Ok(read) if read.truncated => Some("its trace file is truncated".to_owned()),
        Ok(read) if read.damaged > 0 => Some("events of its trace file are damaged".to_owned()),
        Ok(_) => None,
        Err(error) => Some(error),
    };
    summary.events += events.events;
    summary.mended += events.not_text;
    let mut notes = Vec::new();
    if let Some(why) = why {
        let profiler = profiler(events.host);
        notes.push(format!("{profiler} in {process}: a part of a recording is missing: {why}"));
        lost.push(LossCount::new(Loss::RecordingIncomplete, 1));
    }
    Ok((notes, Some(events.recording.fields)))
}

fn convert_stream(
    mut events: Events<'_, '_>,
    file: File,
    lost: &mut Vec<LossCount>,
    summary: &mut ReadSummary,
) -> Result<OfFile, String> {
    let process = events.owner.process().map_or_else(String::new, |(_, name)| name.to_owned());
    let ending = Reader::new(BufReader::new(file)).replay(&mut events);
    if let Some(error) = events.error {
        return Err(error);
    }
    if events.recording.any || events.plugin == *events.host.title {
        return Ok(of_recording(events, &process, ending, lost, summary));
    }
    let plugin = match events.plugin.as_str() {
        "" => "a plugin",
        name => name,
    };
    let mut notes = Vec::new();
    let mut note = |text: String| notes.push(format!("plugin {plugin} in {process}: {text}"));
    let (mut failed, mut full) = (0, 0);
    events.owner.said().into_iter().for_each(&mut note);
    for said in &events.said {
        let times = if said.count > 1 { format!(" ({} times)", said.count) } else { String::new() };
        note(format!("{}{times}", said.text));
        failed += if said.loses { said.count } else { 0 };
    }
    if let (count @ 1.., Some(example)) = (events.not_json, &events.example) {
        note(format!(
            "metadata that is not JSON, or is nested too deeply, was kept as text {count} times: {example:.100}"
        ));
        failed += count;
    }
    match ending {
        Ok(Ending::Whole { dropped }) => full = dropped,
        Ok(Ending::Cut) => {
            let when = if events.doing.is_empty() { "at an unknown time" } else { &events.doing };
            note(format!(
                "the process ended {when}, or the plugin did not return; what the plugin had not \
                 handed over is missing"
            ));
            failed += 1;
        }
        Ok(Ending::Damaged { at }) => {
            note(format!("its events are damaged after byte {at}"));
            failed += 1;
        }
        Err(error) => {
            note(format!("its events cannot be read: {error}"));
            failed += 1;
        }
    }
    let [overflow, untimed, uncounted] = events.missing;
    full += overflow;
    if full > 0 {
        note(format!("{} did not fit into --plugin-buffer", plural(full.into(), "event")));
    }
    lost.extend(losses(failed, full, untimed, uncounted));
    summary.events += events.events;
    summary.mended += events.not_text;
    Ok((notes, None))
}

fn of_recording(
    events: Events<'_, '_>,
    process: &str,
    ending: io::Result<Ending>,
    lost: &mut Vec<LossCount>,
    summary: &mut ReadSummary,
) -> OfFile {
    let mut notes = Vec::new();
    let profiler = profiler(events.host);
    let mut note = |text: String| notes.push(format!("{profiler} in {process}: {text}"));
    let why = match ending {
        Ok(Ending::Whole { dropped: 0 }) => None,
        Ok(Ending::Whole { dropped }) => {
            Some(format!("{} were too long", plural(dropped.into(), "value")))
        }
        Ok(Ending::Cut) => Some("the process ended while it was handed over".to_owned()),
        Ok(Ending::Damaged { at }) => Some(format!("it is damaged after byte {at}")),
        Err(error) => Some(format!("it cannot be read: {error}")),
    };
    if let Some(why) = why {
        note(format!("a part of a recording is missing: {why}"));
        lost.push(LossCount::new(Loss::RecordingIncomplete, 1));
    }
    if let (count @ 1.., Some(example)) = (events.not_json, &events.example) {
        note(format!(
            "metadata that is not JSON, or is nested too deeply, was kept as text {count} times: {example:.100}"
        ));
    }
    summary.events += events.events;
    summary.mended += events.not_text;
    (notes, Some(events.recording.fields))
}

/// Returns a name that no other activities or tracks of the profile have.
pub fn free_name(profile: &Profile, name: &str) -> String {
    let places = [ACTIVITIES_NAME, TRACKS_NAME].map(|place| profile.root().dir(place));
    let is_free = |name: &String| places.iter().flatten().all(|place| place.look(name).is_err());
    let first = std::iter::once(name.to_owned());
    let mut names = first.chain((2_u32..).map(|number| format!("{name}-{number}")));
    names.find(is_free).unwrap_or_default()
}

fn clock_of(profile: &Profile, timeline: Timeline) -> UtcClock {
    let moments = profile.snapshots.iter().map(|moment| Snapshot::from(*moment));
    UtcClock::new(timeline, &moments.collect::<Vec<_>>())
}

/// Returns the time range of the recording. The recording's end is not known, so the range ends
/// now.
fn window_of(profile: &Profile) -> Option<Window> {
    let first = profile.snapshots.iter().min_by_key(|moment| moment.ticks)?;
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Some(Window {
        first_ns: first.realtime_ns as i64,
        last_ns: i64::try_from(since_1970.as_nanos()).unwrap_or(i64::MAX),
        offset_ns: first.realtime_ns.wrapping_sub(first.monotonic_ns) as i64,
    })
}

/// Returns a name for the process, for example `python3 4711`.
fn name_of(process: &Process) -> String {
    let program = process.info.as_ref().map_or("", |info| info.program.as_str());
    match program.rsplit('/').next().unwrap_or_default() {
        "" => format!("process {}", process.id.pid),
        name => format!("{name} {}", process.id.pid),
    }
}

#[cfg(test)]
mod tests {
    use super::Converted;

    #[test]
    fn only_files_of_events_are_removed() {
        let files = |paths: &[&str]| {
            let files = paths.iter().map(|path| (*path).to_owned()).collect();
            let done = Converted { files, ..Converted::default() };
            done.files().map(|(part, name)| format!("{part} {name}")).collect::<Vec<_>>()
        };
        let own = files(&["processes/12-34-0/plugins-0.events"]);
        assert_eq!(own, ["12-34-0 plugins-0.events"]);
        let others = [
            "processes/12-34-0/pages.cps",
            "processes/../plugins-0.events",
            "processes/12-34-0/x/plugins-0.events",
            "/processes/12-34-0/plugins-0.events",
            "processes//plugins-0.events",
            "processesx/12-34-0/plugins-0.events",
            "manifest.json",
        ];
        assert_eq!(files(&others), Vec::<String>::new());
    }
}
