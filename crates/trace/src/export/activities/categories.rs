//! Converts categories of imported traces to the vocabulary of the output.
//!
//! The generic vocabulary has the same word for `cuda_runtime` and `xpu_runtime`, so the conversion
//! could not be reversed. Therefore, if the original category cannot be computed from the new one,
//! the event also has the original, under the key [`ORIGINAL`]. The next export uses this key:
//!
//! ```text
//!  "cat":"cuda_runtime"  ─ generic ─►  "cat":"runtime"                                 ─ kineto ─► as before
//!  "cat":"xpu_runtime"   ─ generic ─►  "cat":"runtime","original_cat":"xpu_runtime"    ─ kineto ─► as before
//! ```

use std::borrow::Cow;
use std::collections::HashMap;

use model::activity::{Registry, Vocabulary};
use profile::activities::{Activities, Activity, NameId};
use serde_json::{Map, Value};

use crate::export::kinds;

/// The key for the category that an event had before it was exported.
pub const ORIGINAL: &str = "original_cat";

/// Converts the categories of one trace.
pub struct Categories {
    /// `None` keeps all categories.
    vocabulary: Option<Vocabulary>,
    known: HashMap<NameId, Named>,
    registry: Registry,
}

#[derive(Clone, Debug)]
struct Named {
    name: String,
    /// The original category, if it cannot be computed from `name`.
    original: Option<String>,
}

impl Categories {
    /// Creates the conversion for one trace. Without a vocabulary, categories do not change.
    pub fn new(vocabulary: Option<Vocabulary>, trace: &Activities) -> Self {
        Self::of_document(vocabulary, &trace.document)
    }

    fn of_document(vocabulary: Option<Vocabulary>, document: &Value) -> Self {
        let mut registry = Registry::new();
        // An export of a profile lists the categories that the profile's hosts (runtimes) define.
        kinds::register_listed(&mut registry, document);
        Self { vocabulary, known: HashMap::new(), registry }
    }

    /// Returns the category of an event in the output, and the event's other keys in the form of
    /// [`RawEvent::others`](crate::chrome::write::RawEvent::others). `others` are these keys before
    /// the conversion.
    pub fn of<'a>(
        &'a mut self,
        event: &Activity<'a>,
        others: Option<&'a str>,
        trace: &'a Activities,
    ) -> (Option<Cow<'a, str>>, Option<Cow<'a, str>>) {
        let category = event.category.and_then(|id| trace.text(id));
        let more = others.map(Cow::Borrowed);
        let Some(vocabulary) = self.vocabulary else { return (category.map(Cow::Borrowed), more) };
        let (Some(id), Some(category)) = (event.category, category) else { return (None, more) };
        if let Some((original, mut others)) = more.as_deref().and_then(original) {
            let named = named(&self.registry, &original, vocabulary);
            others.extend(named.original.map(|name| (ORIGINAL.to_owned(), name.into())));
            let others = (!others.is_empty()).then(|| Value::from(others).to_string());
            return (Some(Cow::Owned(named.name)), others.map(Cow::Owned));
        }
        let registry = &self.registry;
        let named = self.known.entry(id).or_insert_with(|| named(registry, category, vocabulary));
        let more = match &named.original {
            None => more,
            Some(original) => {
                let others = more.and_then(|more| object(&more));
                let mut others = others.unwrap_or_default();
                others.insert(ORIGINAL.to_owned(), original.as_str().into());
                Some(Cow::Owned(Value::from(others).to_string()))
            }
        };
        (Some(Cow::Borrowed(&named.name)), more)
    }
}

/// Parses a JSON object whose opening brace may be missing.
fn object(others: &str) -> Option<Map<String, Value>> {
    match others.starts_with('{') {
        true => serde_json::from_str(others).ok(),
        false => serde_json::from_str(&format!("{{{others}")).ok(),
    }
}

/// Returns the category that an event had originally, and its other keys.
fn original(more: &str) -> Option<(String, Map<String, Value>)> {
    // Most events do not have this key, and a text search is quicker than parsing the object.
    if !more.contains(ORIGINAL) {
        return None;
    }
    let mut others = object(more)?;
    match others.remove(ORIGINAL)? {
        Value::String(name) => Some((name, others)),
        _ => None,
    }
}

fn named(registry: &Registry, original: &str, vocabulary: Vocabulary) -> Named {
    let name = |word: &str, vocabulary| {
        let label = registry.parse(word);
        label.map_or_else(|| word.to_owned(), |label| registry.name(label, vocabulary).to_owned())
    };
    let new = name(original, vocabulary);
    let other = match vocabulary {
        Vocabulary::Generic => Vocabulary::Kineto,
        Vocabulary::Kineto => Vocabulary::Generic,
    };
    let told = new == original || name(&new, other) == original;
    Named { name: new, original: (!told).then(|| original.to_owned()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn original_categories_are_restored() {
        // The list of kinds that an exported trace contains if IREE was recorded.
        let kinds = json!([{"producer": "iree", "name": "workgroup", "kineto": "cpu_op"}]);
        let document = json!({"counterpoint": {"kinds": kinds}});
        let registry = Categories::of_document(None, &document).registry;
        let of = |original: &str, vocabulary| {
            let Named { name, original } = named(&registry, original, vocabulary);
            (name, original)
        };
        for (original, generic, kept) in [
            ("cuda_runtime", "runtime", false),
            ("xpu_runtime", "runtime", true),
            ("gpu_memcpy", "memcpy", false),
            ("GPU_MEMCPY", "memcpy", true),
            ("kernel", "kernel", false),
            ("mine", "mine", false),
            ("workgroup", "workgroup", false),
        ] {
            let kept = kept.then(|| original.to_owned());
            assert_eq!(of(original, Vocabulary::Generic), (generic.to_owned(), kept), "{original}");
        }
        for (original, kineto, kept) in [
            ("runtime", "cuda_runtime", false),
            ("xpu_runtime", "xpu_runtime", false),
            ("workgroup", "cpu_op", true),
            ("mine", "mine", false),
        ] {
            let kept = kept.then(|| original.to_owned());
            assert_eq!(of(original, Vocabulary::Kineto), (kineto.to_owned(), kept), "{original}");
        }
    }
}
