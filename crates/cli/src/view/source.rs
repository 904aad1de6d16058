//! Places in the source, and what to do where they do not help.
//!
//! IREE's compiler stores with each dispatch a place in the file that it compiled. Which place
//! depends on that file. In a function in the linalg dialect it is often the function itself
//! (`mlp.mlir:2`), for each of its ops; in torch's dialect it is the op
//! (`transformer_block.mlir:111`). The compiled module has nothing better: stages are empty, and
//! its DWARF has one place per function. With `--iree-hal-dump-executable-sources-to=DIR` the
//! compiler writes the code of each dispatch into a file of its own below DIR, and the place is in
//! there (seen with IREE 3.13).

use std::collections::HashMap;

use super::table::{Table, Value};
use super::units::plural;

/// The name of the column.
pub const SOURCE: &str = "source";

/// The place that several ops share, if all of them have the same one.
pub fn one_for_all(places: &[Option<String>]) -> Option<&str> {
    let (first, rest) = places.split_first()?;
    let same = !rest.is_empty() && rest.iter().all(|place| place == first);
    first.as_deref().filter(|_| same)
}

/// A sentence for ops that share a place in the source: how many they are, and how to give each its
/// own place.
pub fn shared(table: &Table) -> Option<String> {
    const REMEDY: &str = "compile with iree-compile --iree-hal-dump-executable-sources-to=DIR to \
                          give each op a place of its own, in a listing of its code";
    let column = table.columns.iter().find(|column| column.name == SOURCE)?;
    let places: Vec<Option<String>> = column
        .cells
        .iter()
        .map(|cell| match cell {
            Some(Value::Text(place)) => Some(place.clone()),
            _ => None,
        })
        .collect();
    if let Some(place) = one_for_all(&places) {
        let ops = plural(places.len() as u128, "op");
        return Some(format!(
            "{place} is the only source location that the compiler kept for {ops}; {REMEDY}"
        ));
    }
    let mut ops: HashMap<&str, usize> = HashMap::new();
    places.iter().flatten().for_each(|place| *ops.entry(place).or_default() += 1);
    // Some may share a line because they were made of it.
    let all = !ops.is_empty() && ops.values().all(|n| *n > 1);
    all.then(|| format!("each source location belongs to several ops; {REMEDY}"))
}
