//! Explains the words in parentheses after the names of rows.

use analysis::Key;
use profile::{Profile, Role};

use crate::view::labels::op_of;

const KNOWN: [(Role, &str, &str); 4] = [
    (Role::Run, "(run): ", "a call of a model's entry function"),
    (Role::Range, "(range): ", "a part of the program that has this name, with the ops in it"),
    (
        Role::Region,
        "(region): ",
        "work of an op that is divided among threads, from its launch until all threads are done; \
         self: launching the tasks, and waiting for them",
    ),
    (Role::Task, "(task): ", "what one thread did of such a region"),
];

/// Returns those words of `KNOWN` that stand in parentheses after the names of these rows, each
/// with its meaning.
pub fn roles(
    profile: &Profile,
    keys: impl Iterator<Item = Key>,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let shown: Vec<Role> = keys.filter_map(|key| Some(op_of(profile, key)?.role)).collect();
    KNOWN
        .into_iter()
        .filter(move |(role, ..)| shown.contains(role))
        .map(|(_, label, text)| (label, text))
}
