//! Turns the files of events that profiler plugins wrote in the recorded programs into activities,
//! calls and tracks of the profile.
//!
//! ```text
//!  processes/PID-START-GEN/plugins-N.events ─┬► plugins.tmp/ ──► the profile
//!  processes/PID-START-GEN/trace-N.json     ─┘   (recordings of PyTorch's profiler)
//! ```
//!
//! Everything is written to a directory of its own first. When it is complete, its last file says
//! so, and its contents are moved into the profile. So a conversion that is interrupted, at any
//! moment, is begun anew or finished by the next one, and nothing is there twice. Two conversions at
//! the same time wait for each other.

use std::fs::{self, File, Metadata};
use std::io::{self, BufReader, Read as _, Seek as _};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use model::Loss;
use plugin_host::stream::{Ending, Reader};
use profile::activities::ACTIVITIES_NAME;
use profile::tracks::TRACKS_NAME;
use profile::{LossCount, Manifest, PartId, Process, Profile, Timeline, UtcClock, merge_losses};
use record::Snapshot;
use record::meta::{self, LibraryKind, PARTS_NAME};
use serde::{Deserialize, Serialize};
use trace::chrome::event::Raw;
use trace::chrome::read::{EventSink as _, ReadSummary};
use trace::import::trace::Import;

use super::sink::{Events, Owner};
use crate::failure::Failure;
use crate::view::units::plural;

/// The directory in which everything is written first.
const STAGE_NAME: &str = "plugins.tmp";
/// Its last file.
const DONE_NAME: &str = "done.json";
/// The directories whose contents are moved.
const MOVED: [&str; 3] = [PARTS_NAME, ACTIVITIES_NAME, TRACKS_NAME];
/// Messages that the manifest keeps at most; the losses count all of them.
const MOST_NOTES: usize = 100;

/// What the streams of PyTorch's profiler say instead of a plugin's name.
const PYTORCH: &str = "PyTorch";
/// The beginning of a trace file in which the time is looked for that its times count from.
const HEAD: u64 = 1 << 20;

/// What a conversion did.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Converted {
    /// Events, counter values included.
    pub events: u64,
    /// What the plugins did wrong or have logged.
    pub notes: Vec<String>,
    /// The files that were converted, relative to the profile.
    files: Vec<String>,
}

/// Converts what the plugins have written in the processes of this profile that have ended. Returns
/// `None` if there is nothing to do, or if the profile belongs to somebody else. The recording must
/// be over, because this changes the manifest.
///
/// # Errors
/// The profile cannot be read, or not be written.
pub fn convert(dir: &Path) -> Result<Option<Converted>, Failure> {
    let manifest = Manifest::read(dir).map_err(Failure::new)?;
    let has_files = !manifest.plugins.is_empty() || has_files(dir);
    if !has_files || manifest.pool.is_some() || !is_own(dir) {
        return Ok(None);
    }
    let failed = |e: io::Error| Failure::new(format!("write {}: {e}", dir.display()));
    let _turn = Turn::wait(dir).map_err(failed)?;
    let stage = dir.join(STAGE_NAME);
    if let Some(done) = read_done(&stage) {
        // An earlier conversion was interrupted while it moved what it had written.
        return settle(dir, &stage, done).map(Some).map_err(failed);
    }
    remove(&stage).map_err(failed)?;
    let profile = Profile::open(dir).map_err(Failure::new)?;
    let done = match write(&profile, &manifest, &stage) {
        Ok(Some(done)) => done,
        Ok(None) => return Ok(None),
        Err(failure) => {
            let _ = remove(&stage);
            return Err(failure);
        }
    };
    let text = serde_json::to_vec(&done).map_err(Failure::new)?;
    fs::write(stage.join(DONE_NAME), text).map_err(failed)?;
    settle(dir, &stage, done).map(Some).map_err(failed)
}

/// Whether a process has left files, or an earlier conversion was interrupted. Which programs use
/// PyTorch is not known before.
fn has_files(dir: &Path) -> bool {
    let names = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    dir.join(STAGE_NAME).is_dir()
        || names(&dir.join(PARTS_NAME)).any(|part| {
            names(&part.path()).any(|file| file.file_name().to_str().is_some_and(is_file_of_events))
        })
}

/// Whether a file of this name is to be converted.
fn is_file_of_events(name: &str) -> bool {
    meta::events_number(name).is_some() || meta::trace_number(name).is_some()
}

