//! Turns the value of `IREE_HOOK_PERF_EVENT_TYPES` into a list of counters that work on this
//! machine, and prints names of counters for this variable.
//!
//! The original hook ended the program at the first name that it did not know, or whose counter it
//! could not open. Counterpoint leaves such a name out and prints a line about it on stderr.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use machine::Machine;
use machine::check::check;
use model::{Counter, PerfAttr, Source};
use names::{self, Resolver};

use crate::advice;
use crate::naming::Naming;

#[derive(Debug, Default, PartialEq)]
pub struct Chosen {
    /// The chosen counters in the syntax of `run -e`; `none` if no counter works.
    pub list: String,
    /// A label for each chosen counter, in the order of recording: what the user typed or, for an
    /// entry with several counters, the counter's name.
    pub labels: Vec<String>,
    /// Messages for the user: which entries are left out and why, and whether the counters take
    /// turns.
    pub notes: Vec<String>,
}

struct Piece {
    text: String,
    /// For each counter of this entry of the list: its name, and the label that is printed instead
    /// of the name.
    labels: Vec<(String, String)>,
}

pub fn choose(typed: &str, machine: &Machine) -> Chosen {
    let resolver = Naming::default().resolver(machine);
    let mut chosen = Chosen::default();
    let mut pieces: Vec<Piece> = Vec::new();
    let mut known = BTreeSet::new();
    for entry in names::pieces(typed) {
        let piece = match piece(&resolver, entry) {
            Ok((piece, counters)) => match check(&counters, machine).problem() {
                None => piece,
                Some(problem) => {
                    chosen.notes.push(format!("{}; it is left out", problem.message));
                    continue;
                }
            },
            Err(error) => {
                let hint = advice::for_name(&error, machine);
                let hint = hint.map_or_else(String::new, |hint| format!(" ({hint})"));
                chosen.notes.push(format!(
                    "IREE_HOOK_PERF_EVENT_TYPES: {}; it is left out{hint}",
                    error.what()
                ));
                continue;
            }
        };
        // An entry that contains a counter of an earlier entry is left out.
        let twice = piece.labels.iter().find(|(name, _)| known.contains(name));
        if let Some((_, label)) = twice {
            if piece.labels.iter().any(|(name, _)| !known.contains(name)) {
                chosen.notes.push(format!(
                    "IREE_HOOK_PERF_EVENT_TYPES: {label} is counted already; {entry} is left out"
                ));
            }
            continue;
        }
        known.extend(piece.labels.iter().map(|(name, _)| name.clone()));
        pieces.push(piece);
    }
    let counters = fit(&resolver, machine, &mut pieces, &mut chosen);
    let labels: BTreeMap<&String, &String> =
        pieces.iter().flat_map(|p| &p.labels).map(|(name, label)| (name, label)).collect();
    chosen.labels =
        counters.iter().map(|c| labels.get(&c.name).map_or(&c.name, |l| *l).clone()).collect();
    chosen
}

/// Returns the counters of all pieces (entries of the list). If they cannot be counted at the same
/// time, each piece becomes a separate group. If that fails too, the last piece is left out, and
/// the others are tried in the same way.
fn fit(
    resolver: &Resolver,
    machine: &Machine,
    pieces: &mut Vec<Piece>,
    chosen: &mut Chosen,
) -> Vec<Counter> {
    while !pieces.is_empty() {
        let mut problem = String::new();
        for apart in [false, true] {
            let list = pieces.iter().map(|p| match apart && !p.text.starts_with('{') {
                true => format!("{{{}}}", p.text),
                false => p.text.clone(),
            });
            let list = list.collect::<Vec<_>>().join(",");
            match resolver.resolve(&list) {
                Ok(counters) => match check(&counters, machine).problem() {
                    None => {
                        if apart {
                            chosen.notes.push(format!(
                                "{problem}; they take turns, and each is counted in only part of the calls"
                            ));
                        }
                        chosen.list = list;
                        return counters;
                    }
                    Some(found) => problem = found.message.clone(),
                },
                Err(error) => problem = error.to_string(),
            }
        }
        if let Some(last) = pieces.pop() {
            chosen.notes.push(format!("{problem}; {} is left out", last.text));
        }
    }
    chosen.list = "none".into();
    Vec::new()
}

/// Resolves an entry of the list. As in the original hook, a counter without braces and modifiers
/// counts in user mode, if user mode makes sense for the counter.
fn piece(resolver: &Resolver, entry: &str) -> Result<(Piece, Vec<Counter>), names::NameError> {
    let mut counters = resolver.resolve(entry)?;
    let mut text = entry.to_owned();
    if let [counter] = counters.as_slice()
        && !entry.starts_with('{')
        && counts_everywhere(counter)
    {
        text = format!("{entry}:u");
        counters = resolver.resolve(&text)?;
    }
    let labels = match counters.as_slice() {
        [one] if !entry.starts_with('{') => vec![(one.name.clone(), entry.to_owned())],
        all => all.iter().map(|c| (c.name.clone(), c.name.clone())).collect(),
    };
    Ok((Piece { text, labels }, counters))
}

