//! Writes the identity of a row or a thread in JSON.

use analysis::Key;
use model::activity::{Kind, Registry};
use profile::{Profile, Role};
use serde::Serialize;

use super::labels::op_of;

#[derive(Serialize)]
#[serde(untagged)]
pub enum KeyOut<'a> {
    Op {
        op: &'a str,
        op_id: u32,
        library: &'a str,
        source: Option<String>,
        tag: Option<&'a str>,
        /// Facts about an op that is not a dispatch. JSON has these members only for such ops.
        #[serde(flatten)]
        of_machine: Option<OfMachine<'a>>,
    },
    Unknown {
        op: String,
        op_id: Option<u32>,
        process: usize,
        export: u32,
    },
    Thread(ThreadRef),
    Cpu {
        cpu: u32,
        node: u32,
    },
    Process {
        process: usize,
        pid: u32,
    },
    Rank {
        /// Null if the rank is not known.
        rank: Option<u32>,
        world_size: Option<u32>,
        #[serde(flatten)]
        member: MemberOut<'a>,
        processes: Vec<usize>,
    },
    Kind {
        /// The kind's name in the trace, such as `cuda_runtime`.
        kind: &'a str,
        /// The kind's generic name, such as `runtime`, which does not depend on the tool. Null if
        /// the kind has none.
        generic: Option<&'static str>,
    },
    /// The members are null for rows that are not on a device.
    Device {
        device: Option<u32>,
        device_name: Option<&'a str>,
        process: Option<usize>,
    },
    Stream {
        device: Option<u32>,
        device_name: Option<&'a str>,
        stream: Option<u32>,
        stream_name: Option<&'a str>,
        process: Option<usize>,
        thread: Option<u32>,
    },
}

/// The recording that a process belongs to.
#[derive(Serialize)]
pub struct MemberOut<'a> {
    host: &'a str,
    /// The name of the recording in a merged profile. Null if the profile is not merged.
    profile: Option<&'a str>,
}

impl<'a> MemberOut<'a> {
    fn of(profile: &'a Profile, process: usize) -> Self {
        let process = &profile.processes[process];
        let member = profile.members.get(process.member);
        Self { host: profile.host_of(process), profile: member.map(|member| &*member.name) }
    }
}

#[derive(Serialize)]
pub struct OfMachine<'a> {
    role: &'static str,
    arguments: &'a str,
    device: &'a str,
    asynchronous: bool,
}

#[derive(Serialize)]
pub struct ThreadRef {
    process: usize,
    pid: u32,
    thread: u32,
    tid: u32,
}

pub fn thread_ref(profile: &Profile, process: usize, thread: usize) -> ThreadRef {
    let p = &profile.processes[process];
    let t = &p.threads[thread];
    ThreadRef { process, pid: p.id.pid, thread: t.uid, tid: t.tid }
}

pub fn key_out(profile: &Profile, key: Key) -> KeyOut<'_> {
    match key {
        Key::Op(op_id) | Key::OpIn(_, op_id) => {
            let op = op_of(profile, key);
            KeyOut::Op {
                op: op.map_or("", |op| op.shown_name()),
                op_id,
                library: op.map_or("", |op| &op.library),
                source: op.and_then(profile::Op::source),
                tag: op.map(|op| op.tag.as_str()).filter(|tag| !tag.is_empty()),
                of_machine: op.filter(|op| op.role != Role::Workgroup).map(|op| OfMachine {
                    role: op.role.name(),
                    arguments: &op.arguments,
                    device: &op.device,
                    asynchronous: op.asynchronous,
                }),
            }
        }
        Key::Unknown(process, export) => {
            KeyOut::Unknown { op: profile::batch::unknown_op(export), op_id: None, process, export }
        }
        Key::Thread(process, thread) => KeyOut::Thread(thread_ref(profile, process, thread)),
        Key::Cpu(cpu, node) => KeyOut::Cpu { cpu, node },
        Key::Process(process) => {
            KeyOut::Process { process, pid: profile.processes[process].id.pid }
        }
        Key::Rank(first) => {
            let ranks = profile.ranks();
            let job = profile.processes.get(first).and_then(|process| process.job);
            KeyOut::Rank {
                rank: job.map(|job| job.rank),
                world_size: job.and_then(|job| job.size),
                member: MemberOut::of(profile, first),
                processes: (0..ranks.len()).filter(|at| ranks[*at] == first).collect(),
            }
        }
        Key::Kind(op) => {
            let kind = profile.ops.get(op).map_or("", |op| &op.library);
            KeyOut::Kind { kind, generic: generic(kind) }
        }
        Key::Device(process) => {
            let (device, device_name) = device_of(profile, process);
            KeyOut::Device { device, device_name, process }
        }
        Key::Stream(of) => {
            let (device, device_name) = device_of(profile, of.map(|of| of.0));
            let stream = of.map(|(process, thread)| &profile.processes[process].threads[thread]);
            KeyOut::Stream {
                device,
                device_name,
                stream: stream.map(|stream| stream.tid),
                stream_name: stream.map(|stream| stream.name.as_str()),
                process: of.map(|of| of.0),
                thread: stream.map(|stream| stream.uid),
            }
        }
    }
}

/// Returns the generic name of a kind of activities. `None` if this kind is not one of the generic
/// kinds or their aliases.
pub fn generic(kind: &str) -> Option<&'static str> {
    let registry = Registry::new();
    match registry.kind(registry.parse(kind)?) {
        Kind::Generic(generic) => Some(generic.name()),
        Kind::Registered(_) => None,
    }
}

fn device_of(profile: &Profile, process: Option<usize>) -> (Option<u32>, Option<&str>) {
    let process = process.map(|process| &profile.processes[process]);
    let info = process.and_then(|process| process.info.as_ref());
    (process.map(profile::Process::number), info.map(|info| info.program.as_str()))
}
