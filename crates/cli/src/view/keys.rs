//! The identity of a row or a thread, in JSON.

use analysis::Key;
use profile::{Profile, Role};
use serde::Serialize;

use super::labels::op_of;

/// What a row stands for.
#[derive(Serialize)]
#[serde(untagged)]
pub enum KeyOut<'a> {
    Op {
        op: &'a str,
        op_id: u32,
        library: &'a str,
        source: Option<String>,
        tag: Option<&'a str>,
        /// Only for ops of virtual machines and their parts, not for dispatches.
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
}

/// Facts that only ops of virtual machines have.
#[derive(Serialize)]
pub struct OfMachine<'a> {
    role: &'static str,
    arguments: &'a str,
    device: &'a str,
    asynchronous: bool,
}

/// A thread of the profile.
#[derive(Serialize)]
pub struct ThreadRef {
    process: usize,
    pid: u32,
    thread: u32,
    tid: u32,
}

/// Identifies a thread.
pub fn thread_ref(profile: &Profile, process: usize, thread: usize) -> ThreadRef {
    let p = &profile.processes[process];
    let t = &p.threads[thread];
    ThreadRef { process, pid: p.id.pid, thread: t.uid, tid: t.tid }
}

/// Identifies a row.
pub fn key_out(profile: &Profile, key: Key) -> KeyOut<'_> {
    match key {
        Key::Op(op_id) => {
            let op = op_of(profile, key);
            KeyOut::Op {
                op: op.map_or("", |op| &op.name),
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
    }
}
