//! Shows hits (executions) of instrumented loops as slices, named `function:loop`, in the rows of
//! their threads. Starts and ends of single hits are recorded only if the program runs with the
//! loop mode `log`.

use std::collections::HashSet;
use std::io;

use profile::Profile;

use crate::timeline::{Arg, Id, ProcessRow, Row, Slice, ThreadRow, TimelineSink};

/// The category of these slices, which is the same in every vocabulary.
pub const LOOP_CATEGORY: &str = "loop";

/// A hit that ended.
#[derive(Clone, Copy, Debug)]
pub struct LoopSlice<'a> {
    /// Index in the profile.
    pub process: usize,
    /// The operating system's id of the thread.
    pub tid: u32,
    /// The slice's name.
    pub name: &'a str,
    /// The loop's id in its module.
    pub id: u32,
    /// In ns since 1970-01-01 UTC.
    pub start_ns: i64,
    pub duration_ns: u64,
}

/// `slices` must be sorted by process, thread and start. Of slices with the same start, the
/// outermost one must come first.
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
        // If a process or thread has recorded calls, the export of these calls has already named
        // it.
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
