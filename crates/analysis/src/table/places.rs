//! Decides which calls the user's filters select, and to which row each call belongs.
//!
//! A profile of activities (an imported trace, or the events of plugins) stores their properties as
//! follows. The `library` of an op contains the name of the activity's kind. A process of the
//! profile is a device, or a process on the CPU. A thread of the profile is a stream of a device,
//! or a thread on the CPU. A process counts as a device if some of its ops have a kind that runs on
//! devices ([`model::activity`]).

use std::collections::{HashMap, HashSet};

use model::activity::{Kind, Registry};
use model::glob::matches;
use profile::batch::unknown_op;
use profile::{Homes, OpId, Profile};

use super::{By, Key};

/// What a table has rows for (`by`), and the patterns that select its calls.
#[derive(Debug, Default)]
pub(crate) struct Selection<'a> {
    pub by: By,
    pub op: Option<&'a str>,
    pub kind: Option<&'a str>,
    pub device: Option<&'a str>,
    pub stream: Option<&'a str>,
}

/// Numbers of processes, threads and devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of processes, without devices.
    pub processes: usize,
    pub threads: usize,
    /// Number of devices, which the profile stores like processes.
    pub devices: usize,
}

impl Counts {
    /// Counts these threads of a profile, and the processes and devices to which they belong.
    /// Streams of devices do not count as threads. Each thread is given by its process index and
    /// thread index, and may be given several times.
    pub fn of(profile: &Profile, threads: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let is_device = devices(profile);
        let threads: HashSet<(usize, usize)> = threads.into_iter().collect();
        let (mut processes, mut on_devices) = (HashSet::new(), HashSet::new());
        // The operating system can give the id of a thread that has ended to a new thread. So each
        // recorded thread counts, even if two have the same id. Threads of plugins are compared
        // with recorded threads by id, because a thread can be among both.
        let (mut recorded, mut of_plugins, mut count) = (HashSet::new(), HashSet::new(), 0);
        for (at, thread) in threads {
            let Some(process) = profile.processes.get(at) else { continue };
            if is_device[at] {
                on_devices.insert(at);
                continue;
            }
            // The events of a process's plugins are stored as another process with the same process
            // id.
            let id = (process.member, process.id.of_process());
            processes.insert((id, process.number(), process.pass));
            let tid = process.threads.get(thread).map(|thread| thread.tid);
            if process.id.is_of_plugins() {
                of_plugins.insert((id, tid));
            } else {
                recorded.insert((id, tid));
                count += 1;
            }
        }
        let threads = count + of_plugins.difference(&recorded).count();
        Self { processes: processes.len(), threads, devices: on_devices.len() }
    }
}

/// Selects the calls of a table and finds their rows.
#[derive(Debug)]
pub(crate) struct Places<'a> {
    by: By,
    /// For each op, whether its name and its kind are selected; `None` if all ops are selected.
    ops: Option<Vec<bool>>,
    /// The pattern for names of ops. It is also applied to the replacement names of ops whose own
    /// names are lost.
    filter: Option<&'a str>,
    /// Whether kinds are filtered. If so, a call whose op's name is lost is not selected, because
    /// its kind is unknown.
    some_kinds: bool,
    /// For each op, the first op of the same kind.
    kinds: Vec<OpId>,
    devices: Vec<bool>,
    /// For each process, whether it is selected; `None` if all processes are selected.
    processes: Option<Vec<bool>>,
    streams: Option<&'a str>,
    homes: Homes,
    /// For each process, the first process of the same rank. Empty if the table is not by rank.
    ranks: Vec<usize>,
}

impl<'a> Places<'a> {
    pub(crate) fn new(profile: &Profile, selection: &Selection<'a>) -> Self {
        let all = profile.ops.all();
        let filter = selection.op;
        let registry = Registry::new();
        let kind_matches = |glob: &str, library: &str| {
            matches(glob, library)
                || registry.parse(library).is_some_and(|label| match registry.kind(label) {
                    Kind::Generic(generic) => matches(glob, generic.name()),
                    Kind::Registered(_) => false,
                })
        };
        let by_kind = selection.kind;
        let selected = filter.is_some() || by_kind.is_some();
        let ops = selected.then(|| {
            all.iter()
                .map(|op| {
                    filter.is_none_or(|glob| op.is_called(glob))
                        && by_kind.is_none_or(|glob| kind_matches(glob, &op.library))
                })
                .collect()
        });
        let needs_devices = selection.device.is_some()
            || selection.stream.is_some()
            || matches!(selection.by, By::Device | By::Stream);
        let devices =
            if needs_devices { devices(profile) } else { vec![false; profile.processes.len()] };
        let processes = selection.device.map(|glob| {
            let named = |process: usize| {
                let found = &profile.processes[process];
                let program = found.info.as_ref().map_or("", |info| info.program.as_str());
                matches(glob, &found.number().to_string()) || matches(glob, program)
            };
            (0..devices.len()).map(|process| devices[process] && named(process)).collect()
        });
        let mut first = HashMap::new();
        let kinds = all
            .iter()
            .enumerate()
            .map(|(id, op)| *first.entry(&*op.library).or_insert(id as OpId))
            .collect();
        Self {
            by: selection.by,
            ops,
            filter,
            some_kinds: by_kind.is_some(),
            kinds,
            devices,
            processes,
            streams: selection.stream,
            homes: profile.homes(),
            ranks: if selection.by == By::Rank { profile.ranks() } else { Vec::new() },
        }
    }

