//! Makes the labels of rows, processes and threads.

use std::collections::{HashMap, HashSet};

use analysis::{Key, SilentThread};
use profile::batch::unknown_op;
use profile::demangle::{Detail, demangle};
use profile::{Op, Process, Profile, Role};

use crate::terminal::visible;

/// Returns the op of a row. `None` if the row does not stand for an op, or if the op's metadata is
/// not known.
pub fn op_of(profile: &Profile, key: Key) -> Option<&Op> {
    match key {
        Key::Op(id) | Key::OpIn(_, id) => profile.ops.get(id),
        _ => None,
    }
}

/// Returns a label for each row. If ops have the same name, more is added until the labels differ.
/// First come the arguments (for overloaded C++ functions, the parameters), then the library, then
/// the op's number. If threads of several processes have the same label, the process is added.
pub fn labels(profile: &Profile, keys: &[Key]) -> Vec<String> {
    let short = |key: &Key| label(profile, *key, Detail::Short);
    let mut labels: Vec<String> = keys.iter().map(short).collect();
    let mut seen: HashMap<String, usize> = HashMap::new();
    labels.iter().for_each(|label| *seen.entry(label.clone()).or_default() += 1);
    for (key, shown) in keys.iter().zip(&mut labels).filter(|(_, l)| seen[l.as_str()] > 1) {
        *shown = label(profile, *key, Detail::Whole);
    }
    for attempt in 0..3 {
        let mut seen: HashMap<String, usize> = HashMap::new();
        let mut arguments: HashMap<String, HashSet<&str>> = HashMap::new();
        for (key, label) in keys.iter().zip(&labels) {
            *seen.entry(label.clone()).or_default() += 1;
            let of_op = op_of(profile, *key).map(|op| op.arguments.as_str());
            arguments.entry(label.clone()).or_default().extend(of_op);
        }
        for (key, label) in keys.iter().zip(&mut labels).filter(|(_, l)| seen[l.as_str()] > 1) {
            let op = op_of(profile, *key);
            let differ = arguments[label.as_str()].len() > 1;
            match (attempt, *key) {
                // Arguments distinguish ops best.
                (0, Key::Op(_)) if differ => {
                    label.push_str(&format!(" ({})", op.map_or("", |op| &op.arguments)));
                }
                (1, Key::Op(_)) => {
                    label.push_str(&format!(" [{}]", op.map_or("", |op| &*op.library)));
                }
                (2, Key::Op(id)) => label.push_str(&format!(" #{id}")),
                (0, Key::Thread(process, _)) => {
                    label.push_str(&format!(" of {}", process_label(profile, process)));
                }
                _ => {}
            }
        }
    }
    labels
}

/// Returns the name of an op. The role follows if the name alone would be misleading.
fn op_label(op: &Op, detail: Detail) -> String {
    let name = demangle(op.shown_name(), detail);
    match op.role {
        Role::Workgroup | Role::Op => name.into_owned(),
        Role::Span => format!("{name} (async span)"),
        Role::Bookkeeping => format!("{name} (profiler's own)"),
        role => format!("{name} ({})", role.name()),
    }
}

/// Whether the profile has ops whose calls are not workgroups.
pub fn has_roles(profile: &Profile) -> bool {
    profile.ops.all().iter().any(|op| op.role != Role::Workgroup)
}

