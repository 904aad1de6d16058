//! Reads a profile as views (commands that show a profile) do, by calling the same libraries. The
//! fuzzer `whole_profile` uses this file, too.

use std::path::Path;

use analysis::{By, OpFilter, OpTable, OpTrees};
use model::activity::Vocabulary;
use profile::launches::Launches;
use profile::{PageDecoder, Profile};
use testkit::Random;
use trace::export::calls::{CallsOptions, export_calls};
use trace::export::facts::{self, Found};
use trace::export::tracks::export_tracks;
use trace::{chrome, perfetto};

/// The options of the views, which are chosen at random for each case. All options in every case
/// would take several times as long and run the same code.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The number of threads that compute, or 0 for one thread per processor. The value 0 is chosen
    /// rarely, because starting threads takes longer than everything else.
    pub workers: usize,
    /// What a row of the summary stands for.
    pub by: By,
    pub vocabulary: Vocabulary,
}

impl Choice {
    pub fn of(r: &mut Random) -> Self {
        Self {
            workers: r.place(16).min(1),
            by: r.of(&[By::Op, By::Thread, By::Cpu, By::Process, By::Kind, By::Device, By::Stream]),
            vocabulary: r.of(&[Vocabulary::Generic, Vocabulary::Kineto]),
        }
    }
}

/// Does what views do, and ignores the results. A damaged profile must not make a view panic.
///
/// `say` is called with the name of each step before the step begins.
pub fn views(dir: &Path, choice: Choice, say: &dyn Fn(&str)) {
    let Choice { workers, by, vocabulary } = choice;
    say("open");
    let Ok(profile) = Profile::open(dir) else { return };
    say("pages");
    let mut decoder = PageDecoder::new(&profile);
    let calls: usize = profile.pages().into_iter().map(|key| decoder.decode(key).len()).sum();
    say("batches");
    let rows: usize = profile.batches(None).flatten().map(|batch| batch.num_rows()).sum();
    assert_eq!(rows, calls, "batches and pages");
    profile.track_batches(None).for_each(drop);
    say("summaries");
    let options = analysis::Options { by, workers, ..Default::default() };
    let summary = analysis::summarize(&profile, &options);
    assert_eq!(summary.rows.iter().map(|row| row.calls + row.inner).sum::<u64>(), calls as u64);
    let _ = analysis::tracks(&profile).map(drop);
    let stats =
        analysis::stats::Options { buckets: 16, tables: true, workers, ..Default::default() };
    let _ = analysis::stats(&profile, &stats).map(drop);
    say("ops");
    let trees = OpTrees::new(&profile, false);
    let _ = OpTable::new(&trees, &OpFilter::default(), true, false);
    timelines(&profile, vocabulary, say);
}

fn timelines(profile: &Profile, vocabulary: Vocabulary, say: &dyn Fn(&str)) {
    say("timeline in Chrome's format");
    let options = CallsOptions { vocabulary, counter_tracks: true, arguments: true };
    let facts = facts::of_profile(profile, &profile.manifest, &Found::default());
    let head = chrome::write::ChromeHead {
        near_ns: 0,
        host_name: &profile.manifest.host,
        devices: &[],
        rank: None,
        facts: Some(&facts),
    };
    let mut json = chrome::write::Writer::new(std::io::sink(), &head).unwrap();
    let done = export_calls(profile, &options, &Launches::default(), &mut json);
    let done = done.and_then(|c| Ok((c, export_tracks(profile, vocabulary, &mut json)?)));
    if let Ok((calls, tracks)) = done {
        let end = facts::losses(profile, &Found { calls, tracks });
        let _ = json.finish("counterpoint_end", &end, "x").map(drop);
    }
    say("timeline in Perfetto's format");
    let clocks = profile.snapshots.iter().map(|s| (s.realtime_ns, s.monotonic_ns)).collect();
    let head = perfetto::write::PerfettoHead { clocks, compress: false };
    let mut binary = perfetto::write::Writer::new(std::io::sink(), &head).unwrap();
    let done = export_calls(profile, &options, &Launches::default(), &mut binary);
    if done.is_ok() && export_tracks(profile, vocabulary, &mut binary).is_ok() {
        let _ = binary.finish([("counterpoint", &serde_json::Value::Null)]).map(drop);
    }
    say("activities");
    let Ok(traces) = profile.activities() else { return };
    let names: Vec<String> = traces.iter().map(|trace| trace.name.clone()).collect();
    let options =
        trace::export::activities::Options { vocabulary: Some(vocabulary), ..Default::default() };
    for trace in &traces {
        let _ = trace::export::activities::write_again(trace, &options, std::io::sink()).map(drop);
    }
    say("activities of all traces");
    let sink = std::io::sink;
    let _ =
        trace::export::activities::write_merged(&traces, &names, &options, sink(), "x").map(drop);
    let _ = trace::export::activities::write_perfetto(&traces, &names, &options, sink(), false)
        .map(drop);
}
