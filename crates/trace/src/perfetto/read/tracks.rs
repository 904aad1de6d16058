//! Maps tracks to rows, which have a process and a thread.
//!
//! | track | process | thread |
//! |---|---|---|
//! | of a thread | its process id | its thread id |
//! | of a process | its process id | the track's name, or `process` |
//! | named, below another one | of the nearest process or thread above, or else the outermost name | its name |
//! | named, below none | its name | its name |
//!
//! As in viewers, tracks with the same name in the same process are one row.

use std::collections::HashMap;

use super::LONGEST_NAME;
use crate::perfetto::decode::Fields;
use crate::perfetto::fields::track;

const MOST_DEPTH: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Id {
    Number(i64),
    Text(Box<str>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Track {
    parent: Option<u64>,
    pub(super) name: String,
    pub(super) process: Option<ProcessTrack>,
    pub(super) thread: Option<ThreadTrack>,
    pub(super) counter: Option<CounterTrack>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ProcessTrack {
    pub(super) pid: i64,
    pub(super) name: String,
    pub(super) labels: String,
    pub(super) sort: Option<i64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ThreadTrack {
    pub(super) pid: i64,
    pub(super) tid: i64,
    pub(super) name: String,
    pub(super) sort: Option<i64>,
}

#[derive(Clone, Debug)]
pub(super) struct CounterTrack {
    pub(super) unit: String,
    pub(super) multiplier: i64,
    pub(super) incremental: bool,
}

fn text(bytes: Option<&[u8]>) -> String {
    let kept = |bytes: &[u8]| bytes.len().min(LONGEST_NAME);
    bytes
        .map(|bytes| String::from_utf8_lossy(&bytes[..kept(bytes)]).into_owned())
        .unwrap_or_default()
}

impl ProcessTrack {
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut process = Self::default();
        for (number, value, _) in Fields::new(bytes).flatten() {
            match number {
                track::PROCESS_PID => process.pid = value.uint().unwrap_or(0) as i32 as i64,
                track::PROCESS_NAME => process.name = text(value.bytes()),
                track::PROCESS_LABELS => {
                    let label = text(value.bytes());
                    if !process.labels.is_empty() && !label.is_empty() {
                        process.labels.push(',');
                    }
                    process.labels.push_str(&label);
                }
                track::PROCESS_SORT_INDEX => process.sort = value.uint().map(|n| n as i32 as i64),
                _ => {}
            }
        }
        process
    }
}

impl ThreadTrack {
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut thread = Self::default();
        for (number, value, _) in Fields::new(bytes).flatten() {
            match number {
                track::THREAD_PID => thread.pid = value.uint().unwrap_or(0) as i32 as i64,
                track::THREAD_TID => thread.tid = value.uint().unwrap_or(0) as i64,
                track::THREAD_NAME => thread.name = text(value.bytes()),
                track::THREAD_SORT_INDEX => thread.sort = value.uint().map(|n| n as i32 as i64),
                _ => {}
            }
        }
        thread
    }
}

impl CounterTrack {
    fn read(bytes: &[u8]) -> Self {
        let (mut unit, mut multiplier, mut incremental) = (String::new(), 1, false);
        for (number, value, _) in Fields::new(bytes).flatten() {
            match number {
                track::COUNTER_UNIT => {
                    let known = ["", "ns", "count", "bytes"];
                    let place = value.uint().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
                    unit = (*known.get(place).unwrap_or(&"")).to_owned();
                }
                track::COUNTER_UNIT_NAME => unit = text(value.bytes()),
                track::COUNTER_MULTIPLIER => multiplier = value.uint().unwrap_or(1) as i64,
                track::COUNTER_INCREMENTAL => incremental = value.uint() == Some(1),
                _ => {}
            }
        }
        Self { unit, multiplier, incremental }
    }
}

#[derive(Debug, Default)]
pub(super) struct Tracks {
    all: HashMap<u64, Track>,
    /// Tracks that are part of another track's row, each with that other track.
    parts: HashMap<u64, u64>,
}

impl Tracks {
    /// Adds a `TrackDescriptor` and returns its content. If the track was already described, the
    /// new data is added to its first description.
    pub(super) fn describe(&mut self, bytes: &[u8]) -> Track {
        let (mut uuid, mut found) = (0, Track::default());
        for (number, value, _) in Fields::new(bytes).flatten() {
            match number {
                track::UUID => uuid = value.uint().unwrap_or(0),
                track::PARENT => found.parent = value.uint(),
                track::NAME | track::STATIC_NAME | track::ATRACE_NAME => {
                    found.name = text(value.bytes());
                }
                track::PROCESS => found.process = value.bytes().map(ProcessTrack::read),
                track::THREAD => found.thread = value.bytes().map(ThreadTrack::read),
                track::COUNTER => found.counter = value.bytes().map(CounterTrack::read),
                _ => {}
            }
        }
        let said = found.clone();
        let known = self.all.entry(uuid).or_default();
        known.parent = found.parent.or(known.parent);
        if !found.name.is_empty() {
            known.name = found.name;
        }
        known.process = found.process.or(known.process.take());
        known.thread = found.thread.or(known.thread.take());
        known.counter = found.counter.or(known.counter.take());
        said
    }

    pub(super) fn get(&self, uuid: u64) -> Option<&Track> {
        self.all.get(&uuid)
    }

    /// Makes a track part of another track's row.
    pub(super) fn join(&mut self, uuid: u64, other: u64) {
        self.parts.insert(uuid, other);
    }

    /// Returns the process and the thread of a track's row.
    pub(super) fn row(&self, uuid: u64) -> (Id, Id) {
        let uuid = self.parts.get(&uuid).copied().unwrap_or(uuid);
        let named = |name: &str| Id::Text(name.into());
        let Some(own) = self.all.get(&uuid) else {
            let process = if uuid == 0 { "global track" } else { "tracks without a description" };
            return (named(process), Id::Number(uuid as i64));
        };
        if let Some(thread) = &own.thread {
            return (Id::Number(thread.pid), Id::Number(thread.tid));
        }
        let name = match (own.name.as_str(), &own.process) {
            ("", Some(_)) => "process".to_owned(),
            ("", None) => format!("track {uuid}"),
            (name, _) => name.to_owned(),
        };
        let (mut at, mut outermost) = (uuid, name.clone());
        for _ in 0..MOST_DEPTH {
            let Some(track) = self.all.get(&at) else { break };
            if let Some(process) = &track.process {
                return (Id::Number(process.pid), named(&name));
            }
            if let Some(thread) = &track.thread {
                return (Id::Number(thread.pid), named(&name));
            }
            if !track.name.is_empty() {
                outermost.clone_from(&track.name);
            }
            match track.parent.filter(|parent| *parent != 0 && *parent != at) {
                Some(parent) => at = parent,
                None => break,
            }
        }
        (named(&outermost), named(&name))
    }
}
