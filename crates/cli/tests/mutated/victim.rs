//! Profiles of every kind of file, one of which is damaged, and everything that views do with them.
//! `fuzz/fuzz_targets/whole_profile.rs` uses the same.

#![allow(dead_code, clippy::unwrap_used, reason = "tests, of which each uses its part")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use analysis::{By, OpFilter, OpTable, OpTrees};
use model::activity::Vocabulary;
use profile::collect::{Closing, collect};
use profile::tracks::{Reading, Readings, Scope, Series, Times};
use profile::{Manifest, PageDecoder, Profile, Sample, TracksWriter};
use record::meta::{Calibration, Role, Spread, Text, ValueKey, ValueKind, frame_bytes};
use record::pool::POOL_BYTES;
use record::wire::xxh64;
use testkit::{CallScript, Item, ProfileScript, Random, Scratch};
use trace::export::calls::{CallsOptions, export_calls};
use trace::export::tracks::export_tracks;
use trace::import::trace::Import;
use trace::round_trip::document::{self, Found};
use trace::{chrome, perfetto};

/// A profile whose files are damaged, one at a time.
pub struct Victim {
    _scratch: Scratch,
    dir: PathBuf,
    /// Its files and what is in them; of the pool, the first bytes.
    files: Vec<(PathBuf, Vec<u8>)>,
}

const TRACE: &str = r#"{"schemaVersion":1,"baseTimeNanoseconds":1700000000000000000,"traceEvents":[
{"ph":"M","name":"process_name","pid":1,"args":{"name":"p"}},
{"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"t"}},
{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":2,"ts":1.5,"dur":9,"args":{"a":1,"b":[{}]}},
{"ph":"X","cat":"cpu_op","name":"b","pid":1,"tid":2,"ts":2.5,"dur":1},
{"ph":"X","cat":"cpu_op","name":"c","pid":1,"tid":2,"ts":1.0,"dur":1},
{"ph":"s","id":7,"name":"f","cat":"c","pid":1,"tid":2,"ts":2},
{"ph":"f","id":7,"name":"f","cat":"c","pid":1,"tid":3,"ts":3,"bp":"e"},
{"ph":"C","name":"n","pid":1,"ts":3,"args":{"x":4}},{"ph":"i","name":"m","pid":1,"tid":2,"ts":5}]}"#;

impl Victim {
    /// The profiles: of a recording with everything, of two passes, of a trace.
    pub fn all() -> Vec<Self> {
        vec![Self::recorded(), Self::passes(), Self::imported()]
    }

    fn recorded() -> Self {
        let scratch = Scratch::new();
        let dir = scratch.join("x.cpt");
        script(true).write(&dir);
        tracks(&dir);
        Self::of(scratch, dir)
    }

    fn passes() -> Self {
        let scratch = Scratch::new();
        let dir = scratch.join("x.cpt");
        let mut whole = ProfileScript::monotonic();
        whole.manifest.passes = 2;
        whole.write(&dir);
        tracks(&dir);
        for pass in 1..=2 {
            script(pass == 2).write(&profile::passes::pass_dir(&dir, pass));
        }
        Self::of(scratch, dir)
    }

    fn imported() -> Self {
        let scratch = Scratch::new();
        let dir = scratch.join("x.cpt");
        fs::create_dir(&dir).unwrap();
        let mut all = Import::create(&dir, Manifest::new()).unwrap();
        for name in ["chrome-0", "chrome-1"] {
            let mut one = all.trace(name, 0).unwrap();
            let summary = chrome::read::read(TRACE.as_bytes(), &mut one).unwrap();
            one.finish("t.json", &summary).unwrap();
        }
        all.finish().unwrap();
        Self::of(scratch, dir)
    }

