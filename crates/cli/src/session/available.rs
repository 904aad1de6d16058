//! `--skip-missing`: chooses those of the requested counters that work on this machine.

use counters::plan::by_scope;
use machine::Machine;
use machine::check::{self, Problem};
use model::Counter;
use names::Resolver;

use crate::advice;
use crate::failure::Failure;
use profile::Origin;

use crate::prepare::{self, Chosen, Recording};

/// Returns the counters of `recording` that work on this machine. Leaves out unknown names,
/// counters that cannot be opened or do not count, and counters of whole packages (processors),
/// which do not count single threads. With `--multiplex`, divides the remaining counters into
/// groups that can be counted at once. Without this option, leaves out counters from the end of the
/// list until the rest can be counted together. For each counter that is left out, there is a note.
pub fn counters_of(
    recording: &Recording,
    resolver: &Resolver,
    machine: &Machine,
) -> Result<Chosen, Failure> {
    if recording.events.is_empty() {
        let chosen = prepare::counters_of(recording, resolver, machine)?;
        let mut notes = chosen.notes;
        notes.extend(chosen.packages.iter().map(of_package));
        if chosen.threads.is_empty() {
            notes.extend(prepare::ask_for_counters(Origin::Session, resolver));
        }
        return Ok(Chosen { threads: chosen.threads, packages: Vec::new(), notes });
    }
    let mut notes = Vec::new();
    let typed = recording.events.join(",");
    let counters = match resolver.resolve(&typed) {
        Ok(counters) => counters,
        Err(_) => {
            let known = items(&typed).filter(|item| match resolver.resolve(item) {
                Ok(_) => true,
                Err(e) => {
                    let hint = advice::for_name(&e, machine);
                    let hint = hint.map_or(String::new(), |hint| format!(" ({hint})"));
                    notes.push(format!("{item} is left out: {e}{hint}"));
                    false
                }
            });
            let known = known.collect::<Vec<_>>().join(",");
            // Each item is valid alone, but the list of them can be wrong, for example if a name
            // occurs twice. Then `resolve` returns the error.
            let list = if known.is_empty() { "none" } else { &known };
            prepare::resolve("-e", list, resolver, machine)?
        }
    };
    let (mut counters, packages) = by_scope(counters);
    notes.extend(packages.iter().map(of_package));
    let alone = check::check(&counters, machine).counters;
    let mut alone = alone.iter();
    counters.retain(|counter| match alone.next() {
        Some(Err(problem)) => {
            notes.push(left_out(counter, problem, machine));
            false
        }
        _ => true,
    });
    renumber(&mut counters);
    while let (false, Err(problem)) =
        (recording.multiplex, check::check(&counters, machine).together)
    {
        let Some(last) = counters.pop() else { break };
        notes.push(left_out(&last, &problem, machine));
    }
    if recording.multiplex && !counters.is_empty() {
        counters =
            check::split(&counters, machine).map_err(|problem| Failure::new(&problem.message))?;
    }
    Ok(Chosen { threads: counters, packages: Vec::new(), notes })
}

fn of_package(counter: &Counter) -> String {
    format!(
        "{} is left out: it counts a whole package, not a thread (`counterpoint run` samples \
         it while the program runs)",
        counter.name
    )
}

fn left_out(counter: &Counter, problem: &Problem, machine: &Machine) -> String {
    let remedy = advice::for_problem(problem, machine);
    let remedy = remedy.map_or(String::new(), |remedy| format!(" ({remedy})"));
    format!("{} is left out: {}{remedy}", counter.name, problem.message)
}

/// Gives the groups consecutive numbers from 0.
fn renumber(counters: &mut [Counter]) {
    let (mut last, mut number) = (None, 0);
    for counter in counters {
        if last.is_some_and(|last| last != counter.group) {
            number += 1;
        }
        last = Some(counter.group);
        counter.group = number;
    }
}

/// Splits a list of counters at commas that are outside of `{…}` and `/…/`.
fn items(list: &str) -> impl Iterator<Item = &str> {
    let (mut braces, mut slashes) = (0u32, false);
    list.split(move |c| {
        match c {
            '{' if !slashes => braces += 1,
            '}' if !slashes => braces = braces.saturating_sub(1),
            '/' => slashes = !slashes,
            ',' => return braces == 0 && !slashes,
            _ => {}
        }
        false
    })
    .map(str::trim)
    .filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_cut_outside_of_groups_and_terms() {
        let list = "a:u,{b,c}:u, cpu/event=1,umask=2/ ,,d";
        let found: Vec<&str> = items(list).collect();
        assert_eq!(found, ["a:u", "{b,c}:u", "cpu/event=1,umask=2/", "d"]);
    }
}
