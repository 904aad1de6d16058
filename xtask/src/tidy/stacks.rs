//! Checks how much of the profiled program's stack the functions of the built `libcounterpoint.so`
//! use. Apart from [`STACK_EXCEPTIONS`], a function that the program or one of its libraries can
//! call may use at most [`STACK_BYTES`].
//!
//! The functions that can be called from outside (entry points) are the exported functions,
//! constructors and destructors. Functions whose address is taken are entry points, too, unless
//! [`RUNS_APART`] names them: the program may call them through this address (callbacks, handlers
//! of `atexit`, destructors of threads). [`RUNS_APART`] lists exceptions. The check does not follow
//! calls through pointers. Such a call reaches the program's own code, or an entry point, which is
//! checked separately. The frames of a caller and of such an entry point are on the stack together,
//! but the check does not add them up.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use anyhow::Result;

use super::Findings;
use super::rules::{LEAVES_BY_PANIC, OUTSIDE, RUNS_APART, STACK_BYTES, STACK_EXCEPTIONS};
use crate::frames::{Callee, Library};

/// The largest number of bytes of stack that a function and its callees use, and the calls that
/// lead to this depth.
#[derive(Clone)]
struct Depth {
    bytes: u64,
    way: Vec<(String, u64)>,
}

struct Walk<'a> {
    library: &'a Library,
    known: BTreeMap<u64, Depth>,
    /// The functions from the entry point to the one that is being checked.
    path: Vec<u64>,
    findings: Vec<String>,
    excepted: BTreeSet<u64>,
}

impl Walk<'_> {
    fn exception(&self, at: u64) -> Option<u64> {
        let name = &self.library.functions.get(&at)?.name;
        let found = STACK_EXCEPTIONS.iter().find(|(part, ..)| name.contains(part));
        found.map(|(_, bytes, _)| *bytes)
    }

    fn note(&mut self, what: String) {
        // Below an entry point of [`STACK_EXCEPTIONS`], recursion and calls of unknown functions
        // are not reported.
        if self.path.first().is_some_and(|at| self.exception(*at).is_some()) {
            return;
        }
        let entry = self.path.first().and_then(|at| self.library.functions.get(at));
        let entry = entry.map_or("?", |function| function.name.as_str());
        self.findings.push(format!("below {entry}, {what}"));
    }

    fn depth(&mut self, at: u64) -> Depth {
        if let Some(known) = self.known.get(&at) {
            return known.clone();
        }
        let library = self.library;
        let Some(function) = library.functions.get(&at) else {
            return Depth { bytes: 0, way: vec![(format!("{at:#x}"), 0)] };
        };
        let name = &function.name;
        let here = |bytes| Depth { bytes, way: vec![(name.clone(), bytes)] };
        if LEAVES_BY_PANIC.iter().any(|part| name.contains(part)) {
            return here(0);
        }
        if self.path.contains(&at) {
            self.note(format!("{name} calls itself: nobody can say how deep it gets"));
            return here(0);
        }
        self.path.push(at);
        let mut deepest = here(function.frame);
        for call in &function.calls {
            let mut below = match &call.callee {
                // This callee may use more stack, so it is checked separately, as an entry point.
                Callee::Inside(to) if self.exception(*to).is_some() => {
                    self.excepted.insert(*to);
                    continue;
                }
                Callee::Inside(to) => self.depth(*to),
                Callee::Outside(outside) => {
                    match OUTSIDE.iter().find(|(known, _)| known == outside) {
                        Some((_, bytes)) => {
                            Depth { bytes: *bytes, way: vec![(outside.clone(), *bytes)] }
                        }
                        None => {
                            self.note(format!("{name} calls {outside} on the program's stack"));
                            continue;
                        }
                    }
                }
                Callee::Pointer => continue,
            };
            if call.depth + below.bytes > deepest.bytes {
                deepest.bytes = call.depth + below.bytes;
                below.way.insert(0, (name.clone(), call.depth));
                deepest.way = below.way;
            }
        }
        self.path.pop();
        self.known.insert(at, deepest.clone());
        deepest
    }
}

pub fn check(shown: &str, path: &Path, findings: &mut Findings) -> Result<()> {
    let library = Library::read(path)?;
    let mut walk = Walk {
        library: &library,
        known: BTreeMap::new(),
        path: Vec::new(),
        findings: Vec::new(),
        excepted: BTreeSet::new(),
    };
    let named = |at: &u64| library.functions.get(at).map_or("?", |function| function.name.as_str());
    let runs_apart = |name: &str| RUNS_APART.iter().any(|part| name.contains(part));
    let all = library.entries.keys().chain(&library.taken);
    let mut entries: BTreeSet<u64> = all.copied().filter(|at| !runs_apart(named(at))).collect();
    let mut done = BTreeSet::new();
    while let Some(at) = entries.pop_first() {
        done.insert(at);
        let depth = walk.depth(at);
        entries.extend(walk.excepted.difference(&done));
        if depth.bytes > walk.exception(at).unwrap_or(STACK_BYTES) {
            let mut way = String::new();
            for (function, bytes) in &depth.way {
                let _ = write!(way, "\n    {bytes:6} {function}");
            }
            let (name, bytes) = (named(&at), depth.bytes);
            walk.findings.push(format!("{name} uses {bytes} bytes of the program's stack:{way}"));
        }
    }
    walk.findings.sort();
    walk.findings.dedup();
    walk.findings.into_iter().for_each(|finding| findings.add(shown, finding));
    Ok(())
}
