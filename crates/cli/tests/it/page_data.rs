//! Tests that the numbers in a page of `report --html` equal the numbers that `report` prints, to
//! the last digit.

use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use profile::safe_dir::Dir as Root;
use profile::tracks::{Reading, Readings, Scope, Series, Times};
use profile::{Sample, TracksWriter};
use serde_json::Value;
use testkit::{Golden, ProfileScript, Scratch};

use crate::kept::{copy, kept};

struct Page {
    text: String,
    head: Value,
    timeline: Vec<u8>,
}

pub fn block(page: &str, id: &str) -> Vec<u8> {
    let begin = format!("id=\"{id}\">");
    let rest = &page[page.find(&begin).unwrap() + begin.len()..];
    let packed = STANDARD.decode(&rest[..rest.find('<').unwrap()]).unwrap();
    let mut bytes = Vec::new();
    GzDecoder::new(packed.as_slice()).read_to_end(&mut bytes).unwrap();
    bytes
}

fn page(golden: &Golden, dir: &Path, file: &Path) -> Page {
    let [dir, to] = [dir, file].map(|path| path.to_str().unwrap());
    let made = golden.run(&["report", dir, "--html", to]);
    assert_eq!((made.code, made.stdout.as_str()), (Some(0), ""), "{}", made.stderr);
    let text = std::fs::read_to_string(file).unwrap();
    let head = serde_json::from_slice(&block(&text, "head")).unwrap();
    let timeline = block(&text, "timeline");
    Page { text, head, timeline }
}

