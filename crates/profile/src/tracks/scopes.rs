//! Computes the names of the scopes of series.

use std::collections::{BTreeSet, HashMap};

use super::{Scope, Series, Tracks};

/// The names of the scopes in one directory of tracks, such as `device 3`. If several sources have
/// a device or process with this number, the name contains the source: `device 3 (power.so in
/// python3 4711)`.
#[derive(Clone, Debug, Default)]
pub struct ScopeNames<'a> {
    sources: HashMap<Key<'a>, BTreeSet<&'a str>>,
}

/// The machine, its CPUs and its nodes are the same for all sources. For these scopes, the source
/// is needed only to distinguish series of the same track and name, so the key contains both.
type Key<'a> = (Scope, Option<(&'a str, &'a str)>);

fn key(series: &Series) -> Key<'_> {
    match series.scope {
        Scope::Device(_) | Scope::Process(_) => (series.scope, None),
        Scope::Machine | Scope::Cpu(_) | Scope::Node(_) => {
            (series.scope, Some((&series.track, &series.name)))
        }
    }
}

/// Returns a source without the directory of its file.
fn short(source: &str) -> &str {
    source.rsplit('/').next().unwrap_or_default()
}

impl<'a> ScopeNames<'a> {
    pub fn of(tracks: &'a Tracks) -> Self {
        let mut names = Self::default();
        for series in tracks.series.values() {
            names.sources.entry(key(series)).or_default().insert(&series.source);
        }
        names
    }

    /// Returns the source of a series if the name of its scope must contain the source.
    pub fn source<'s>(&self, series: &'s Series) -> Option<&'s str> {
        let sources = self.sources.get(&key(series)).filter(|sources| sources.len() > 1)?;
        let own = short(&series.source);
        let same = sources.iter().filter(|source| short(source) == own).count();
        Some(if same > 1 { &series.source } else { own })
    }

    /// Returns the name of the scope of a series.
    pub fn name(&self, series: &Series) -> String {
        match self.source(series) {
            Some(source) => format!("{} ({source})", series.scope),
            None => series.scope.to_string(),
        }
    }
}