/// Whether only the caller can write to the profile, and the places that are written to are
/// directories of it and no links. A profile may have been unpacked from any archive.
fn is_own(dir: &Path) -> bool {
    // SAFETY: no arguments, cannot fail.
    let user = unsafe { libc::geteuid() };
    let own = |metadata: &Metadata| metadata.uid() == user && metadata.mode() & 0o002 == 0;
    let is_own = |path: &Path| match path.symlink_metadata() {
        Ok(metadata) => metadata.is_dir() && own(&metadata),
        Err(e) => e.kind() == io::ErrorKind::NotFound,
    };
    let stage = dir.join(STAGE_NAME);
    dir.metadata().is_ok_and(|metadata| own(&metadata))
        && is_own(&stage)
        && MOVED.iter().all(|name| is_own(&dir.join(name)) && is_own(&stage.join(name)))
}

/// The right to convert, which the kernel takes back when this process ends.
struct Turn {
    #[expect(dead_code, reason = "only held")]
    directory: File,
}

impl Turn {
    /// Waits for it, but not for ever: anybody who may read the directory can lock it.
    fn wait(dir: &Path) -> io::Result<Self> {
        const PATIENCE: Duration = Duration::from_secs(10);
        let (directory, since) = (File::open(dir)?, Instant::now());
        loop {
            // SAFETY: a descriptor of our own.
            if unsafe { libc::flock(directory.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                return Ok(Self { directory });
            }
            let error = io::Error::last_os_error();
            let is_busy = error.kind() == io::ErrorKind::WouldBlock;
            if !is_busy && error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
            if since.elapsed() >= PATIENCE {
                return Err(io::Error::other("another command has locked it"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn read_done(stage: &Path) -> Option<Converted> {
    serde_json::from_slice(&fs::read(stage.join(DONE_NAME)).ok()?).ok()
}

fn remove(stage: &Path) -> io::Result<()> {
    match fs::remove_dir_all(stage) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Moves what was written into the profile.
fn settle(dir: &Path, stage: &Path, done: Converted) -> io::Result<Converted> {
    for name in MOVED {
        let entries = match fs::read_dir(stage.join(name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        let to = dir.join(name);
        if !to.is_dir() {
            fs::create_dir(&to)?;
        }
        for entry in entries {
            let entry = entry?;
            fs::rename(entry.path(), to.join(entry.file_name()))?;
        }
    }
    let mut manifest = Manifest::read(dir).map_err(io::Error::other)?;
    let is_new = |note: &&String| !manifest.notes.contains(note);
    let new: Vec<String> = done.notes.iter().filter(is_new).take(MOST_NOTES).cloned().collect();
    if !new.is_empty() {
        manifest.notes.extend(new);
        manifest.write(dir).map_err(io::Error::other)?;
    }
    for file in done.files.iter().filter(|file| is_events(file)) {
        match fs::remove_file(dir.join(file)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    remove(stage)?;
    Ok(done)
}

/// Whether this is the path of a file of events in a profile: `processes/PART/plugins-N.events`, or of a
/// trace file: `processes/PART/trace-N.json`.
fn is_events(path: &str) -> bool {
    let mut names = path.split('/');
    let is_part = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
    };
    names.next() == Some(PARTS_NAME)
        && names.next().is_some_and(is_part)
        && names.next().is_some_and(is_file_of_events)
        && names.next().is_none()
}

/// Writes everything to `stage`. `None`: there are no files of events.
fn write(
    profile: &Profile,
    manifest: &Manifest,
    stage: &Path,
) -> Result<Option<Converted>, Failure> {
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
    fs::create_dir(stage).map_err(|e| failed(&e))?;
    let timeline = profile.timeline;
    let mut import = Import::create_for(stage, manifest.clock, timeline).map_err(Failure::new)?;
    let mut trace = import.trace(&free_name(profile), 0).map_err(Failure::new)?;
    let (mut done, mut summary) = (Converted::default(), ReadSummary::default());
    let mut losses = Vec::new();
    let mut recordings = Vec::new();
    for (index, (process, files)) in all.into_iter().enumerate() {
        let clock = clock_of(profile, timeline);
        let mut owner = Owner::new(process.id, name_of(process), index, clock);
        let mut lost = Vec::new();
        let ops_are_calls = has_ops_of_torch(process);
        for (name, file) in files {
            owner.begin_recording();
            let mut events = Events::of_process(&mut trace, &mut owner);
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
        losses.push((owner.id(), merge_losses(&lost)));
    }
    done.events = summary.events;
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
        write_losses(stage, id, &losses)?;
    }
    Ok(Some(done))
}

/// Losses of plugins belong to the first part of their events.
fn write_losses(stage: &Path, owner: PartId, losses: &[LossCount]) -> Result<(), Failure> {
    let part = stage.join(PARTS_NAME).join(owner.of_plugins(0).name());
    fs::create_dir_all(&part)
        .map_err(|e| Failure::new(format!("create {}: {e}", part.display())))?;
    profile::raw::write_losses(&part, losses).map_err(Failure::new)
}

/// What was said about a file, and the facts about the recording in it, if it is one.
type OfFile = (Vec<String>, Option<serde_json::Map<String, serde_json::Value>>);

/// Whether PyTorch's ops were recorded with their counters in this process.
fn has_ops_of_torch(process: &Process) -> bool {
    process.libraries.iter().any(|library| library.kind == LibraryKind::Torch)
}

/// Adds a recording that PyTorch has written as a trace file.
fn convert_trace(
    mut events: Events<'_, '_>,
    mut file: File,
    lost: &mut Vec<LossCount>,
    summary: &mut ReadSummary,
) -> Result<OfFile, String> {
    let process = events.owner.as_ref().map_or_else(String::new, |owner| owner.name().to_owned());
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
        notes.push(format!("torch.profiler in {process}: a part of a recording is missing: {why}"));
        lost.push(LossCount::new(Loss::RecordingIncomplete, 1));
    }
    Ok((notes, Some(events.recording.fields)))
}

/// Adds the events of a plugin, or a recording of PyTorch's profiler.
fn convert_stream(
    mut events: Events<'_, '_>,
    file: File,
    lost: &mut Vec<LossCount>,
    summary: &mut ReadSummary,
) -> Result<OfFile, String> {
    let process = events.owner.as_ref().map_or_else(String::new, |owner| owner.name().to_owned());
    let ending = Reader::new(BufReader::new(file)).replay(&mut events);
    if let Some(error) = events.error {
        return Err(error);
    }
    if events.recording.any || events.plugin == PYTORCH {
        return Ok(of_recording(events, &process, ending, lost, summary));
    }
    let plugin = match events.plugin.as_str() {
        "" => "a plugin",
        name => name,
    };
    let mut notes = Vec::new();
    let mut note = |text: String| notes.push(format!("plugin {plugin} in {process}: {text}"));
    let (mut failed, mut full) = (0, 0);
    for said in &events.said {
        let times = if said.count > 1 { format!(" ({} times)", said.count) } else { String::new() };
        note(format!("{}{times}", said.text));
        failed += if said.loses { said.count } else { 0 };
    }
    if let (count @ 1.., Some(example)) = (events.not_json, &events.example) {
        note(format!("metadata that is not JSON was kept as text {count} times: {example}"));
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
    if full > 0 {
        note(format!("{} did not fit into --plugin-buffer", plural(full.into(), "event")));
    }
    let counted = [(Loss::PluginFailed, failed), (Loss::PluginBufferFull, full)];
    lost.extend(counted.map(|(loss, count)| LossCount::new(loss, count)));
    summary.events += events.events;
    summary.mended += events.not_text;
    Ok((notes, None))
}

/// What is to be said about a recording of PyTorch's profiler.
fn of_recording(
    events: Events<'_, '_>,
    process: &str,
    ending: io::Result<Ending>,
    lost: &mut Vec<LossCount>,
    summary: &mut ReadSummary,
) -> OfFile {
    let mut notes = Vec::new();
    let mut note = |text: String| notes.push(format!("torch.profiler in {process}: {text}"));
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
        note(format!("metadata that is not JSON was kept as text {count} times: {example}"));
    }
    summary.events += events.events;
    summary.mended += events.not_text;
    (notes, Some(events.recording.fields))
}

/// A name that no other activities of the profile have.
fn free_name(profile: &Profile) -> String {
    let is_free = |name: &String| {
        [ACTIVITIES_NAME, TRACKS_NAME]
            .iter()
            .all(|place| profile.dir.join(place).join(name).symlink_metadata().is_err())
    };
    let first = std::iter::once("plugins".to_owned());
    let mut names = first.chain((2_u32..).map(|number| format!("plugins-{number}")));
    names.find(is_free).unwrap_or_default()
}

fn clock_of(profile: &Profile, timeline: Timeline) -> UtcClock {
    let moments = profile.snapshots.iter().map(|moment| Snapshot::from(*moment));
    UtcClock::new(timeline, &moments.collect::<Vec<_>>())
}

/// What a process is called: `python3 4711`.
fn name_of(process: &Process) -> String {
    let program = process.info.as_ref().map_or("", |info| info.program.as_str());
    match program.rsplit('/').next().unwrap_or_default() {
        "" => format!("process {}", process.id.pid),
        name => format!("{name} {}", process.id.pid),
    }
}

#[cfg(test)]
mod tests {
    use super::is_events;

    #[test]
    fn only_files_of_events_are_removed() {
        assert!(is_events("processes/12-34-0/plugins-0.events"));
        for other in [
            "processes/12-34-0/pages.cps",
            "processes/../plugins-0.events",
            "processes/12-34-0/x/plugins-0.events",
            "/processes/12-34-0/plugins-0.events",
            "processes//plugins-0.events",
            "manifest.json",
        ] {
            assert!(!is_events(other), "{other}");
        }
    }
}
