//! Writes the calls of a profile, one row for each.
//!
//! The rows are sorted by op and start, [`AT_ONCE`] calls at a time. This makes files half as
//! large, and lets a query of one op skip most rows.

use std::collections::BTreeMap;
use std::path::Path;

use analysis::Key;
use profile::columns::cpu_of;
use profile::{Columns, PageDecoder, PageKey, Profile};

use crate::error::Result;
use crate::file::TableWriter;
use crate::keys::OpName;
use crate::layout::Member;
use crate::rows::{Cell, Rows};

/// The number of calls (or a few more) that are sorted together. A call takes some 100 bytes of
/// memory.
const AT_ONCE: usize = 1 << 20;
const BATCH: usize = 8192;

struct Call {
    op: u32,
    start_ns: i64,
    duration_ns: i64,
    process: u32,
    thread: u32,
    cpu: u32,
    /// The call's index before the sorting, which says where its values are in `Calls::values`.
    at: u32,
}

/// Calls that are not written yet.
struct Calls<'a> {
    member: &'a Member,
    keys: Vec<&'a str>,
    calls: Vec<Call>,
    /// For each call, in the order before the sorting, the value of each counter; `None` if it is
    /// missing.
    values: Vec<Option<u64>>,
    counters: usize,
    rows: Rows,
}

/// The calls to write.
pub(crate) struct Of<'a> {
    pub profile: &'a Profile,
    pub member: &'a Member,
    pub names: &'a BTreeMap<Key, OpName>,
    pub pages: Vec<PageKey>,
}

/// Writes the calls. The recorder's time is not subtracted from their durations.
pub(crate) fn write(
    of: &Of<'_>,
    counters: &[String],
    path: &Path,
    out: &mut TableWriter,
) -> Result<()> {
    let Of { profile, member, names, pages } = of;
    let mut keys: Vec<&str> = names.values().map(|op| &*op.key).collect();
    keys.sort_unstable();
    keys.dedup();
    let rows = Rows::new(crate::Table::Calls, counters);
    let (calls, values) = (Vec::new(), Vec::new());
    let mut all = Calls { member, keys, calls, values, counters: counters.len(), rows };
    let mut decoder = PageDecoder::new(profile);
    for page in pages {
        all.add(profile, decoder.decode(*page), names);
        if all.calls.len() >= AT_ONCE {
            all.flush(path, out)?;
        }
    }
    all.flush(path, out)
}

impl Calls<'_> {
    fn add(&mut self, profile: &Profile, columns: &Columns, names: &BTreeMap<Key, OpName>) {
        let line = &profile.timeline;
        // The process of `columns` may have no row for the op: the calls of plugins are in the rows
        // of the process in which the plugins ran. The op has the same key there.
        let op_of = |export: u32| {
            let op = profile.ops.of(columns.process, export).map(|op| profile.ops.row_of(op));
            let wanted = |key: &Key| match (*key, op) {
                (Key::OpIn(_, known), Some(op)) => known == op,
                (Key::Unknown(process, known), None) => {
                    (process, known) == (columns.process, export)
                }
                _ => false,
            };
            let own = op.and_then(|op| names.get(&Key::OpIn(columns.process, op)));
            let name =
                own.or_else(|| names.iter().find(|(key, _)| wanted(key)).map(|(_, op)| op))?;
            self.keys.binary_search(&&*name.key).ok().map(|at| at as u32)
        };
        let mut known: BTreeMap<u32, Option<u32>> = BTreeMap::new();
        for i in 0..columns.len() {
            let export = columns.export[i];
            let Some(op) = *known.entry(export).or_insert_with(|| op_of(export)) else { continue };
            let duration = line.duration_ns(columns.duration(i)).round();
            self.calls.push(Call {
                op,
                start_ns: line.realtime_ns(columns.start_ticks[i]),
                duration_ns: duration as i64,
                process: columns.process as u32,
                thread: columns.thread as u32,
                cpu: cpu_of(columns.location[i]),
                at: self.calls.len() as u32,
            });
            let before = self.values.len();
            self.values.resize(before + self.counters, None);
            for (g, group) in profile.groups.all().iter().enumerate() {
                for counter in group.counters.clone() {
                    self.values[before + counter] = columns.value(g, counter, i);
                }
            }
        }
    }

    fn flush(&mut self, path: &Path, out: &mut TableWriter) -> Result<()> {
        let mut calls = std::mem::take(&mut self.calls);
        calls.sort_unstable_by_key(|call| (call.op, call.start_ns, call.at));
        for call in &calls {
            let own = [
                Cell::Whole(call.thread.into()),
                Cell::Text(self.keys[call.op as usize]),
                Cell::Whole(call.start_ns),
                Cell::Whole(call.duration_ns),
                Cell::Whole(call.cpu.into()),
            ];
            let from = call.at as usize * self.counters;
            let values = &self.values[from..from + self.counters];
            let values = values.iter().map(|value| value.map_or(Cell::Missing, Cell::Counter));
            self.rows.push(self.member, Some(call.process as usize), own.into_iter().chain(values));
            if self.rows.len() >= BATCH {
                out.write(&self.rows.take(path)?)?;
            }
        }
        self.values.clear();
        calls.clear();
        self.calls = calls;
        match self.rows.len() {
            0 => Ok(()),
            _ => out.write(&self.rows.take(path)?),
        }
    }
}
