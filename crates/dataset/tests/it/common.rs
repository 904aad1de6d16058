//! Makes profiles to export.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use dataset::{Options, export};
use profile::Profile;
use testkit::{CallScript, ProfileScript, Scratch};

/// Makes a profile of one rank. Even and odd ranks have different counters.
pub fn script(rank: u32) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.counter(if rank.is_multiple_of(2) { "instructions:u" } else { "cycles:u" }, 0);
    let process = script.process(100 + rank);
    process.library("mlp", &["matmul", "softmax", "add"]);
    let thread = process.thread("main");
    for i in 0..40u64 {
        let start = 1_000_000 + 10_000 * i;
        let duration = 1_000 + i * 37 % 900 + u64::from(rank) * 100;
        let values = [duration * 3 + i % 5];
        thread.call(CallScript::new((i % 2) as u32, start, duration).group(duration, &values));
    }
    script
}

pub fn add(dir: &Path, rank: u32, calls: bool) -> Scratch {
    let (scratch, path) = script(rank).written();
    let profile = Profile::open(&path).unwrap();
    export(&profile, dir, &options(rank, calls)).unwrap();
    scratch
}

pub fn options(rank: u32, calls: bool) -> Options {
    Options {
        run: "train 7".to_owned(),
        rank,
        part: format!("{rank:032x}"),
        world_size: Some(8),
        calls,
        redacted: false,
        unfinished: false,
    }
}

pub fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                let bytes = fs::read(&path).unwrap();
                all.insert(path.strip_prefix(dir).unwrap().to_owned(), bytes);
            }
        }
    }
    all
}

pub fn write(dir: &Path, files: &BTreeMap<PathBuf, Vec<u8>>) {
    for (path, bytes) in files {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}