    /// Whether the row of a call depends on its thread, and not only on its process and its
    /// function.
    pub(super) fn needs_thread(&self) -> bool {
        let of_process = matches!(self.by, By::Process | By::OpInProcess) && !self.homes.is_empty();
        matches!(self.by, By::Thread | By::Stream) || of_process || self.streams.is_some()
    }

    pub(crate) fn by(&self) -> By {
        self.by
    }

    /// Returns the recorded thread on which the calls of `thread` ran. The two differ for calls
    /// from plugins, which the profile stores in separate processes.
    pub(crate) fn home(&self, thread: (usize, usize)) -> (usize, usize) {
        self.homes.of(thread)
    }

    /// Returns the row for calls of an exported function in a thread. `None` if these calls are not
    /// selected. In a table by CPU, these calls can have different rows, so a placeholder is
    /// returned.
    pub(crate) fn row(
        &self,
        profile: &Profile,
        (process, thread): (usize, usize),
        export: u32,
    ) -> Option<Key> {
        let op = profile.ops.of(process, export);
        let is_wanted = match op {
            Some(op) => self.ops.as_ref().is_none_or(|ops| ops.get(op as usize) == Some(&true)),
            None => !self.some_kinds && self.filter.is_none_or(|f| matches(f, &unknown_op(export))),
        };
        let is_device = self.devices.get(process) == Some(&true);
        let is_here = self.processes.as_ref().is_none_or(|all| all.get(process) == Some(&true));
        let is_wanted = is_wanted
            && is_here
            && self
                .streams
                .is_none_or(|glob| is_device && is_stream(profile, process, thread, glob));
        is_wanted.then(|| match (self.by, op) {
            (By::Op, Some(op)) => Key::Op(profile.ops.row_of(op)),
            (By::OpInProcess, Some(op)) => {
                Key::OpIn(self.homes.of((process, thread)).0, profile.ops.row_of(op))
            }
            (By::Op | By::OpInProcess | By::Kind, None) => Key::Unknown(process, export),
            (By::Kind, Some(op)) => Key::Kind(self.kinds.get(op as usize).copied().unwrap_or(op)),
            (By::Device, _) => Key::Device(is_device.then_some(process)),
            (By::Stream, _) => Key::Stream(is_device.then_some((process, thread))),
            (By::Thread, _) => {
                let (process, thread) = self.homes.of((process, thread));
                Key::Thread(process, thread)
            }
            (By::Process, _) => Key::Process(self.homes.of((process, thread)).0),
            (By::Rank, _) => Key::Rank(self.ranks.get(process).copied().unwrap_or(process)),
            (By::Cpu, _) => Key::Cpu(0, 0),
        })
    }
}

fn is_stream(profile: &Profile, process: usize, thread: usize, glob: &str) -> bool {
    let thread = profile.processes.get(process).and_then(|process| process.threads.get(thread));
    thread
        .is_some_and(|thread| matches(glob, &thread.tid.to_string()) || matches(glob, &thread.name))
}

/// Returns, for each process, whether it is a device: whether some of its ops run on devices.
pub(crate) fn devices(profile: &Profile) -> Vec<bool> {
    let registry = Registry::new();
    let on_device: Vec<bool> = profile
        .ops
        .all()
        .iter()
        .map(|op| match registry.parse(&op.library).map(|label| registry.kind(label)) {
            Some(Kind::Generic(generic)) => generic.on_device(),
            _ => false,
        })
        .collect();
    let has = |process: usize| {
        profile.ops.of_process(process).any(|op| on_device.get(op as usize) == Some(&true))
    };
    (0..profile.processes.len()).map(has).collect()
}