    fn of(scratch: Scratch, dir: PathBuf) -> Self {
        let (mut files, mut todo) = (Vec::new(), vec![dir.clone()]);
        while let Some(at) = todo.pop() {
            if at.is_dir() {
                todo.extend(fs::read_dir(&at).unwrap().map(|entry| entry.unwrap().path()));
            } else if at.file_name().is_some_and(|name| name != "run.bin") {
                files.push((at.clone(), content(&at)));
            }
        }
        files.sort();
        Self { _scratch: scratch, dir, files }
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Damages one file, as chance wants.
    pub fn damage(&self, r: &mut Random) -> usize {
        let number = r.place(self.files.len());
        let (path, whole) = &self.files[number];
        let mut bytes = whole.clone();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name == "pool" {
            for _ in 0..=r.place(6) {
                change_pool(r, &mut bytes);
            }
            fs::File::options().write(true).open(path).unwrap().write_all_at(&bytes, 0).unwrap();
            return number;
        }
        for _ in 0..=r.place(4) {
            match name.ends_with(".json") {
                true if r.odd(2) => change_number(r, &mut bytes),
                _ => change(r, &mut bytes),
            }
        }
        if name == "meta.cps" && !r.odd(4) {
            seal_frames(&mut bytes);
        }
        fs::write(path, bytes).unwrap();
        number
    }

    /// Puts a file back.
    pub fn mend(&self, number: usize) {
        let (path, whole) = &self.files[number];
        if path.file_name().is_some_and(|name| name == "pool") {
            fs::File::options().write(true).open(path).unwrap().write_all_at(whole, 0).unwrap();
        } else {
            fs::write(path, whole).unwrap();
        }
    }

    /// Puts all of them back, after something was collected.
    pub fn restore(&self) {
        fs::remove_dir_all(&self.dir).unwrap();
        for (number, (path, _)) in self.files.iter().enumerate() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            if path.file_name().is_some_and(|name| name == "pool") {
                fs::File::create(path).unwrap().set_len(POOL_BYTES as u64).unwrap();
            }
            self.mend(number);
        }
    }

    /// The name of a file, for messages.
    pub fn name(&self, number: usize) -> String {
        self.files[number].0.strip_prefix(&self.dir).unwrap().display().to_string()
    }
}

/// Of a pool, the table and the first pages; the rest is a hole.
fn content(path: &Path) -> Vec<u8> {
    let mut bytes = fs::read(path).unwrap();
    if path.file_name().is_some_and(|name| name == "pool") {
        bytes.truncate(1_114_112 + 4 * 65_536);
    }
    bytes
}

fn script(pool: bool) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    script.pool = pool;
    for (name, group) in [("page-faults", 0), ("task-clock", 0), ("cycles", 1)] {
        script.counter(name, group);
    }
    let process = script.process(4_000_700);
    process.library("m", &["f", "g"]);
    let machine = process.machine("vm");
    let run = process.op(machine, Role::Run, "main", "");
    let op = process.op(machine, Role::Op, "matmul", "float32[1, 64]");
    let region = process.op(machine, Role::Region, "matmul", "");
    let task = process.op(machine, Role::Task, "matmul", "");
    process.value_keys.push(ValueKey { id: 16, name: "hits".into(), kind: ValueKind::Percent });
    process.value_keys.push(ValueKey { id: 17, name: "isa".into(), kind: ValueKind::Text });
    process.texts.push(Text { id: 3, text: "avx2".into() });
    process.calibrations.push(Calibration {
        calls: 256,
        counters: 7,
        inside_ticks: 50,
        total_ticks: 90,
        inside_values: vec![0, 1, 2],
        spread: Some(Spread {
            inside_ticks: [45, 60],
            total_ticks: [85, 99],
            inside_values: vec![[0, 0], [1, 2], [2, 5]],
            enabled_ns: vec![70, 80],
        }),
    });
    for name in ["main", "pool"] {
        let thread = process.thread(name);
        thread.unflushed = true;
        for i in 0..4u64 {
            let at = 10_000 * i;
            let read = |call: CallScript| call.group(50, &[i, 2 * i]).scaled(50, 20, &[i << 30]);
            thread.call(read(CallScript::new((i % 2) as u32, at, 50).workgroup(i as u32, 4)));
            thread.call(read(CallScript::op(task, at + 150, 20)));
            thread.call(read(CallScript::op(region, at + 120, 60)));
            let op = CallScript::op(op, at + 100, 100).value(16, 7).value(17, 3);
            thread.call(read(op));
            thread.call(read(CallScript::op(run, at + 60, 400)));
            if i == 1 {
                thread.then(Item::Clock(at + 500, 40, at + 500));
                thread.then(Item::NextPage(at + 600, 50, at + 600));
            }
        }
    }
    script
}

