//! Shows hits of instrumented loops as slices in the rows of their threads. The slices are named
//! `function:loop`. Only mode log of the loops' runtime records the start and the end of hits; the
//! other modes only record sums.

use std::collections::HashSet;
use std::io;

use profile::Profile;

use crate::timeline::{Arg, Id, ProcessRow, Row, Slice, ThreadRow, TimelineSink};

/// The category of these slices in every vocabulary. By the category, an import recognizes that
/// they are hits of loops, and not calls.
pub const LOOP_CATEGORY: &str = "loop";

/// A hit that ended.
#[derive(Clone, Copy, Debug)]
pub struct LoopSlice<'a> {
    /// Index of the process in the profile.
    pub process: usize,
    /// The kernel's id of the thread.
    pub tid: u32,
    /// The name of the slice.
    pub name: &'a str,
    /// The id of the loop in its module.
    pub id: u32,
    /// The start of the hit, in ns since 1970-01-01 UTC.
    pub start_ns: i64,
    pub duration_ns: u64,
}

/// Passes the hits to `sink`. They must be sorted by thread and start, outer hits before inner
/// ones.
pub fn export_loops(
    profile: &Profile,
    slices: &[LoopSlice<'_>],
    sink: &mut impl TimelineSink,
) -> io::Result<()> {
    let mut named: HashSet<(usize, Option<u32>)> = HashSet::new();
    for slice in slices {
        let Some(process) = profile.processes.get(slice.process) else { continue };
        let row = Row {
            process: Id::Number(process.id.pid.into()),
            thread: Id::Number(slice.tid.into()),
        };
        // The rows of processes and threads with calls already have names.
        let has_calls = !process.threads.is_empty();
        if named.insert((slice.process, None)) && !has_calls {
            let program = process.info.as_ref().map_or("", |info| info.program.as_str());
            let sort_index = 2 * slice.process as i64;
            sink.process(&ProcessRow {
                id: row.process,
                name: program.rsplit('/').next().unwrap_or_default(),
                labels: "CPU",
                sort_index,
                at_ns: slice.start_ns,
            })?;
        }
        let is_known = process.threads.iter().any(|thread| thread.tid == slice.tid);
        if named.insert((slice.process, Some(slice.tid))) && !is_known {
            let (name, sort_index) = (format!("thread {}", slice.tid), slice.tid.into());
            sink.thread(&ThreadRow { row, name: &name, sort_index, at_ns: slice.start_ns })?;
        }
        sink.slice(&Slice {
            row,
            category: LOOP_CATEGORY,
            name: slice.name,
            start_ns: slice.start_ns,
            duration_ns: slice.duration_ns,
            args: &[Arg::uint("loop id", slice.id.into())],
            shape: None,
            label: None,
            flows: &[],
            counters: &[],
        })?;
    }
    Ok(())
}
