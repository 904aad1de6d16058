//! Finds the start and the end of each asynchronous span: a `b` and its `e`, or, in the older form,
//! an `S` and its `F`.
//!
//! Both ends have the same category, id and name, but an `e` may have no name. Open spans with the
//! same category and id are taken as nested: an end belongs to the innermost one that has the end's
//! name. An event between the ends (`n`, `T`, `p`) is a moment, which becomes no call.

use std::collections::HashMap;

use profile::Role;
use profile::activities::NameId;

use super::{Id, OneTrace, number};
use crate::chrome::event::{Event, Raw};

/// The maximum number of open spans.
const MOST_OPEN: u64 = 1 << 20;

/// What is certainly the same at both ends of a span: category, name (only in the older form) and
/// id.
type Key = (Option<NameId>, Option<NameId>, Box<str>);

/// Spans whose end was not read yet.
#[derive(Debug, Default)]
pub(super) struct Spans {
    open: HashMap<Key, Vec<Begun>>,
    count: u64,
}

#[derive(Clone, Debug)]
struct Begun {
    process: Option<Id>,
    category: Option<NameId>,
    name: Option<NameId>,
    time_ns: i64,
}

impl Spans {
    pub(super) fn open(&self) -> u64 {
        self.count
    }
}

/// Returns the id of a span with its scope, from `id` or `id2`. A local `id2` is only unique in its
/// process, so the process id is appended.
fn id_of(event: &Event<'_>) -> Option<Box<str>> {
    let other = |key: &str| event.other.iter().find(|(of, _)| of == key).map(|(_, value)| *value);
    let scope = other("scope").map_or("", Raw::get);
    if let Some(id) = &event.id {
        return Some(format!("{id} {scope}").into());
    }
    let id = other("id2")?.get();
    let process = match (&event.pid, id.contains("\"local\"")) {
        (Some(pid), true) => pid.to_string(),
        _ => String::new(),
    };
    Some(format!("{id} {scope} {process}").into())
}

impl OneTrace<'_> {
    pub(super) fn span(
        &mut self,
        event: &Event<'_>,
        category: Option<NameId>,
        name: Option<NameId>,
    ) -> Result<(), String> {
        let (Some(time_ns), Some(id)) = (event.time_ns, id_of(event)) else {
            self.unpaired += 1;
            return Ok(());
        };
        let legacy = matches!(event.phase, b'S' | b'F');
        let key = (category, name.filter(|_| legacy), id);
        if matches!(event.phase, b'b' | b'S') {
            if self.spans.count >= MOST_OPEN {
                self.unpaired += 1;
                return Ok(());
            }
            let process = event.pid.as_ref().map(Id::of);
            self.spans.count += 1;
            let begun = Begun { process, category, name, time_ns };
            self.spans.open.entry(key).or_default().push(begun);
            return Ok(());
        }
        let open = self.spans.open.get_mut(&key);
        // The innermost open span with this name ends. An end without a name ends the innermost
        // open span.
        let begun = open.and_then(|open| {
            let at = open.iter().rposition(|begun| name.is_none() || begun.name == name)?;
            let begun = open.remove(at);
            Some((begun, open.is_empty()))
        });
        let Some((begun, last)) = begun else {
            self.unpaired += 1;
            return Ok(());
        };
        self.spans.count -= 1;
        if last {
            self.spans.open.remove(&key);
        }
        if time_ns < begun.time_ns {
            self.unpaired += 1;
            return Ok(());
        }
        let process = self.process(begun.process.as_ref())?;
        let key = (process, number(begun.category) << 32 | number(begun.name));
        let export = match self.span_exports.get(&key) {
            Some(export) => *export,
            None => {
                let text = |id: Option<NameId>| id.map_or("", |id| self.activities.text(id));
                let (category, name) = (text(begun.category), text(begun.name));
                let export = self.all.calls.export(process, Role::Span, category, name);
                self.span_exports.insert(key, export);
                export
            }
        };
        self.all.counts.spans += 1;
        let thread = self.apart(process, Role::Span);
        self.put_call(thread, export, begun.time_ns, time_ns)
    }
}
