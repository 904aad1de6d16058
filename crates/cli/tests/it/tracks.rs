//! Tests counters that `run` samples periodically while the program runs.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{counterpoint, skip};
use profile::safe_dir::Dir;
use profile::tracks::{Reading, Readings, Scope, Series, Times};
use profile::{Sample, TracksWriter};
use serde_json::Value;
use testkit::{Golden, ProfileScript, Scratch, python};

fn run(program: &Path, profile: &Path, options: &[&str], command: &[&str]) -> std::process::Output {
    let mut run = Command::new(program);
    run.args(["run", "-o"]).arg(profile).args(options).arg("--").args(command);
    run.output().unwrap()
}

fn report(program: &Path, profile: &Path) -> Value {
    let output =
        Command::new(program).arg("report").arg(profile).args(["--format", "json"]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the exported samples without the header. Each row is a list of cells.
fn samples(program: &Path, profile: &Path) -> Vec<Vec<String>> {
    let mut export = Command::new(program);
    export.arg("export").arg(profile).args(["--what", "tracks", "--format", "csv"]);
    let output = export.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

fn online_cpus() -> u64 {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let ranges = text.trim().split(',').map(|range| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        to.parse::<u64>().unwrap() - from.parse::<u64>().unwrap() + 1
    });
    ranges.sum()
}

/// `readings=` lists by how much each reading raises a simulated counter. After its last entry, the
/// list is used from the start again. The number after `@` says for how many of 1,000 ns the
/// counter was counting. A reading with `!` fails.
#[test]
fn a_scripted_counter_is_read_as_written() {
    let Some(program) = counterpoint("tracks_sim") else { return };
    let scratch = Scratch::new();
    let at = scratch.join("s.cpt");
    let sim = "sim/pages,readings=5:7:0@0:3@500:9!,unit=bytes/";
    let options = ["-e", "none", "-a", sim, "--sample-interval", "5ms"];
    let output = run(&program, &at, &options, &["sleep", "0.08"]);
    assert!(output.status.success(), "{output:?}");
    let rows = samples(&program, &at);
    assert!(rows.len() >= 3, "samples before, during and after the run: {rows:?}");
    let steps = [(5, 1_000), (7, 1_000), (0, 0), (3, 500), (9, 1_000)];
    let (mut raw, mut running) = (0, 0);
    for (i, row) in rows.iter().enumerate() {
        raw += steps[i % 5].0;
        running += steps[i % 5].1;
        let enabled = 1_000 * (i + 1);
        let expected = match i % 5 {
            4 => [String::new(), String::new(), String::new(), String::new()],
            _ => [raw, enabled as i64, running, raw].map(|n| n.to_string()),
        };
        assert_eq!(row[10..13], expected[..3], "sample {i}");
        assert_eq!(row[13].trim_end_matches(".0"), expected[3], "sample {i}");
        assert_eq!(row[..8], ["run", "0", "pages", "", "machine", "", "bytes", "sim"]);
    }
    let report = report(&program, &at);
    let track = &report["tracks"][0];
    assert_eq!(track["samples"], rows.len());
    assert_eq!(track["failed"], rows.len() / 5);
    assert_eq!(track["interval_ns"], 5_000_000);
    assert_eq!(report["tracks"].as_array().unwrap().len(), 1);
}

/// If the run's clock is the time-stamp counter, its ticks and the track `msr/tsc/` of each CPU
/// count the same oscillator. Each reading of the counter is between two readings of the clock.
#[test]
fn per_cpu_counters_agree_with_the_clock() {
    let Some(program) = counterpoint("tracks_tsc") else { return };
    let scratch = Scratch::new();
    let at = scratch.join("t.cpt");
    let options = ["-e", "none", "-a", "msr/tsc/,cpu-clock", "--sample-interval", "20ms"];
    let output = run(&program, &at, &options, &["sleep", "0.3"]);
    if !output.status.success() {
        return skip("tracks_tsc", &String::from_utf8_lossy(&output.stderr));
    }
    let report = report(&program, &at);
    let clock = &report["profile"]["clock"];
    let tracks = report["tracks"].as_array().unwrap();
    assert_eq!(tracks.len() as u64, 2 * online_cpus());
    for track in tracks {
        let number = |key: &str| track[key].as_f64().unwrap();
        let seconds = number("over_ns") / 1e9;
        assert!(seconds > 0.3, "the samples span the program: {seconds} s");
        assert_eq!((track["scope"].as_str(), number("coverage")), (Some("cpu"), 1.0));
        let expected = match track["track"].as_str().unwrap() {
            "cpu-clock" => 1e9,
            _ if clock["kind"] == "tsc" => 1e9 / clock["ns_per_tick"].as_f64().unwrap(),
            _ => continue,
        };
        let off = (number("rate") / expected - 1.0).abs();
        // The time of a sample is in the middle between two readings of the clock. If the sampler
        // was interrupted between them, this time may be wrong by half of their distance.
        assert!(off < 0.03, "{track}: {off} off {expected}");
    }
    let rows = samples(&program, &at);
    for cpu in 0..online_cpus() {
        let of = |row: &&Vec<String>| row[2] == "msr/tsc/" && row[5] == cpu.to_string();
        let raws: Vec<u64> = rows.iter().filter(of).map(|row| row[10].parse().unwrap()).collect();
        assert!(raws.len() > 3 && raws.is_sorted(), "cumulative: {raws:?}");
    }
}

/// `counterpoint run` is killed while its program continues. The samples that were written before
/// must be in the profile.
#[test]
fn samples_survive_a_kill_of_run() {
    let Some(program) = counterpoint("tracks_kill") else { return };
    let scratch = Scratch::new();
    let at = scratch.join("k.cpt");
    let mut run = Command::new(&program);
    run.args(["run", "-e", "none", "-a", "sim/a,readings=1/", "--sample-interval", "10ms", "-o"]);
    run.arg(&at).args(["--", "sleep", "5"]).stdout(Stdio::null()).stderr(Stdio::null());
    let begin = Instant::now();
    let mut child = run.spawn().unwrap();
    let file = at.join("tracks/run/samples.arrows");
    // The sampler writes one batch at the start and the next one a second later.
    while std::fs::metadata(&file).map_or(0, |m| m.len()) < 4_000 {
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing was sampled");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(100));
    child.kill().unwrap();
    child.wait().unwrap();
    let lived = begin.elapsed();
    let report = report(&program, &at);
    let track = &report["tracks"][0];
    assert!(track["samples"].as_u64().unwrap() > 10, "{track}");
    assert_eq!(report["profile"]["clock"]["calibrated"], true);
    // Without a calibration of the clock, times would be wrong by a factor.
    let over_ns = track["over_ns"].as_f64().unwrap();
    assert!((0.5e9..lived.as_secs_f64() * 1e9).contains(&over_ns), "{track}, {lived:?}");
    let losses: Vec<&str> =
        report["losses"].as_array().unwrap().iter().map(|l| l["name"].as_str().unwrap()).collect();
    assert!(!losses.contains(&"torn_track"), "{losses:?}");
}

#[test]
fn counters_that_cannot_be_sampled_are_refused_before_the_start() {
    let Some(program) = counterpoint("tracks_refused") else { return };
    let scratch = Scratch::new();
    let at = scratch.join("r.cpt");
    let started = scratch.join("started");
    let refused = |options: &[&str], words: &str| {
        let output = run(&program, &at, options, &["touch", started.to_str().unwrap()]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(words), "{text}");
        assert!(!at.exists() && !started.exists());
    };
    refused(&["-a", "cycels"], "--system cycels: counter list, byte 0");
    refused(&["-a", "cpu-clock", "--sample-interval", "0ms"], "must be from 1ms to 3600s");
    refused(
        &["-a", "cpu-clock", "--sample-interval", "10"],
        "expected a whole number followed by us, ms or s",
    );
}

/// Two series are written as `run` writes what it samples, and two as an import writes them; the
/// last one has no samples. Times are in ns.
#[test]
fn the_views_of_tracks() {
    let scratch = Scratch::new();
    let at = scratch.join("v.cpt");
    ProfileScript::monotonic().write(&at);
    let series = |track: &str, unit: &str, scope, cumulative| Series {
        track: track.to_owned(),
        name: String::new(),
        unit: unit.to_owned(),
        scale: if cumulative { 0.5 } else { 1.0 },
        scope,
        times: if cumulative { Times::Ticks } else { Times::Monotonic },
        cumulative,
        interval_ns: if cumulative { 100_000_000 } else { 0 },
        source: "paper".to_owned(),
    };
    let mut writer =
        TracksWriter::create(&Dir::open(&at).unwrap(), "run", Readings::Counts).unwrap();
    let package = writer.describe(series("power/energy-pkg/", "J", Scope::Cpu(0), true));
    let memory = writer.describe(series("uncore_imc/data_reads/", "bytes", Scope::Cpu(1), true));
    let count = |series, time, raw: u64, running_ns| {
        let reading = Some(Reading::Count { raw, enabled_ns: time as u64, running_ns });
        Sample { series, time, reading }
    };
    for (i, joules) in [0, 10, 40, 90].iter().enumerate() {
        let time = 100_000_000 * i as i64;
        writer.push(count(package, time, *joules, time as u64)).unwrap();
        writer.push(count(memory, time, 2_000_000 * i as u64, time as u64 / 2)).unwrap();
    }
    writer.finish().unwrap();
    let mut writer =
        TracksWriter::create(&Dir::open(&at).unwrap(), "trace", Readings::Values).unwrap();
    let free = writer.describe(series("GPU memory", "bytes", Scope::Device(0), false));
    let empty = writer.describe(series("never", "", Scope::Machine, false));
    assert_eq!(empty, 1);
    for (time, value) in [(0, Some(1e9)), (300, Some(3e9)), (400, None)] {
        let reading = value.map(Reading::Value);
        writer.push(Sample { series: free, time, reading }).unwrap();
    }
    writer.finish().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/tracks");
    let golden = Golden::new(env!("CARGO_BIN_EXE_counterpoint"), root);
    let text = at.to_str().unwrap();
    golden.check("report", 0, &["report", text, "--width", "100"]);
    golden.check("json", 0, &["report", text, "--format", "json"]);
    golden.check("csv", 0, &["export", text, "--what", "tracks", "--format", "csv"]);
    let filter = ["export", text, "--what", "tracks", "--format", "json", "--filter", "*energy*"];
    golden.check("filter", 0, &filter);
}

/// pyarrow is another implementation of Arrow.
#[test]
fn pyarrow_reads_the_streams() {
    let Some(python) = python::with("tracks_pyarrow", "pyarrow") else { return };
    let scratch = Scratch::new();
    let mut writer =
        TracksWriter::create(&Dir::open(scratch.path()).unwrap(), "x", Readings::Counts).unwrap();
    let id = writer.describe(Series {
        track: "∞".to_owned(),
        name: String::new(),
        unit: "J".to_owned(),
        scale: 0.25,
        scope: Scope::Node(1),
        times: Times::Ticks,
        cumulative: true,
        interval_ns: 7,
        source: "paper".to_owned(),
    });
    for time in 0..70_000i64 {
        let reading = Reading::Count { raw: u64::MAX - time as u64, enabled_ns: 1, running_ns: 2 };
        let reading = (time % 3 != 1).then_some(reading);
        writer.push(Sample { series: id, time, reading }).unwrap();
    }
    writer.finish().unwrap();
    let script = include_str!("tracks.py");
    let mut check = Command::new(python);
    let output = check.args(["-c", script]).arg(scratch.join("tracks/x")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