fn label(profile: &Profile, key: Key, detail: Detail) -> String {
    match key {
        Key::Op(id) | Key::OpIn(_, id) => match profile.ops.get(id) {
            Some(op) => op_label(op, detail),
            None => format!("op {id}"),
        },
        Key::Unknown(process, export) => match profile.processes.as_slice() {
            [_] => unknown_op(export),
            all => format!("{} of process {}", unknown_op(export), all[process].id.pid),
        },
        Key::Cpu(cpu, node) => {
            if node == 0 {
                format!("cpu {cpu}")
            } else {
                format!("cpu {cpu} (node {node})")
            }
        }
        Key::Process(process) => process_label(profile, process),
        Key::Rank(process) => rank_label(profile, process),
        Key::Thread(process, thread) => thread_label(profile, process, thread),
        Key::Kind(op) => profile.ops.get(op).map_or("", |op| &*op.library).to_owned(),
        Key::Device(Some(process)) => process_label(profile, process),
        Key::Stream(Some((process, thread))) => {
            let (stream, device) =
                (thread_label(profile, process, thread), process_label(profile, process));
            format!("{stream} of {device}")
        }
        Key::Device(None) | Key::Stream(None) => "not on a device".to_owned(),
    }
}

/// Returns the label of a rank, such as `rank 3`. The machine is added if the profile has
/// recordings of several machines. In a merged profile, processes without a rank are labelled with
/// the name of their recording.
fn rank_label(profile: &Profile, first: usize) -> String {
    let Some(process) = profile.processes.get(first) else { return String::new() };
    let member = profile.members.get(process.member);
    let name = match (process.job, member) {
        (Some(job), _) => format!("rank {}", job.rank),
        (None, Some(member)) => visible(&member.name).into_owned(),
        (None, None) => "no rank".to_owned(),
    };
    let several = profile.members.windows(2).any(|two| two[0].host != two[1].host);
    match member.filter(|_| several) {
        Some(member) => format!("{name} on {}", visible(&member.host)),
        None => name,
    }
}

/// Returns the label of a process, such as `4711 iree-run-module`. Events of plugins belong to
/// processes of their own, such as `accelerator 3 of python3 4711`. The rank is added. In a merged
/// profile, a process without a rank gets the name of its recording instead.
pub fn process_label(profile: &Profile, process: usize) -> String {
    let Some(process) = profile.processes.get(process) else { return String::new() };
    let program = process.info.as_ref().map_or("", |info| info.program.as_str());
    let program = program.rsplit('/').next().unwrap_or_default();
    let rank = match (process.job, profile.members.get(process.member)) {
        (Some(job), _) => format!(" (rank {})", job.rank),
        (None, Some(member)) => format!(" ({})", visible(&member.name)),
        (None, None) => String::new(),
    };
    if process.id.is_of_plugins() && !program.is_empty() {
        return format!("{}{rank}", visible(program));
    }
    let again = match process.id.generation {
        0 => String::new(),
        n => format!(" (exec {n})"),
    };
    format!("{} {program}{again}{rank}", process.id.pid).trim_end().to_owned()
}

/// Returns the label of a thread that recorded no call, or of all such threads that ended before
/// their process.
pub fn silent_label(profile: &Profile, thread: &SilentThread) -> String {
    match &thread.thread {
        Some((tid, name)) => named_thread(profile.processes.get(thread.process), *tid, name),
        None => "(ended earlier)".to_owned(),
    }
}

/// Returns a thread's name and number. Linux gives a thread the name of the program unless the
/// thread gets a name of its own. If another thread has the main thread's name, `main` is added to
/// the main thread's label. The main thread's number is that of the process.
fn named_thread(process: Option<&Process>, tid: u32, name: &str) -> String {
    let is_main = process
        .filter(|of| of.id.pid == tid)
        .is_some_and(|of| of.threads.iter().any(|other| other.tid != tid && other.name == name));
    format!("{}{} ({tid})", if is_main { "main, " } else { "" }, visible(name))
}

/// Returns the label of a thread: `iree-worker-0 (4712)`, `main, python3 (4711)`.
pub fn thread_label(profile: &Profile, process: usize, thread: usize) -> String {
    let process = profile.processes.get(process);
    let of_plugins = process.is_some_and(|p| p.id.is_of_plugins());
    let Some(thread) = process.and_then(|p| p.threads.get(thread)) else { return String::new() };
    if of_plugins && thread.name.is_empty() {
        return format!("thread {}", thread.tid);
    }
    named_thread(process, thread.tid, &thread.name)
}
