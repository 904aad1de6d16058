//! Tests the whole agent (`libcounterpoint.so`) on AArch64, on Debian's glibc: it is preloaded into
//! a C program of `tests/programs`. The recording is read from the pool (the shared memory of the
//! recorded processes) and from the profile.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use profile::{Manifest, ProfileId};
use record::pool::{self, PoolFile};
use record::run_file::LoopOptions;
use record::{ClockKind, GroupLayout, PageReader, Record, RunFile, Snapshot};

use crate::report::tests;
use crate::set;
use crate::user::user_access;

tests![agent: records_calls_by_reads, records_calls_in_user_mode, records_a_killed_program];

const LIBRARY: &str = "/lib/aarch64-linux-gnu/libcounterpoint.so";

/// The outcome of a run. `calls` has, for each call, the number of the called function and the
/// count of instructions.
struct Recorded {
    calls: Vec<(u32, u64)>,
    stdout: String,
    status: String,
}

pub struct Left {
    /// The profile's path. The profile contains the pool.
    pub profile: String,
    pub output: Output,
}

/// Runs `command` as `counterpoint run -e instructions:u` would.
pub fn record(name: &str, command: &mut Command, loops: Option<LoopOptions>) -> Left {
    record_with(name, command, loops, None)
}

/// Runs `command` as `counterpoint run -e instructions:u` would, with a budget if there is one.
pub fn record_with(
    name: &str,
    command: &mut Command,
    loops: Option<LoopOptions>,
    budget: Option<f64>,
) -> Left {
    let profile = format!("/tmp/{name}.cpt");
    fs::create_dir_all(format!("{profile}/{}", record::meta::PARTS_NAME)).expect("make a profile");
    fs::create_dir_all(format!("{profile}/pool")).expect("make the pool's folder");
    let pool = format!("{profile}/pool/pool");
    let id = ProfileId::random().expect("random numbers");
    let owner = profile::pools::owner(Path::new(&profile), id).expect("open the profile");
    pool::create(Path::new(&pool), &owner).expect("make a pool");
    let clock = ClockKind::choose("arch_sys_counter");
    let run_file = RunFile {
        profile: profile.clone(),
        pool: pool.clone(),
        id,
        clock,
        counters: set::resolve("instructions:u"),
        filters: Vec::new(),
        bookkeeping: false,
        budget,
        exact_counts: true,
        loops,
        plugins: None,
        snapshots: vec![Snapshot::take(clock)],
    };
    let path = format!("{profile}/{}", record::run_file::RUN_FILE_NAME);
    fs::write(&path, run_file.to_bytes()).expect("write the run file");
    let manifest = Manifest {
        id: id.to_string(),
        boot_id: profile::live::boot_id(),
        clock: clock.into(),
        counters: run_file.counters.iter().map(Into::into).collect(),
        budget,
        pool: Some(pool.clone().into()),
        snapshots: run_file.snapshots.iter().map(|moment| (*moment).into()).collect(),
        ..Manifest::new()
    };
    manifest.write(Path::new(&profile)).expect("write the manifest");
    command.env("LD_PRELOAD", LIBRARY).env(record::run_file::RUN_FILE_VARIABLE, &path);
    let output = command.output().expect("start the program");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    let pool = PoolFile::open(Path::new(&pool)).expect("open the pool");
    for process in pool.processes().expect("read the pool's table of processes") {
        assert_eq!(process.losses, [], "losses");
    }
    Left { profile, output }
}

fn run(name: &str, mode: &[&str]) -> Recorded {
    let mut command = Command::new("/bin/host");
    command.arg("/lib/library.so").args(mode);
    let Left { profile, output } = record(name, &mut command, None);
    let mut calls = Vec::new();
    let pool = PoolFile::open(&Path::new(&profile).join("pool/pool")).expect("open the pool");
    for (page, _) in pool.claimed() {
        calls.extend(page_calls(&pool.page(page).expect("read a page")));
    }
    for bytes in raw_files(Path::new(&profile)) {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            calls.extend(page_calls(rest));
            let header = record::PageHeader::parse(rest).expect("the file contains only pages");
            rest = &rest[header.file_bytes().min(rest.len())..];
        }
    }
    Recorded {
        calls,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        status: output.status.to_string(),
    }
}

/// Returns the contents of all files below `folder`, except those named `pool`, that begin with the
/// header of a page (a block of records).
fn raw_files(folder: &Path) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("read a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(raw_files(&path));
        } else if path.file_name().is_some_and(|name| name != "pool") {
            let bytes = fs::read(&path).expect("read a file");
            if record::PageHeader::parse(&bytes).is_ok() {
                found.push(bytes);
            }
        }
    }
    found
}

fn page_calls(bytes: &[u8]) -> Vec<(u32, u64)> {
    let layout = GroupLayout::new(&[0], 1);
    let mut reader = PageReader::new(bytes, &layout).expect("a page");
    let mut calls = Vec::new();
    while let Some(record) = reader.next_record() {
        if let Record::Call(call) = record.expect("the record is not torn") {
            assert!(reader.groups()[0].read, "every call was counted");
            assert!(call.end >= call.start);
            calls.push((call.export, reader.values()[0]));
        }
    }
    calls
}

/// Checks the recording of the program's mode `grid`: twelve calls of an empty function and two of
/// a function that loops 1,000 times. Counts depend on the machine, but calls with the same work
/// (except the first call) have the same count.
fn check(recorded: &Recorded) {
    assert_eq!(recorded.stdout.trim(), "grid 0 0 done");
    assert_eq!(recorded.status, "exit status: 0");
    let of = |export: u32| -> Vec<u64> {
        recorded.calls.iter().filter(|call| call.0 == export).map(|call| call.1).collect()
    };
    let exports: Vec<u32> = recorded.calls.iter().map(|call| call.0).collect();
    let nothing = of(exports[0]);
    let spin = of(*exports.last().expect("some calls"));
    println!("nothing: {nothing:?}, spin: {spin:?}");
    assert_eq!((nothing.len(), spin.len()), (12, 2));
    // The first call creates the thread's state and binds symbols, so its count may be another one.
    assert!(nothing[2..].iter().all(|&count| count == nothing[1]), "{nothing:?}");
    assert!((1..1_000).contains(&nothing[1]), "{nothing:?}");
    assert_eq!(spin[0], spin[1]);
    let loops = spin[0] - nothing[1];
    assert!((3_000..20_000).contains(&loops), "1,000 rounds took {loops} instructions");
}

fn records_calls_by_reads() {
    user_access(false);
    check(&run("reads", &["grid"]));
}

fn records_calls_in_user_mode() {
    user_access(true);
    check(&run("user", &["grid"]));
}

fn records_a_killed_program() {
    user_access(true);
    let recorded = run("killed", &["abort", "50"]);
    assert!(recorded.status.contains("signal: 6"), "{}", recorded.status);
    assert_eq!(recorded.calls.len(), 50);
}
