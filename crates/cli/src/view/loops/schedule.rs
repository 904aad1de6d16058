//! Describes the loops of a TVM schedule, and why some of them have no row in the table.

use analysis::loops::{LoopTree, Unrolled};
use ir::schedule::ScheduledLoop;
use serde::Serialize;

use crate::object::object;
use crate::view::units::grouped;

/// A note names at most this many loops without a row.
const NAMED: usize = 6;

model::named! {
    /// What happened to a loop of a schedule during compilation and instrumentation.
    pub enum State {
        /// The loop has one or more rows.
        Instrumented = "instrumented",
        /// TVM unrolled the loop.
        Unrolled = "unrolled",
        /// TVM vectorised the loop.
        Vectorized = "vectorized",
        /// TVM turned the loop into something else.
        Removed = "removed",
        /// LLVM unrolled or removed the loop or replaced it by a call (`memset`), or the loop
        /// cannot be distinguished from others.
        Optimized = "optimized",
        /// The user did not select the loop.
        LeftOut = "left out",
    }
}

impl State {
    pub fn of(one: &ScheduledLoop) -> Self {
        match (one.ids.is_empty(), one.gone.as_deref()) {
            (false, _) => Self::Instrumented,
            (_, Some("unrolled")) => Self::Unrolled,
            (_, Some("vectorized")) => Self::Vectorized,
            (_, Some(_)) => Self::Removed,
            _ if one.chosen => Self::Optimized,
            _ => Self::LeftOut,
        }
    }
}

/// Returns the kind and the extent of a loop of the schedule: `parallel 20`.
pub fn words(one: &ScheduledLoop) -> String {
    match one.extent {
        Some(extent) => format!("{} {}", one.kind, grouped(extent.into())),
        None => one.kind.clone(),
    }
}

/// Returns a text such as `3 each, 1 apart`. It means: one iteration of the loop in the machine
/// code does 3 iterations of the schedule's loop. In each hit, 1 more iteration of the schedule's
/// loop is done before or after the loop in the machine code.
pub fn unrolled(of: Unrolled) -> String {
    match of.apart {
        0 => format!("{} each", grouped(of.each.into())),
        apart => format!("{} each, {} apart", grouped(of.each.into()), grouped(apart.into())),
    }
}

/// Returns notes about loops without a row, except those that the user did not select.
pub fn notes(tree: &LoopTree) -> Vec<String> {
    let Some(table) = &tree.table else { return Vec::new() };
    let why = [
        (State::Unrolled, "unrolled by TVM"),
        (State::Vectorized, "vectorised by TVM"),
        (State::Removed, "removed by TVM"),
        (State::Optimized, "unrolled, removed or replaced by LLVM, or cannot be told from others"),
    ];
    let note = |(state, why): (State, &str)| {
        let all: Vec<_> = table.schedule.iter().filter(|one| State::of(one) == state).collect();
        let named = all.iter().take(NAMED);
        let named: Vec<_> = named
            .map(|one| format!("{}:{} ({})", one.function, one.variable, words(one)))
            .collect();
        let more = match all.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {} more", grouped(more as u128)),
        };
        let named = named.join(", ");
        (!all.is_empty())
            .then(|| format!("loops of the schedule without a row, {why}: {named}{more}"))
    };
    why.into_iter().filter_map(note).collect()
}

pub fn json(tree: &LoopTree) -> Vec<impl Serialize> {
    let schedule = tree.table.as_ref().map_or(&[][..], |table| &table.schedule);
    fn out(one: &ScheduledLoop) -> impl Serialize {
        object! {
            function: &one.function,
            variable: &one.variable,
            kind: &one.kind,
            extent: one.extent,
            parent: one.parent,
            depth: one.depth,
            state: State::of(one).name(),
            ids: &one.ids,
            lines: one.lines,
        }
    }
    schedule.iter().map(out).collect()
}
