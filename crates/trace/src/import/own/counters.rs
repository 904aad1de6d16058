//! The counters of the run, by the names that they have as arguments of calls.

use std::collections::HashMap;
use std::ops::Range;

use profile::{CounterInfo, Groups};

use crate::round_trip::events::OTHERS;

/// The run's counters.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    /// Counters by name. Only counters with a unique name are here.
    names: HashMap<String, usize>,
    /// How many counters have the name of a regular argument of calls.
    others: HashMap<&'static str, usize>,
    /// The pass of each counter.
    passes: Vec<Option<u32>>,
    groups: Vec<Range<usize>>,
}

impl Counters {
    pub fn new(counters: &[CounterInfo], groups: &Groups) -> Self {
        let mut names: HashMap<String, usize> = HashMap::new();
        for (i, counter) in counters.iter().enumerate() {
            let alone = counters.iter().filter(|other| other.name == counter.name).count() == 1;
            if alone && !OTHERS.contains(&counter.name.as_str()) {
                names.insert(counter.name.clone(), i);
            }
        }
        let named = |name: &&&str| counters.iter().filter(|c| c.name == ***name).count();
        let others = OTHERS.iter().map(|name| (*name, named(&name))).filter(|(_, n)| *n > 0);
        Self {
            others: others.collect(),
            names,
            passes: counters.iter().map(|c| c.pass).collect(),
            groups: groups.all().iter().map(|g| g.counters.clone()).collect(),
        }
    }

    pub fn count(&self) -> usize {
        self.passes.len()
    }

    pub fn groups(&self) -> &[Range<usize>] {
        &self.groups
    }

    pub fn named(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// How many counters have the name of this argument of calls.
    pub fn called(&self, argument: &str) -> usize {
        if self.others.is_empty() { 0 } else { self.others.get(argument).copied().unwrap_or(0) }
    }

    /// Whether any counter has such a name.
    pub fn any_called(&self) -> bool {
        !self.others.is_empty()
    }

    /// The counters that a page of this pass may have.
    pub fn mask(&self, pass: u32) -> u32 {
        let of = |p: &Option<u32>| p.is_none_or(|p| p == pass + 1);
        let all = self.passes.iter().enumerate().filter(|(_, p)| of(p));
        all.fold(0, |mask, (i, _)| mask | 1 << i)
    }
}