fn setup() -> (Scratch, Golden) {
    let scratch = Scratch::new();
    copy(&kept().join("v1"), &scratch.join("v1.cpt"));
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/kept");
    (scratch, Golden::new(env!("CARGO_BIN_EXE_counterpoint"), golden))
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_page_has_the_cells_of_the_report() {
    let (scratch, golden) = setup();
    let dir = scratch.join("v1.cpt");
    let page = page(&golden, &dir, &scratch.join("v1.html"));
    let tables = page.head["tables"].as_array().unwrap();
    assert!(tables.len() >= 2, "{tables:#?}");
    for (id, arguments) in [("op", vec![]), ("thread", vec!["--by", "thread"])] {
        let table = tables.iter().find(|table| table["id"] == id).unwrap();
        let report = [&["report", dir.to_str().unwrap(), "--top", "0"], arguments.as_slice()];
        let report = golden.run(&report.concat());
        let printed: Vec<Vec<String>> = report.stdout.lines().map(words).collect();
        let rows = table["rows"].as_array().unwrap();
        assert!(!rows.is_empty());
        let columns = table["columns"].as_array().unwrap();
        let title = |i: usize| columns[i]["title"].as_str().unwrap();
        // The report leaves out columns without information, so only columns in its header line are
        // compared.
        let head = printed.iter().find(|line| line.first().map(String::as_str) == Some(title(0)));
        let head = head.unwrap_or_else(|| panic!("{}", report.stdout));
        let mut found = 0;
        for row in rows {
            let cells = row.as_array().unwrap().iter().enumerate().skip(1);
            let shown = cells.filter(|(i, _)| {
                !words(title(*i)).is_empty()
                    && words(title(*i)).iter().all(|word| head.contains(word))
            });
            let expected: Vec<String> = shown
                .flat_map(|(_, cell)| match cell {
                    Value::Null => vec!["–".to_owned()],
                    Value::Array(both) => words(both[0].as_str().unwrap()),
                    text => words(text.as_str().unwrap()),
                })
                .collect();
            let has = |line: &Vec<String>| {
                line.len() > expected.len() && line.ends_with(&expected)
                    || line.windows(expected.len()).any(|part| part == expected.as_slice())
            };
            assert!(printed.iter().any(has), "{expected:?} is not in\n{}", report.stdout);
            found += expected.len();
        }
        assert!(found > rows.len() * 3, "{found}");
    }
    let sentences = page.head["sentences"].as_array().unwrap();
    let report = golden.run(&["report", dir.to_str().unwrap()]);
    assert!(report.stdout.starts_with(sentences[0].as_str().unwrap()), "{}", report.stdout);
    let losses: Vec<&str> =
        page.head["losses"].as_array().unwrap().iter().map(|l| l[0].as_str().unwrap()).collect();
    for name in ["counter_open_failed", "torn_page", "call_cut_short"] {
        assert!(losses.contains(&name), "{losses:?}");
    }
}

/// Each lane (row of the timeline) has a part of the page's data block `timeline`. The last part
/// ends where the block ends.
#[test]
fn the_timeline_has_all_calls() {
    let (scratch, golden) = setup();
    let dir = scratch.join("v1.cpt");
    let page = page(&golden, &dir, &scratch.join("v1.html"));
    let csv = golden.run(&["export", dir.to_str().unwrap(), "--format", "csv"]);
    let calls = csv.stdout.lines().count() - 1;
    let timeline = &page.head["timeline"];
    let lanes = timeline["lanes"].as_array().unwrap();
    let number = |lane: &Value, key: &str| lane[key].as_u64().unwrap() as usize;
    let tables = page.head["tables"].as_array().unwrap();
    let threads = tables.iter().find(|table| table["id"] == "thread").unwrap();
    let names: Vec<&Value> =
        threads["rows"].as_array().unwrap().iter().map(|row| &row[0]).collect();
    let of_threads = lanes.iter().filter(|lane| names.contains(&&lane["label"]));
    assert_eq!(of_threads.map(|lane| number(lane, "calls")).sum::<usize>(), calls);
    let end = lanes.iter().map(|lane| number(lane, "offset") + number(lane, "bytes")).max();
    assert_eq!(end, Some(page.timeline.len()));
    for op in page.head["ops"].as_array().unwrap() {
        let counts = op["times"]["counts"].as_array().unwrap();
        let all: u64 = counts.iter().map(|count| count.as_u64().unwrap()).sum();
        let facts = op["facts"].as_array().unwrap();
        let calls = facts.iter().find(|fact| fact[0] == "calls").unwrap();
        assert_eq!(calls[1].as_str().unwrap().replace(',', ""), all.to_string(), "{op}");
    }
}

#[test]
fn time_series_alone_have_a_timeline() {
    let (scratch, golden) = setup();
    let dir = scratch.join("tracks.cpt");
    ProfileScript::monotonic().write(&dir);
    let mut writer =
        TracksWriter::create(&Root::open(&dir).unwrap(), "trace", Readings::Values).unwrap();
    let series = writer.describe(Series {
        track: "GPU memory".to_owned(),
        name: String::new(),
        unit: "bytes".to_owned(),
        scale: 1.0,
        scope: Scope::Device(0),
        times: Times::Monotonic,
        cumulative: false,
        interval_ns: 0,
        source: "paper".to_owned(),
    });
    for (time, value) in [(0, 1e9), (300, 3e9)] {
        writer.push(Sample { series, time, reading: Some(Reading::Value(value)) }).unwrap();
    }
    writer.finish().unwrap();
    let page = page(&golden, &dir, &scratch.join("tracks.html"));
    let timeline = &page.head["timeline"];
    assert_eq!(timeline["lanes"], serde_json::json!([]), "{}", page.head);
    let series = timeline["series"].as_array().unwrap();
    assert_eq!(series.len(), 1, "{series:?}");
    assert!(series[0]["label"].as_str().unwrap().contains("GPU memory"), "{series:?}");
    assert_eq!(series[0]["values"], serde_json::json!([1e9, 3e9]));
}

/// The page has the correlations that `stats` prints. In its timeline, each counter of a thread
/// names the lane (row) to which it belongs.
#[test]
fn counters_are_those_of_stats() {
    let (scratch, golden) = setup();
    let dir = scratch.join("v1.cpt");
    let page = page(&golden, &dir, &scratch.join("v1.html"));
    let stats = golden.run(&["stats", dir.to_str().unwrap(), "--top", "0", "--no-table"]);
    let mut found = 0;
    for op in page.head["ops"].as_array().unwrap() {
        for joint in op["joints"].as_array().unwrap() {
            let (text, counter) =
                (joint["text"].as_str().unwrap(), joint["counter"].as_str().unwrap());
            let Some(rest) = text.strip_prefix("correlation ") else { continue };
            let (coefficients, calls) = rest.split_once(", over ").unwrap();
            let line = format!("correlation of duration vs. {counter}: {coefficients}");
            assert!(stats.stdout.contains(&line), "{line}\n{}", stats.stdout);
            let rows = op["goesWith"]["rows"].as_array().unwrap();
            let row = rows.iter().find(|row| row[0] == *counter).unwrap();
            let [spearman, pearson] = [1, 2].map(|i| row[i][0].as_str().unwrap_or("–"));
            assert_eq!(coefficients, format!("{pearson} (Pearson), {spearman} (Spearman)"));
            assert_eq!(calls.split(' ').next(), row[3][0].as_str(), "{op}");
            found += 1;
        }
    }
    assert!(found > 0, "{}", page.head["ops"]);
    let series = page.head["timeline"]["series"].as_array().unwrap();
    let lanes = page.head["timeline"]["lanes"].as_array().unwrap();
    let of_threads: Vec<&Value> = series.iter().filter(|one| one["lane"] != -1).collect();
    assert!(!of_threads.is_empty(), "{series:?}");
    for one in of_threads {
        assert!(lanes.get(one["lane"].as_u64().unwrap() as usize).is_some(), "{one}");
        let length = |key: &str| one[key].as_array().unwrap().len();
        assert!(length("at") == length("values") && length("at") > 1, "{one}");
    }
}

#[test]
fn the_page_needs_nothing_else() {
    let (scratch, golden) = setup();
    let page = page(&golden, &scratch.join("v1.cpt"), &scratch.join("v1.html"));
    for forbidden in ["<link", "<img", "<iframe", "src=", "http-equiv=\"refresh\"", "@import"] {
        assert!(!page.text.contains(forbidden), "{forbidden}");
    }
    assert!(page.text.contains("default-src 'none'"));
}

#[test]
fn the_page_takes_no_options_of_the_text() {
    let (scratch, golden) = setup();
    let dir = scratch.join("v1.cpt");
    let dir = dir.to_str().unwrap();
    let run = golden.run(&["report", dir, "--html", "x.html", "--sort", "calls"]);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    let run = golden.run(&["report", dir, "--html", "/nowhere/x.html"]);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("/nowhere/x.html"), "{}", run.stderr);
}

