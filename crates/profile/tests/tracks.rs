//! Tests that tracks (time series) are read back as they were written, and that damaged or
//! truncated files give only samples of known series.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use profile::safe_dir::Dir;
use profile::stream::{Ending, StreamReader};
use profile::tracks::{BATCH_ROWS, Reading, Readings, SAMPLED_NAME, Scope, Series, Times};
use profile::{Sample, Tracks, TracksWriter};
use testkit::{Random, Scratch};

fn energy(scope: Scope) -> Series {
    Series {
        track: "power/energy-pkg/".to_owned(),
        name: String::new(),
        unit: "Joules".to_owned(),
        scale: 2.0f64.powi(-32),
        scope,
        times: Times::Ticks,
        cumulative: true,
        interval_ns: 100_000_000,
        source: "perf".to_owned(),
    }
}

fn count(series: u32, time: i64, raw: u64) -> Sample {
    let reading = Reading::Count { raw, enabled_ns: raw + 1, running_ns: raw };
    Sample { series, time, reading: Some(reading) }
}

fn value(series: u32, time: i64, value: f64) -> Sample {
    Sample { series, time, reading: Some(Reading::Value(value)) }
}

/// Returns the samples, the names of the losses, and the number of samples of unknown series.
fn read(tracks: &Tracks) -> (Vec<Sample>, Vec<String>, u64) {
    let mut samples = tracks.samples().unwrap();
    let mut all = Vec::new();
    while let Some(batch) = samples.next_batch().unwrap() {
        all.extend(batch);
    }
    let losses = tracks.losses.iter().cloned().chain(samples.losses());
    (all, losses.map(|loss| loss.name).collect(), samples.unknown())
}

fn open(dir: &Path) -> Vec<Tracks> {
    let (tracks, losses) = Tracks::open_all(dir).unwrap();
    assert_eq!(losses, []);
    tracks
}

fn file(dir: &Path, name: &str) -> PathBuf {
    dir.join("tracks").join(SAMPLED_NAME).join(name)
}

/// Writes two batches of three samples, and describes another series in between. Returns the
/// samples.
fn small(dir: &Path) -> Vec<Sample> {
    let mut writer =
        TracksWriter::create(&Dir::open(dir).unwrap(), SAMPLED_NAME, Readings::Counts).unwrap();
    let package = writer.describe(energy(Scope::Cpu(0)));
    let failed = Sample { series: package, time: 30, reading: None };
    let first = [count(package, 10, 0), count(package, 20, u64::MAX - 1), failed];
    first.iter().for_each(|s| writer.push(*s).unwrap());
    writer.flush().unwrap();
    let other = writer.describe(energy(Scope::Machine));
    let second = [count(other, i64::MAX, 7), count(package, 40, 5), count(other, -1, 8)];
    second.iter().for_each(|s| writer.push(*s).unwrap());
    writer.finish().unwrap();
    [first, second].concat()
}

fn stream(path: &std::path::Path) -> profile::Result<Option<StreamReader>> {
    let name = path.file_name().unwrap().to_str().unwrap();
    StreamReader::open(&Dir::open(path.parent().unwrap())?, name)
}