fn tracks(dir: &Path) {
    for (name, readings) in [("run", Readings::Counts), ("chrome", Readings::Values)] {
        let mut writer = TracksWriter::create(dir, name, readings).unwrap();
        let series = |scope, cumulative| Series {
            track: "power/energy-pkg/".into(),
            name: String::new(),
            unit: "Joules".into(),
            scale: 0.5,
            scope,
            times: if cumulative { Times::Ticks } else { Times::Monotonic },
            cumulative,
            interval_ns: 1_000,
            source: "perf".into(),
        };
        let all = [series(Scope::Cpu(3), true), series(Scope::Machine, false)];
        let ids = all.map(|series| writer.describe(series));
        for i in 0..20u64 {
            let reading = match readings {
                Readings::Counts => Reading::Count { raw: i * 9, enabled_ns: i, running_ns: i },
                Readings::Values => Reading::Value(i as f64 / 3.0),
            };
            let series = ids[i as usize % 2];
            let sample = Sample { series, time: 1_000 * i as i64, reading: Some(reading) };
            writer.push(sample).unwrap();
        }
        writer.finish().unwrap();
    }
}

/// A few bytes, somewhere.
fn change(r: &mut Random, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    let at = r.place(bytes.len());
    match r.place(9) {
        0 => bytes[at] ^= 1 << r.place(8),
        1 => bytes[at] = r.of(&[0, 1, 0x7f, 0x80, 0xff]),
        2 => bytes[at] = r.next() as u8,
        3 | 4 => {
            // A number, or two, where one may be.
            let at = at & !3;
            let number = r.of(&[0, 1, 255, 1 << 16, 1 << 20, 1 << 31, u64::MAX, 1 << 62, 1 << 40]);
            let end = (at + r.of(&[4, 8])).min(bytes.len());
            bytes[at..end].copy_from_slice(&number.to_le_bytes()[..end - at]);
        }
        5 => {
            let length = r.place(200).min(bytes.len() - at);
            let source = r.place(bytes.len() - length + 1);
            bytes.copy_within(source..source + length, at);
        }
        6 => {
            let end = (at + r.place(300)).min(bytes.len());
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
        7 => drop(bytes.drain(at..(at + r.place(40)).min(bytes.len()))),
        _ => bytes.truncate(at),
    }
}

/// Where something is in the pool: its header, claims, rows, pages.
fn change_pool(r: &mut Random, bytes: &mut [u8]) {
    let (from, length) = r.of(&[
        (0, 64),
        (1024, 64),
        (4096, 64),
        (12_288, 2_048),
        (1_114_112, 600),
        (1_114_112 + 65_536, 600),
    ]);
    let mut some = bytes[from..from + length].to_vec();
    // No insertion: everything has its place.
    change(r, &mut some);
    some.resize(length, 0);
    bytes[from..from + length].copy_from_slice(&some);
}

/// A number in JSON, or a word of it, becomes another.
fn change_number(r: &mut Random, bytes: &mut Vec<u8>) {
    let digits: Vec<usize> = (1..bytes.len())
        .filter(|at| bytes[*at].is_ascii_digit() && !bytes[*at - 1].is_ascii_digit())
        .collect();
    if digits.is_empty() {
        return;
    }
    let at = digits[r.place(digits.len())];
    let end = bytes[at..].iter().position(|b| !b.is_ascii_digit()).map_or(bytes.len(), |n| at + n);
    let with = r.of(&[
        "0",
        "1",
        "32",
        "65535",
        "4294967295",
        "18446744073709551615",
        "-1",
        "1e308",
        "1e999",
        "null",
        "[]",
        "\"\\u0000\"",
    ]);
    bytes.splice(at..end, with.bytes());
}

/// Gives each frame the checksum of what is in it now.
fn seal_frames(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(prefix) = bytes.get(at..at + 16).and_then(|b| <[u8; 16]>::try_from(b).ok()) {
        let end = at.saturating_add(frame_bytes(prefix));
        let Some(payload) = bytes.get(at + 16..end) else { return };
        let sum = xxh64(payload).to_le_bytes();
        bytes[at + 8..at + 16].copy_from_slice(&sum);
        at = end;
    }
}

/// What views do first.
pub fn collected(dir: &Path) {
    let _ = collect(dir, Closing::WhenOver).map(drop);
}

/// Does with the profile what every view does with it, with results thrown away. Damage is no
/// reason to fail; only what cannot be opened at all is left.
pub fn views(dir: &Path) {
    let Ok(profile) = Profile::open(dir) else { return };
    let mut decoder = PageDecoder::new(&profile);
    let calls: usize = profile.pages().into_iter().map(|key| decoder.decode(key).len()).sum();
    let rows: usize = profile.batches(None).flatten().map(|batch| batch.num_rows()).sum();
    assert_eq!(rows, calls, "batches and pages");
    profile.track_batches(None).for_each(drop);
    for by in [By::Op, By::Thread, By::Cpu, By::Process] {
        let summary =
            analysis::summarize(&profile, &analysis::Options { by, ..Default::default() });
        assert_eq!(summary.rows.iter().map(|row| row.calls).sum::<u64>(), calls as u64);
    }
    let _ = analysis::tracks(&profile).map(drop);
    let stats = analysis::stats::Options { buckets: 16, tables: true, ..Default::default() };
    let _ = analysis::stats(&profile, &stats).map(drop);
    let trees = OpTrees::new(&profile);
    let _ = OpTable::new(&trees, &OpFilter::default(), true);
    for vocabulary in [Vocabulary::Generic, Vocabulary::Kineto] {
        timelines(&profile, vocabulary);
    }
}

fn timelines(profile: &Profile, vocabulary: Vocabulary) {
    let options = CallsOptions { vocabulary, counter_tracks: true };
    let facts = document::of_profile(profile);
    let head = chrome::write::Head {
        near_ns: 0,
        host_name: &profile.manifest.host,
        devices: &[],
        rank: None,
        facts: Some(&facts),
        part: None,
    };
    let mut json = chrome::write::Writer::new(std::io::sink(), &head).unwrap();
    let done = export_calls(profile, &options, &mut json);
    let done = done.and_then(|c| Ok((c, export_tracks(profile, vocabulary, &mut json)?)));
    if let Ok((calls, tracks)) = done {
        let end = document::end(profile, &Found { calls, tracks });
        let _ = json.finish("counterpoint_end", &end, "x").map(drop);
    }
    let clocks = profile.snapshots.iter().map(|s| (s.realtime_ns, s.monotonic_ns)).collect();
    let head = perfetto::write::Head { clocks, compress: false };
    let mut binary = perfetto::write::Writer::new(std::io::sink(), &head).unwrap();
    let done = export_calls(profile, &options, &mut binary);
    if done.is_ok() && export_tracks(profile, vocabulary, &mut binary).is_ok() {
        let _ = binary.finish([("counterpoint", &serde_json::Value::Null)]).map(drop);
    }
    let Ok(traces) = profile.activities() else { return };
    let names: Vec<String> = traces.iter().map(|trace| trace.name.clone()).collect();
    let options =
        trace::export::activities::Options { vocabulary: Some(vocabulary), ..Default::default() };
    for trace in &traces {
        let _ = trace::export::activities::write_again(trace, &options, std::io::sink()).map(drop);
    }
    let sink = std::io::sink;
    let _ =
        trace::export::activities::write_merged(&traces, &names, &options, sink(), "x").map(drop);
    let _ = trace::export::activities::write_perfetto(&traces, &names, &options, sink(), false)
        .map(drop);
}
