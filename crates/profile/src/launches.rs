//! Finds the op that launched each activity of a device. The plugins must have got an id for each
//! op (`run --plugin-ids`).
//!
//! ```text
//!  op of a program   a value with the key KEY_PLUGIN_ID ──┐
//!                                                         ├─ the same id, in the same process
//!  kernel of a plugin   the argument "External id" ───────┘
//! ```
//!
//! Several compute kernels may have the id of the same op. Only activities of devices are matched,
//! because activities on the host are already inside of their op.

use std::collections::HashMap;

use model::activity::{Kind, Registry};
use serde::Deserialize;

use crate::activities::{Activities, Activity, NameId};
use crate::columns::KEY_PLUGIN_ID;
use crate::error::Result;
use crate::{PLUGIN_PARTS, PageDecoder, PageKey, PartId, Profile};

/// A key in the JSON document of activities. Its value lists the processes whose plugins provided
/// the events, in the order of the rows' numbers. [`PartId::name`] gives the form of an entry.
pub const PROCESSES_KEY: &str = "plugin_processes";
/// The number of the first row of plugins' events in a trace; the rows of dispatches and tracks
/// have lower numbers. The number fits in 32 bits, as viewers require.
pub const PLUGIN_ROWS: i64 = 7_000_000;

/// Kineto and PyTorch store the id of the op in this argument of an activity.
const ARGUMENT: &str = "External id";

/// A call that launched activities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// Index of the call's process in the profile.
    pub process: usize,
    /// The number of the called function (export) in that process.
    pub export: u32,
    /// Number of activities on devices that the call launched.
    pub launched: u32,
    /// Number of activities that the calls before this one launched, if calls are ordered by
    /// process and id. With this number, the activities of all calls can be numbered from 0.
    pub before: u64,
}

/// A process: the index of its member (merged profile; 0 if the profile is not merged), and its id
/// in that member. Processes of different members may have the same id.
pub type Whose = (usize, PartId);

#[derive(Debug, Default)]
pub struct Launches {
    by_id: HashMap<(Whose, u64), Launcher>,
}

#[derive(Deserialize)]
struct Arguments {
    #[serde(rename = "External id")]
    id: Option<u64>,
}

/// Finds the ids of events in one trace.
#[derive(Debug)]
pub struct Ids<'a> {
    trace: &'a Activities,
    processes: Vec<Option<PartId>>,
    registry: Registry,
    /// For each category: whether its activities are on a device; `None` if the category alone does
    /// not tell.
    on_device: HashMap<NameId, Option<bool>>,
}

impl<'a> Ids<'a> {
    /// Returns `None` if the trace does not list the processes of the plugins ([`PROCESSES_KEY`]).
    pub fn of(trace: &'a Activities) -> Option<Self> {
        let processes = trace.document.get(PROCESSES_KEY)?.as_array()?;
        let part = |name: &serde_json::Value| PartId::parse(name.as_str()?);
        Some(Self {
            trace,
            processes: processes.iter().map(part).collect(),
            registry: Registry::new(),
            on_device: HashMap::new(),
        })
    }

    /// Returns the process of an activity on a device, and the id of the op that launched it.
    pub fn of_event(&mut self, event: &Activity<'_>) -> Option<(Whose, u64)> {
        // Most events have no id, and parsing takes time, so the text is searched first.
        let args = event.args.filter(|args| event.form == b'X' && args.contains(ARGUMENT))?;
        // A plugin's own kind of event is on a device if it has a stream.
        if !self.is_on_device(event.category?).unwrap_or_else(|| args.contains("\"stream\":")) {
            return None;
        }
        let id = serde_json::from_str::<Arguments>(args).ok()?.id?;
        let row: i64 = self.trace.row(event.row).0?.parse().ok()?;
        let index = row.checked_sub(PLUGIN_ROWS)? / i64::from(PLUGIN_PARTS);
        let process = *self.processes.get(usize::try_from(index).ok()?)?;
        Some(((self.trace.member, process?), id))
    }

    /// Returns whether activities of the category are on a device; `None` if the category alone
    /// does not tell.
    fn is_on_device(&mut self, category: NameId) -> Option<bool> {
        let (trace, registry) = (self.trace, &self.registry);
        *self.on_device.entry(category).or_insert_with(|| {
            match registry.kind(registry.parse(trace.text(category)?)?) {
                Kind::Generic(generic) => Some(generic.on_device()),
                Kind::Registered(_) => None,
            }
        })
    }
}

impl Launches {
    /// Reads the activities and, if any of them has the id of an op, the pages of the profile.
    pub fn read(profile: &Profile, traces: &[Activities]) -> Result<Self> {
        let mut launched: HashMap<(Whose, u64), u32> = HashMap::new();
        for trace in traces {
            let Some(mut ids) = Ids::of(trace) else { continue };
            let mut events = trace.events()?;
            while let Some(batch) = events.next_batch()? {
                batch
                    .visit(|event| {
                        if let Some(id) = ids.of_event(event) {
                            *launched.entry(id).or_default() += 1;
                        }
                        Ok::<(), std::convert::Infallible>(())
                    })
                    .unwrap_or_else(|never| match never {});
            }
        }
        let mut by_id = HashMap::new();
        if launched.is_empty() {
            return Ok(Self { by_id });
        }
        let mut decoder = PageDecoder::new(profile);
        for (process, p) in profile.processes.iter().enumerate() {
            for (thread, t) in p.threads.iter().enumerate() {
                for page in 0..t.headers().len() {
                    let columns = decoder.decode(PageKey { process, thread, page });
                    for extra in columns.extras.iter().filter(|extra| extra.key == KEY_PLUGIN_ID) {
                        let of = ((p.member, p.id), extra.bits);
                        if let Some(launched) = launched.get(&of) {
                            let (export, launched) = (columns.export[extra.call], *launched);
                            let launcher = Launcher { process, export, launched, before: 0 };
                            by_id.insert(of, launcher);
                        }
                    }
                }
            }
        }
        // The order is fixed, so that the same profile gives the same exported file.
        let mut all: Vec<_> = by_id.iter_mut().collect();
        all.sort_unstable_by_key(|(of, _)| **of);
        let mut before = 0;
        for (_, launcher) in all {
            launcher.before = before;
            before += u64::from(launcher.launched);
        }
        Ok(Self { by_id })
    }

    /// Returns whether no activity was launched by a known op.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Returns the call with this id in this process, if it launched an activity.
    pub fn launcher(&self, process: Whose, id: u64) -> Option<&Launcher> {
        self.by_id.get(&(process, id))
    }
}