#[test]
fn samples_are_read_back_as_written() {
    let scratch = Scratch::new();
    let written = small(scratch.path());
    let mut imported =
        TracksWriter::create(&Dir::open(scratch.path()).unwrap(), "chrome", Readings::Values)
            .unwrap();
    let memory = Series {
        track: "memory, \"GPU\" ∞".to_owned(),
        name: "free".to_owned(),
        unit: String::new(),
        scale: 1.0,
        scope: Scope::Device(3),
        times: Times::Monotonic,
        cumulative: false,
        interval_ns: 0,
        source: "trace.json".to_owned(),
    };
    let id = imported.describe(memory.clone());
    let values = [
        value(id, -5, -0.25),
        Sample { series: id, time: 0, reading: None },
        value(id, 1, f64::INFINITY),
    ];
    values.iter().for_each(|s| imported.push(*s).unwrap());
    // The writer is dropped without `finish`, as if the process had been killed.
    imported.flush().unwrap();
    drop(imported);

    let tracks = open(scratch.path());
    let names: Vec<&str> = tracks.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["chrome", SAMPLED_NAME]);
    assert_eq!(tracks[0].readings, Readings::Values);
    assert_eq!(tracks[0].series[&0], memory);
    assert_eq!(read(&tracks[0]), (values.to_vec(), vec![], 0));
    assert_eq!(tracks[1].readings, Readings::Counts);
    assert_eq!(tracks[1].series.len(), 2);
    assert_eq!(tracks[1].series[&0], energy(Scope::Cpu(0)));
    assert_eq!(tracks[1].series[&1], energy(Scope::Machine));
    assert_eq!(read(&tracks[1]), (written, vec![], 0));
}

#[test]
fn every_scope_is_read_back() {
    let scratch = Scratch::new();
    let scopes =
        [Scope::Machine, Scope::Cpu(0), Scope::Node(1), Scope::Device(2), Scope::Process(u32::MAX)];
    let mut writer =
        TracksWriter::create(&Dir::open(scratch.path()).unwrap(), "x", Readings::Counts).unwrap();
    scopes.iter().for_each(|scope| _ = writer.describe(energy(*scope)));
    writer.flush().unwrap();
    let tracks = open(scratch.path());
    for (id, scope) in scopes.iter().enumerate() {
        assert_eq!(tracks[0].series[&(id as u32)].scope, *scope);
    }
}

#[test]
fn a_reading_of_the_other_kind_or_of_no_series_is_refused() {
    let scratch = Scratch::new();
    let mut writer =
        TracksWriter::create(&Dir::open(scratch.path()).unwrap(), "x", Readings::Values).unwrap();
    assert!(writer.push(value(0, 1, 1.0)).is_err());
    let id = writer.describe(energy(Scope::Machine));
    assert!(writer.push(count(id, 1, 1)).is_err());
    writer.push(value(id, 1, 1.0)).unwrap();
    assert!(
        TracksWriter::create(&Dir::open(scratch.path()).unwrap(), "x", Readings::Values).is_err()
    );
}

/// From a stream that was cut, the samples of all complete batches can be read. A cut inside a
/// message is a loss.
#[test]
fn a_stream_cut_anywhere_gives_its_whole_batches() {
    let scratch = Scratch::new();
    let written = small(scratch.path());
    let path = file(scratch.path(), "samples.arrows");
    let whole = fs::read(&path).unwrap();
    let mut seen = Vec::new();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let tracks = open(scratch.path());
        let Some(tracks) = tracks.first() else {
            seen.push((usize::MAX, 0));
            continue;
        };
        let (samples, losses, unknown) = read(tracks);
        assert_eq!(samples, written[..samples.len()], "cut at {length}");
        assert_eq!(unknown, 0);
        seen.push((samples.len(), losses.len()));
    }
    seen.dedup();
    // The results in the order of the truncated file's length. First, the schema is cut. Then, for
    // zero, one and two whole batches, the cut is between two messages or inside a message.
    let none = usize::MAX;
    assert_eq!(seen, [(none, 0), (0, 0), (0, 1), (3, 0), (3, 1), (6, 0), (6, 1)]);
}

#[test]
fn a_sample_whose_series_is_cut_off_is_left_out() {
    let scratch = Scratch::new();
    let written = small(scratch.path());
    let path = file(scratch.path(), "series.arrows");
    let whole = fs::read(&path).unwrap();
    let mut seen = Vec::new();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        let Some(tracks) = open(scratch.path()).pop() else { continue };
        let (samples, _, unknown) = read(&tracks);
        assert_eq!(samples.len() as u64 + unknown, written.len() as u64);
        assert!(samples.iter().all(|s| tracks.series.contains_key(&s.series)));
        seen.push(samples.len());
    }
    seen.dedup();
    assert_eq!(seen, [0, 4, 6]);
}