/// Whether the user typed no modifier and user mode makes sense for the counter.
fn counts_everywhere(counter: &Counter) -> bool {
    const TYPE_SOFTWARE: u32 = 1;
    const TYPE_TRACEPOINT: u32 = 2;
    /// context-switches, cpu-migrations and cgroup-switches are counted in all modes, because their
    /// count in user mode is 0. The original hook counted them in user mode and printed 0.
    const KERNELS_OWN: [u64; 3] = [3, 4, 11];
    let Source::Perf(attr) = &counter.source else { return false };
    let &PerfAttr { kind, config, exclude_user, exclude_kernel, exclude_hv, pinned, .. } = attr;
    let modes = exclude_user | exclude_kernel | exclude_hv;
    let others =
        attr.exclude_idle | attr.exclude_host | attr.exclude_guest | attr.exclusive | pinned;
    let kernels_own = kind == TYPE_SOFTWARE && KERNELS_OWN.contains(&config);
    !(modes || others || kernels_own || kind == TYPE_TRACEPOINT)
}

/// Prints the names of counters in the format of the original hook.
pub fn list(machine: &Machine, out: &mut impl Write) -> io::Result<()> {
    for entry in Resolver::new(machine).catalogue() {
        let target = match entry.source.as_str() {
            "AMD" => "AMD",
            "software" | "hardware" | "cache" => "",
            _ => continue,
        };
        for name in std::iter::once(&entry.name).chain(&entry.aliases) {
            writeln!(out, "{name:<40} [{target}] {}", entry.description)?;
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_modes_counts_in_user_mode_under_its_own_label() {
        let machine = Machine::here();
        let chosen = choose("task-clock,nonsense,sim/a,readings=0:1/,task-clock", &machine);
        if chosen.list.contains("task-clock") {
            assert_eq!(chosen.list, "task-clock:u,sim/a,readings=0:1/");
            assert_eq!(chosen.labels, ["task-clock", "sim/a,readings=0:1/"]);
        }
        assert!(chosen.notes.iter().any(|n| n.contains("nonsense") && n.contains("left out")));
    }

    #[test]
    fn a_group_that_repeats_a_counter_is_left_out_with_a_note() {
        let [a, b] = ["sim/a,readings=0:1/", "sim/b,readings=0:2/"];
        let chosen = choose(&format!("{a},{{{a},{b}}},{a},{b}"), &Machine::here());
        assert_eq!(chosen.list, format!("{a},{b}"));
        let [note] = chosen.notes.as_slice() else { panic!("{:?}", chosen.notes) };
        assert!(note.contains(&format!("{{{a},{b}}} is left out")), "{note}");
    }

    #[test]
    fn without_a_working_counter_only_times_are_recorded() {
        let chosen = choose("nonsense", &Machine::here());
        assert_eq!((chosen.list.as_str(), chosen.labels.len()), ("none", 0));
        assert_eq!(choose("", &Machine::here()).list, "none");
        let notes = choose("page-fualts", &Machine::here()).notes;
        assert_eq!(
            notes,
            ["IREE_HOOK_PERF_EVENT_TYPES: unknown counter \"page-fualts\"; it is left out (did \
              you mean page-faults?)"]
        );
    }

    #[test]
    fn typed_modes_are_kept() {
        let resolver = Resolver::new(&Machine::here());
        let text = |typed: &str| piece(&resolver, typed).unwrap().0.text;
        assert_eq!(text("cycles"), "cycles:u");
        assert_eq!(text("cycles:k"), "cycles:k");
        assert_eq!(text("cycles:uk"), "cycles:uk");
        assert_eq!(text("context-switches"), "context-switches");
        assert_eq!(text("cs"), "cs");
        assert_eq!(text("r01c2"), "r01c2:u");
        assert_eq!(text("{cycles,instructions}:k"), "{cycles,instructions}:k");
    }

    #[test]
    fn the_list_is_in_the_originals_form() {
        let mut out = Vec::new();
        list(&Machine::here(), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let line = text.lines().find(|l| l.starts_with("cpu-cycles ")).unwrap();
        assert_eq!(&line[40..44], " [] ", "{line}");
        for name in ["instructions", "minor-faults", "LLC-load-misses", "branch-instructions"] {
            assert!(text.lines().any(|l| l.split(' ').next() == Some(name)), "{name}");
        }
    }
}
