//! Writes one CSV file for each thread with recorded calls, similar to those of the original hook:
//! `iree_hook_THREAD.csv` with the header `thread,cpu,node,duration_us,COUNTER…,op` and one row per
//! call that is not skipped, in the order in which calls ended. The original had no column `op`. It
//! is the last column, so that programs which find the other columns by position still work.
//!
//! `cpu` and `node` are the CPU and the NUMA node at the end of the call. The field of a counter is
//! empty if the counter was not read, or did not count during the whole call.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use profile::batch::unknown_op;
use profile::columns::{cpu_of, node_of};
use profile::{Columns, PageDecoder, PageKey, Profile, Status};

use crate::terminal::Kind;
use crate::view::csv::field;
use crate::whole::WholeFile;

/// A thread: the index of its process, and its index within the process.
type ThreadKey = (usize, usize);

/// Returns the files that [`write()`] may write. This process needs the list before it reads the
/// names of threads, because it first gives up the right to write elsewhere. The names of new files
/// are not known at that time, so one path in the list stands for all new files in the directory.
/// Each existing file is in the list, because it may be a device, or a link to a file in another
/// directory.
pub fn outputs(directory: &Path) -> Vec<PathBuf> {
    let is_of_hook = |name: &OsStr| {
        let name = name.as_bytes();
        name.starts_with(b"iree_hook_") && name.ends_with(b".csv")
    };
    let there = fs::read_dir(directory).into_iter().flatten().flatten();
    let there = there.map(|entry| entry.file_name()).filter(|name| is_of_hook(name));
    let new = OsString::from(format!("iree_hook_{}.csv", std::process::id()));
    there.chain([new]).map(|name| directory.join(name)).collect()
}

/// Writes the files. `directory` must exist. `labels` are the names of the counters' columns.
pub fn write(
    profile: &Profile,
    labels: &[String],
    skip_ns: u64,
    directory: &Path,
) -> io::Result<()> {
    let mut decoder = PageDecoder::new(profile);
    let skip_ticks = (skip_ns as f64 / profile.timeline.ns_per_tick()).round() as u64;
    for (thread, name) in file_names(profile) {
        let keys = pages(profile, thread);
        let Some(from) = first_begin(&mut decoder, &keys) else { continue };
        let path = directory.join(name);
        let fail = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let mut file = WholeFile::create(&path, Kind::Csv).map_err(fail)?;
        let mut out = BufWriter::new(&mut file);
        let thread_name = field(&thread_of(profile, thread).name);
        let mut ops = Ops::new();
        let mut write = || -> io::Result<()> {
            write!(out, "thread,cpu,node,duration_us")?;
            labels.iter().try_for_each(|label| write!(out, ",{}", field(label)))?;
            writeln!(out, ",op")?;
            for key in &keys {
                let columns = decoder.decode(*key);
                let from = from.saturating_add(skip_ticks);
                rows(&mut out, profile, columns, &thread_name, from, &mut ops)?;
            }
            out.flush()
        };
        write().map_err(fail)?;
        drop(out);
        file.finish().map_err(fail)?;
    }
    Ok(())
}

fn rows(
    out: &mut impl Write,
    profile: &Profile,
    columns: &Columns,
    thread: &str,
    from: u64,
    ops: &mut Ops,
) -> io::Result<()> {
    for i in (0..columns.len()).filter(|i| columns.start_ticks[*i] >= from) {
        let (cpu, node) = (cpu_of(columns.location[i]), node_of(columns.location[i]));
        let us = profile.timeline.duration_ns(columns.duration(i)) / 1e3;
        write!(out, "{thread},{cpu},{node},{us:.3}")?;
        for (group, column) in profile.groups.all().iter().zip(&columns.groups) {
            let whole = column.status.get(i) == Some(&Status::Whole);
            for counter in group.counters.clone() {
                match columns.values[counter].get(i).filter(|_| whole) {
                    Some(value) => write!(out, ",{value}")?,
                    None => write!(out, ",")?,
                }
            }
        }
        let export = columns.export[i];
        let op = ops.entry(export).or_insert_with(|| {
            let op = profile.ops.of(columns.process, export).and_then(|op| profile.ops.get(op));
            field(&op.map_or_else(|| unknown_op(export), |op| op.name.clone()))
        });
        writeln!(out, ",{op}")?;
    }
    Ok(())
}

type Ops = HashMap<u32, String>;

/// Returns the start, in ticks, of the thread's first recorded call (the call that ended first).
/// The calls to skip are those that start less than `skip_ns` after this time, as in
/// `analysis::stats`.
fn first_begin(decoder: &mut PageDecoder<'_>, keys: &[PageKey]) -> Option<u64> {
    keys.iter().find_map(|key| decoder.decode(*key).start_ticks.first().copied())
}

fn pages(profile: &Profile, (process, thread): ThreadKey) -> Vec<PageKey> {
    let all = profile.pages().into_iter();
    all.filter(|key| (key.process, key.thread) == (process, thread)).collect()
}

fn thread_of(profile: &Profile, (process, thread): ThreadKey) -> &profile::Thread {
    &profile.processes[process].threads[thread]
}

/// Returns every thread with the name of its file. If several threads would have the same file
/// name, each of these names also contains the thread's kernel id. If a name is still not unique,
/// it also contains the process id, the process's generation and the recorder's number of the
/// thread.
fn file_names(profile: &Profile) -> Vec<(ThreadKey, String)> {
    let processes = profile.processes.iter().enumerate();
    let threads: Vec<ThreadKey> = processes
        .flat_map(|(p, process)| (0..process.threads.len()).map(move |t| (p, t)))
        .collect();
    let with = |detail: u8| {
        let name = |key: &ThreadKey| {
            let thread = thread_of(profile, *key);
            let plain = file_part(&thread.name);
            let id = profile.processes[key.0].id;
            match detail {
                0 => plain,
                1 => format!("{plain}_{}", thread.tid),
                _ => format!("{plain}_{}_{}_{}_{}", thread.tid, id.pid, id.generation, thread.uid),
            }
        };
        threads.iter().map(name).collect::<Vec<String>>()
    };
    let levels = [with(0), with(1), with(2)];
    let mut taken: HashMap<&String, usize> = HashMap::new();
    levels[..2].iter().flatten().for_each(|name| *taken.entry(name).or_default() += 1);
    let choose = |i: usize| {
        let unique = levels[..2].iter().map(|level| &level[i]).find(|name| taken[name] == 1);
        format!("iree_hook_{}.csv", unique.unwrap_or(&levels[2][i]))
    };
    threads.iter().enumerate().map(|(i, key)| (*key, choose(i))).collect()
}

fn file_part(name: &str) -> String {
    let part: String =
        name.chars().map(|c| if c == '/' || c.is_control() { '_' } else { c }).collect();
    if part.is_empty() { "thread".to_owned() } else { part }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        assert_eq!(file_part("iree-worker-0"), "iree-worker-0");
        assert_eq!(file_part("a/b\nc"), "a_b_c");
        assert_eq!(file_part(""), "thread");
    }
}