#[test]
fn other_files_are_not_read_as_streams() {
    let scratch = Scratch::new();
    small(scratch.path());
    let lost = |dir: &Path| {
        let (tracks, losses) = Tracks::open_all(dir).unwrap();
        assert!(tracks.is_empty());
        losses.into_iter().map(|loss| (loss.name, loss.count)).collect::<Vec<_>>()
    };
    let (series, samples) =
        (file(scratch.path(), "series.arrows"), file(scratch.path(), "samples.arrows"));
    fs::copy(&series, &samples).unwrap();
    assert_eq!(lost(scratch.path()), [("torn_track".to_owned(), 1)]);
    fs::write(&samples, "something else that is longer than a header").unwrap();
    assert_eq!(lost(scratch.path()), [("torn_track".to_owned(), 1)]);
    fs::write(&samples, [0; 64]).unwrap();
    assert_eq!(lost(scratch.path()), [("torn_track".to_owned(), 1)]);
    assert_eq!(stream(&samples).unwrap_err().path(), samples);
}

/// Damaged files must cause no panic, and give no more samples than were written and no sample of
/// an unknown series.
#[test]
fn damage_never_panics() {
    let scratch = Scratch::new();
    let written = small(scratch.path());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut below = move |end| random.place(end);
    let files = ["series.arrows", "samples.arrows"].map(|name| file(scratch.path(), name));
    let whole = files.each_ref().map(|path| fs::read(path).unwrap());
    let mut read_back = 0;
    for _ in 0..3_000 {
        for (path, whole) in files.iter().zip(&whole) {
            let mut bytes = whole.clone();
            for _ in 0..below(4) {
                let at = below(bytes.len());
                match below(4) {
                    0 => bytes[at] ^= 1 << below(8),
                    1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][below(5)],
                    2 => {
                        let length = below(24).min(bytes.len() - at);
                        let from = below(bytes.len() - length + 1);
                        bytes.copy_within(from..from + length, at);
                    }
                    _ => bytes.truncate(at.max(1)),
                }
            }
            fs::write(path, bytes).unwrap();
        }
        let (tracks, _) = Tracks::open_all(scratch.path()).unwrap();
        for tracks in tracks {
            let (samples, _, unknown) = read(&tracks);
            assert!(samples.len() as u64 + unknown <= written.len() as u64);
            assert!(samples.iter().all(|s| tracks.series.contains_key(&s.series)));
            read_back += samples.len();
        }
    }
    assert!(read_back > 3_000, "only {read_back} samples were read: the test damages too much");
}

/// Full batches are written automatically, so that memory use stays constant.
#[test]
fn many_samples_are_written_in_batches() {
    let scratch = Scratch::new();
    let mut writer =
        TracksWriter::create(&Dir::open(scratch.path()).unwrap(), "x", Readings::Counts).unwrap();
    let id = writer.describe(energy(Scope::Machine));
    let rows = 3 * BATCH_ROWS as u64 + 1;
    for i in 0..rows {
        writer.push(count(id, i as i64, i)).unwrap();
    }
    let path = scratch.path().join("tracks/x/samples.arrows");
    let (mut reader, mut sizes) = (stream(&path).unwrap().unwrap(), Vec::new());
    while let Some(batch) = reader.next_batch().unwrap() {
        sizes.push(batch.num_rows());
    }
    assert_eq!(sizes, [BATCH_ROWS; 3]);
    assert_eq!(reader.ending(), Ending::Open);
    writer.finish().unwrap();
    let (samples, losses, _) = read(&open(scratch.path())[0]);
    assert!(samples.iter().enumerate().all(|(i, s)| *s == count(id, i as i64, i as u64)));
    assert_eq!((samples.len() as u64, losses.len()), (rows, 0));
}