#[test]
fn an_imported_trace_is_shown_once() {
    let scratch = Scratch::new();
    let [trace, profile] = ["x.json", "x.cpt"].map(|name| scratch.join(name));
    let slice = |name: &str, at: f64, dur: f64| serde_json::json!({"ph": "X", "cat": "cpu_op", "name": name, "pid": 7, "tid": 8, "ts": at, "dur": dur});
    let slices = [
        slice("outer", 5_000.0, 100.0),
        slice("inner", 5_010.25, 10.0),
        slice("outer", 5_200.0, 90.5),
    ];
    let document = serde_json::json!({"baseTimeNanoseconds": 1_759_300_074_000_000_000i64, "traceEvents": slices});
    std::fs::write(&trace, document.to_string()).unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/kept");
    let golden = Golden::new(env!("CARGO_BIN_EXE_counterpoint"), golden);
    let [from, to] = [&trace, &profile].map(|path| path.to_str().unwrap());
    let imported = golden.run(&["trace", "import", from, "-o", to]);
    assert_eq!(imported.code, Some(0), "{}", imported.stderr);
    let timeline = page(&golden, &profile, &scratch.join("x.html")).head["timeline"].clone();
    assert_eq!(timeline["begin"], "1759300074005000000");
    assert_eq!(timeline["base"], "1759300074000000000");
    assert_eq!(timeline["span"], 290_500);
    let lanes = timeline["lanes"].as_array().unwrap();
    assert_eq!(lanes.len(), 1, "{lanes:?}");
    assert_eq!((&lanes[0]["calls"], &lanes[0]["depth"]), (&3.into(), &2.into()));
    assert_eq!((&lanes[0]["pid"], &lanes[0]["tid"]), (&"7".into(), &"8".into()));
}
