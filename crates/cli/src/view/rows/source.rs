//! Finds out whether source locations distinguish ops, and says how to get better locations.
//!
//! IREE's compiler stores with each dispatch a location in its input file. In a function of the
//! linalg dialect, all ops often have the location of the function (`mlp.mlir:2`). In torch's
//! dialect, each op has its own location (`transformer_block.mlir:111`). The compiled module
//! contains nothing better: its locations for compilation stages are empty, and its DWARF has only
//! one location for each function. With `--iree-hal-dump-executable-sources-to=DIR`, the compiler
//! writes the code of each dispatch into a separate file below DIR, and the location refers to that
//! file (seen with IREE 3.13).

use std::collections::HashMap;

use crate::view::table::{Table, Value};
use crate::view::units::plural;

/// The name of the column with source locations.
pub const SOURCE: &str = "source";

/// Returns the location that all ops share. `None` if there is only one op, if locations differ, or
/// if there are none.
pub fn one_for_all(places: &[Option<String>]) -> Option<&str> {
    let (first, rest) = places.split_first()?;
    let same = !rest.is_empty() && rest.iter().all(|place| place == first);
    first.as_deref().filter(|_| same)
}

/// If every source location in the table belongs to several ops, returns a sentence that says so.
/// The sentence also says how each op can get its own location.
pub fn shared(table: &Table) -> Option<String> {
    const REMEDY: &str = "compile with iree-compile --iree-hal-dump-executable-sources-to=DIR to \
                          give each op a place of its own, in a listing of its code";
    let column = table.columns.iter().find(|column| column.name == SOURCE)?;
    let rows = column.cells.rows() - table.rest.len();
    let places: Vec<Option<String>> = column
        .cells
        .iter()
        .take(rows)
        .map(|cell| match cell.as_deref() {
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
    // It is normal that some ops share a location, because several ops may be made from one line.
    // The sentence is returned only if every location is shared.
    let all = !ops.is_empty() && ops.values().all(|n| *n > 1);
    all.then(|| format!("each source location belongs to several ops; {REMEDY}"))
}
