//! Instruments and runs a program with the test programs' runtime.

use std::path::{Path, PathBuf};
use std::process::Command;

use ir::choice::Options;
use ir::instrument::instrument;
use ir::table::{Entry, SideTable};

use super::{Llvm, programs, root, run};

/// The numbers that one thread counted for one entry of the table (a loop or a function), as
/// `runtime.c` writes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    pub thread: u64,
    pub id: u64,
    pub hits: u64,
    pub begun: u64,
    pub ended: u64,
    pub ticks: u64,
    pub child_ticks: u64,
    pub iterations: u64,
    pub iterated: u64,
    pub squares: u128,
    pub first_ended: u64,
    pub first_ticks: u64,
    pub first_squares: u128,
    pub counted: [u64; 2],
    pub logged: [u64; 2],
}

#[derive(Debug)]
pub struct Ran {
    pub table: SideTable,
    pub rows: Vec<Row>,
    pub output: String,
    /// The result of a rehearsal, in which the module's hooks run for 1000 empty hits: the number
    /// of hits counted, and the number of timed hits that did not end.
    pub rehearsal: Option<[u64; 2]>,
    /// The line of `runtime.c` that says how often the module was registered and unregistered.
    pub registered: String,
}

impl Ran {
    /// Returns the rows of matching entries, of all threads.
    pub fn rows_of(&self, matches: impl Fn(&Entry) -> bool) -> Vec<Row> {
        let entry = |row: &&Row| matches(&self.table.entries[row.id as usize]);
        self.rows.iter().filter(entry).copied().collect()
    }

    /// Returns the sum over all threads of the number that `number` takes from the loop's row.
    /// `place` is the loop's depth and its index among the function's loops of this depth. If
    /// `place` is `None`, the rows are those of the function itself.
    pub fn sum(
        &self,
        function: &str,
        place: Option<(u32, usize)>,
        number: impl Fn(&Row) -> u64,
    ) -> u64 {
        let found: Vec<&Entry> = self
            .table
            .entries
            .iter()
            .filter(|e| e.function == function && e.depth == place.map(|place| place.0))
            .collect();
        let at = place.map_or(0, |place| place.1);
        let entry = found.get(at).unwrap_or_else(|| panic!("{function} {place:?}: {found:?}"));
        self.rows.iter().filter(|row| row.id == u64::from(entry.id)).map(number).sum()
    }
}

pub fn runtime(llvm: Llvm, folder: &Path) -> PathBuf {
    let path = folder.join("libruntime.so");
    let mut clang = llvm.command("clang");
    clang.args(["-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&path);
    clang.arg("-I").arg(root().join("include"));
    run(clang.arg(programs().join("runtime.c")).arg("-lpthread"));
    path
}

/// Instruments a text into a file beside it.
pub fn instrumented(text: &Path, options: &Options) -> (PathBuf, SideTable) {
    let done = instrument(&std::fs::read(text).unwrap(), options).unwrap();
    let path = text.with_extension("lwp.ll");
    std::fs::write(&path, &done.text).unwrap();
    (path, done.table)
}

/// Runs a program with the runtime, and reads the counts that the runtime wrote.
pub fn watched(table: SideTable, runtime: &Path, command: &mut Command) -> Ran {
    let out = runtime.with_file_name("loops.txt");
    let _ = std::fs::remove_file(&out);
    command.env("LD_PRELOAD", runtime).env("LOOPS_OUT", &out);
    let output = String::from_utf8(run(command).stdout).unwrap();
    let mut ran =
        Ran { table, rows: Vec::new(), output, rehearsal: None, registered: String::new() };
    for line in std::fs::read_to_string(&out).unwrap().lines() {
        let (kind, rest) = line.split_once(' ').unwrap();
        let numbers = || -> Vec<u64> { rest.split(' ').map(|n| n.parse().unwrap()).collect() };
        match kind {
            "module" => {
                let fields: Vec<&str> = rest.split(' ').collect();
                assert_eq!(fields[2], ran.table.entries.len().to_string(), "ids");
                assert_eq!(fields[3], ran.table.module, "identity");
            }
            "table" => {
                let json = rest.split_once(' ').unwrap().1;
                let embedded = SideTable::from_json(json.as_bytes()).unwrap();
                assert_eq!(embedded, ran.table, "the embedded table");
            }
            "rehearsal" => ran.rehearsal = Some([numbers()[1], numbers()[2]]),
            "row" => ran.rows.push(row(&numbers())),
            _ => ran.registered = line.to_owned(),
        }
    }
    ran
}

fn row(n: &[u64]) -> Row {
    let wide = |low: u64, high: u64| u128::from(high) << 64 | u128::from(low);
    Row {
        thread: n[1],
        id: n[2],
        hits: n[3],
        begun: n[4],
        ended: n[5],
        ticks: n[6],
        child_ticks: n[7],
        iterations: n[8],
        iterated: n[9],
        squares: wide(n[10], n[11]),
        first_ended: n[12],
        first_ticks: n[13],
        first_squares: wide(n[14], n[15]),
        counted: [n[16], n[17]],
        logged: [n[18], n[19]],
    }
}
