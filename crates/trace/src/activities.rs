//! An imported trace, written again from what was kept of it.

use std::collections::HashMap;
use std::io::{self, Write};

use model::activity::{Registry, Vocabulary};
use profile::LossCount;
use profile::activities::{Activities, NameId};

use crate::chrome::write::{RawEvent, Writer};

/// Writes every event as it was, but for the category in the generic vocabulary. Returns the
/// output and the losses that were found.
///
/// # Errors
/// Writing or reading failed.
pub fn write_again<W: Write>(
    trace: &Activities,
    vocabulary: Vocabulary,
    out: W,
) -> io::Result<(W, Vec<LossCount>)> {
    let none = serde_json::Map::new();
    let mut writer = Writer::again(out, trace.document.as_object().unwrap_or(&none))?;
    let mut categories =
        Categories { vocabulary, known: HashMap::new(), registry: Registry::new() };
    let mut events = trace.events().map_err(io::Error::other)?;
    let mut more = true;
    while more {
        let batch = events.next_batch(|event| -> Result<(), Stop> {
            let (process, thread) = trace.row(event.row);
            let category = event.category.and_then(|id| categories.name(id, trace));
            let raw = RawEvent {
                phase: event.form,
                category: category.as_deref(),
                name: event.name.and_then(|id| trace.text(id)),
                process,
                thread,
                time_ns: event.time_ns,
                duration_ns: event.duration_ns,
                id: event.id,
                args: event.args,
                more: &[],
                others: event.more,
            };
            writer.raw(&raw).map_err(Stop)
        });
        more = batch.map_err(|Stop(error)| error)?;
    }
    let losses = trace.losses.iter().cloned().chain(events.losses()).collect();
    Ok((writer.finish_again()?, losses))
}

/// An error of writing, or one of reading made into it.
struct Stop(io::Error);

impl From<profile::Error> for Stop {
    fn from(error: profile::Error) -> Self {
        Self(io::Error::other(error))
    }
}

/// Categories in the vocabulary of the output.
struct Categories {
    vocabulary: Vocabulary,
    known: HashMap<NameId, String>,
    registry: Registry,
}

impl Categories {
    fn name(&mut self, id: NameId, trace: &Activities) -> Option<String> {
        let original = trace.text(id)?;
        if self.vocabulary == Vocabulary::Kineto {
            return Some(original.to_owned());
        }
        let registry = &self.registry;
        let name = self.known.entry(id).or_insert_with(|| match registry.parse(original) {
            Some(label) => registry.name(label, Vocabulary::Generic).to_owned(),
            None => original.to_owned(),
        });
        Some(name.clone())
    }
}
