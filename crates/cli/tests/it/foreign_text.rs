//! Tests names with characters that control a terminal, or that hide or reorder text. Programs that
//! read JSON or CSV get every byte of the names.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use profile::safe_dir::Dir;
use profile::tracks::{Reading, Readings, Scope, Series, Times};
use profile::{MetricInfo, Sample, TracksWriter};
use record::meta::Role;
use serde_json::Value;
use testkit::{CallScript, ProfileScript, Scratch};

use crate::pty;

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

/// An escape sequence that sets the title, an eight-bit control that clears the screen, characters
/// that reorder or hide text, and a line that looks like one of our messages.
const EVIL: &str = "\x1b]0;title\x07\u{9b}2J\u{202e}txt\u{2067}\u{200b}\u{ad}\x7f\r\
                    \ncounterpoint: hint: forged\n";

/// Returns a hostile text, which a spreadsheet would also evaluate as a formula, because of the
/// `=`.
fn evil(name: &str) -> String {
    format!("={name}{EVIL}")
}

/// Whether a terminal must not receive this character. The ranges come from the Unicode Standard
/// and ECMA-48, because the test must not rely on the program's list.
fn forbidden(c: char) -> bool {
    let n = c as u32;
    (n < 0x20 && c != '\n')
        || (0x7f..0xa0).contains(&n)
        || [0xad, 0x61c, 0xfeff].contains(&n)
        || (0x200b..=0x200f).contains(&n)
        || (0x2028..=0x202e).contains(&n)
        || (0x2060..=0x206f).contains(&n)
}

fn assert_harmless(what: &str, text: &str) {
    let found = text.chars().find(|c| forbidden(*c));
    assert_eq!(found, None, "{what}: {text:?}");
}

fn assert_nothing_forged(what: &str, text: &str) {
    assert_harmless(what, text);
    assert!(
        !text.lines().any(|line| line.starts_with("counterpoint: hint: forged")),
        "{what}: {text}"
    );
}

/// Makes a profile in which names, notes and other texts are hostile.
fn profile(scratch: &Scratch) -> PathBuf {
    let mut script = ProfileScript::monotonic();
    script.counter(&evil("counter"), 0);
    let manifest = &mut script.manifest;
    manifest.host = evil("host");
    manifest.kernel = evil("kernel");
    manifest.cpu_model = evil("cpu");
    manifest.command = vec![evil("program"), evil("argument")];
    manifest.working_directory = evil("directory");
    manifest.program_version = evil("version");
    manifest.environment = Some(evil("environment"));
    manifest.notes = vec![evil("note")];
    manifest.filters = vec![evil("filter")];
    let metric = |name: String| MetricInfo { name, expression: evil("expression") };
    manifest.metrics = vec![metric(evil("metric"))];
    let process = script.process(7);
    process.losses = vec![(model::Loss::CounterOpenFailed, 2, 24)];
    let library = process.library(&evil("library"), &[&evil("op"), &evil("other"), &evil("op")]);
    for (line, export) in (1u32..).zip(&mut library.exports) {
        export.source_path = evil("source");
        export.tag = evil("tag");
        export.source_line = line;
    }
    let machine = process.machine(&evil("machine"));
    let op = process.op(machine, Role::Op, &evil("vm op"), &evil("float32[1]"));
    let thread = process.thread(&evil("thread"));
    for i in 0..20u64 {
        let call = CallScript::new((i % 3) as u32, 1_000 * (i + 1), 100 + i * 7);
        thread.call(call.group(100, &[i * i]));
    }
    thread.call(CallScript::op(op, 25_000, 100).group(100, &[1]));
    process.thread(&evil("thread")).call(CallScript::new(1, 30_000, 50).unread());
    let at = scratch.join(&format!("p{}.cpt", EVIL.replace('/', "")));
    script.write(&at);
    let mut tracks =
        TracksWriter::create(&Dir::open(&at).unwrap(), "evil", Readings::Values).unwrap();
    let series = tracks.describe(Series {
        track: evil("track"),
        name: evil("series"),
        unit: evil("unit"),
        scale: 1.0,
        scope: Scope::Machine,
        times: Times::Monotonic,
        cumulative: false,
        interval_ns: 0,
        source: evil("source"),
    });
    for i in 0..3 {
        let reading = Some(Reading::Value(i as f64));
        tracks.push(Sample { series, time: 1_000 * i, reading }).unwrap();
    }
    tracks.finish().unwrap();
    at
}

/// Writes a table of events, a trace and a file of metrics, all with hostile texts, and returns
/// their paths.
fn files(scratch: &Scratch) -> (PathBuf, PathBuf, PathBuf) {
    let tables = scratch.join("tables");
    fs::create_dir(&tables).unwrap();
    let event = |name: String| {
        serde_json::json!({"EventName": name, "EventCode": "0x01", "UMask": evil("0x1"),
            "BriefDescription": evil("description"), "PublicDescription": evil("public")})
    };
    let events = serde_json::json!([event(evil("zz")), event("zz_plain".to_owned())]);
    fs::write(tables.join("t.json"), events.to_string()).unwrap();
    let trace = scratch.join(&format!("t{EVIL}.json"));
    let slice = |ts: i64| {
        serde_json::json!({"ph": "X", "ts": ts, "dur": 5, "pid": 1, "tid": 2, "name": evil("slice"),
            "cat": evil("category"), "args": {evil("key"): evil("value")}})
    };
    let row = serde_json::json!({"ph": "M", "name": "thread_name", "pid": 1, "tid": 2,
        "args": {"name": evil("row")}});
    // `trace check` must report errors for these two events.
    let end = serde_json::json!({"ph": "E", "ts": 3, "pid": 1, "tid": 9, "name": evil("end")});
    let wrong = serde_json::json!({"ph": evil("Q"), "ts": 3, "pid": 1, "tid": 9});
    let events = serde_json::json!({"traceEvents": [row, slice(1), slice(10), end, wrong],
        "displayTimeUnit": evil("ns")});
    fs::write(&trace, events.to_string()).unwrap();
    let metrics = scratch.join(&format!("m{EVIL}"));
    fs::write(&metrics, evil("metric")).unwrap();
    (tables, trace, metrics)
}

/// Returns command lines, some of which cause errors.
fn commands(scratch: &Scratch) -> Vec<(String, Command)> {
    let profile = profile(scratch);
    let (tables, trace, metrics) = files(scratch);
    let imported = scratch.join(&format!("i{EVIL}.cpt"));
    let made = Command::new(PROGRAM)
        .args(["trace", "import", "-o"])
        .args([&imported, &trace])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let name = |word: &str| evil(word);
    let [profile, imported, trace, tables, metrics] =
        [&profile, &imported, &trace, &tables, &metrics].map(|p| p.to_str().unwrap().to_owned());
    let missing = format!("{}/{}", scratch.path().display(), name("missing"));
    let written = format!("{}/{}", scratch.path().display(), name("written"));
    let again = format!("{}/{}", scratch.path().display(), name("again"));
    let mut all: Vec<Vec<String>> = Vec::new();
    let mut add = |words: &[&str]| all.push(words.iter().map(|w| (*w).to_owned()).collect());
    for profile in [&profile, &imported] {
        for format in ["table", "json", "csv"] {
            for by in ["op", "thread", "cpu", "process"] {
                add(&["report", profile, "--format", format, "--by", by]);
            }
            add(&["ops", profile, "--format", format]);
            add(&["report", profile, "--format", format, "--filter", &name("op*")]);
        }
        for format in ["text", "json", "csv"] {
            add(&["stats", profile, "--format", format, "--buckets", "2"]);
            add(&["stats", profile, "--format", format, "--op", &name("*")]);
        }
        for format in ["csv", "json"] {
            add(&["export", profile, "--format", format]);
            add(&["export", profile, "--format", format, "--what", "tracks"]);
            add(&["export", profile, "--format", format, "-o", &written]);
        }
        add(&["trace", "export", profile, "-o", "-"]);
        add(&["recover", profile]);
    }
    add(&["trace", "check", &trace]);
    add(&["trace", "check", "--format", "json", &trace]);
    add(&["trace", "check", &missing]);
    add(&["trace", "import", "-o", &again, &trace]);
    add(&["trace", "import", "-o", &again, &trace, &trace]);
    add(&["trace", "import", "-o", &again, &missing]);
    add(&["trace", "import", "-o", &again, &metrics]);
    add(&["trace", "merge", "-o", "-", &trace, &trace]);
    add(&["trace", "merge", "-o", &name("x.json"), &trace, &trace]);
    add(&["trace", "merge", "-o", &name("unknown"), &trace, &trace]);
    for format in ["table", "json", "csv"] {
        add(&["list", "zz", "--events-dir", &tables, "--format", format]);
        add(&["list", &name("zz"), "--events-dir", &tables, "--format", format]);
    }
    for format in ["table", "json"] {
        add(&["doctor", "-e", &name("counter"), "--format", format]);
    }
    add(&["report", &missing]);
    add(&["report", &trace]);
    add(&["report", &profile, "--sort", &name("column")]);
    add(&["report", &profile, "--metric", &name("metric")]);
    add(&["report", &profile, "--metric", &name("metric=1")]);
    add(&["report", &profile, "--metrics-file", &metrics]);
    add(&["report", &profile, "--metrics-file", &missing]);
    add(&["ops", &profile, "--vm", &name("vm")]);
    add(&["run", "-o", &again, "--", &name("program")]);
    add(&["run", "-o", &again, "-e", &name("counter"), "--", "true"]);
    add(&["run", "-o", &again, "-e", &name("counter"), "--events-dir", &tables, "--", "true"]);
    add(&["run", "-o", &trace, "--", "true"]);
    add(&["env", "-o", &trace]);
    // Error messages of clap contain the arguments.
    add(&[&name("command")]);
    add(&["report", &format!("--{}", name("option"))]);
    add(&["report", "--by", &name("kind")]);
    add(&["report", "--width", &name("number")]);
    add(&["run", "--passes=3x", "--sample-interval", &name("time"), "--", "true"]);
    all.into_iter()
        .map(|words| {
            let mut command = Command::new(PROGRAM);
            command.args(&words).current_dir(scratch.path()).env("NO_COLOR", "1");
            (words.join(" "), command)
        })
        .collect()
}

#[test]
fn no_hostile_character_reaches_a_terminal() {
    let scratch = Scratch::new();
    for (what, mut command) in commands(&scratch) {
        let (_, text) = pty::shown(&mut command, 120);
        assert_nothing_forged(&what, &text);
        assert!(!text.is_empty() || what.contains("=written"), "{what}");
    }
}

/// Output in a file must be harmless, too: somebody may read it on a terminal later.
#[test]
fn no_hostile_character_is_in_messages_and_tables() {
    let scratch = Scratch::new();
    for (what, mut command) in commands(&scratch) {
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert_nothing_forged(&what, std::str::from_utf8(&output.stderr).unwrap());
        let for_programs =
            what.contains("json") || what.contains("csv") || what.contains("trace export");
        if !for_programs {
            assert_nothing_forged(&what, std::str::from_utf8(&output.stdout).unwrap());
        }
    }
}

/// On a terminal, a report has colours, but only our own ones.
#[test]
fn only_our_own_colours_are_printed() {
    let scratch = Scratch::new();
    let at = profile(&scratch);
    let mut command = Command::new(PROGRAM);
    command.arg("report").arg(&at).env_remove("NO_COLOR");
    let (status, text) = pty::shown(&mut command, 120);
    assert!(status.success());
    let mut plain = text.clone();
    for ours in ["\x1b[1m", "\x1b[0m", "\x1b[31m", "\x1b[33m"] {
        plain = plain.replace(ours, "");
    }
    assert_harmless("report", &plain);
    assert!(text.contains("\x1b[1m") && text.contains("\x1b[33m"), "{text}");
}

fn stdout(at: &Path, words: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(words).arg(at).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn programs_get_every_byte() {
    let scratch = Scratch::new();
    let at = profile(&scratch);
    let json: Value = serde_json::from_str(&stdout(&at, &["report", "--format", "json"])).unwrap();
    let ops = || json["rows"].as_array().unwrap().iter().map(|row| row["op"].as_str().unwrap());
    assert!(ops().any(|op| op == evil("other")), "{json}");
    assert_eq!(json["profile"]["host"], evil("host"));
    let mut command = Command::new(PROGRAM);
    command.args(["report", "--format", "json"]).arg(&at);
    let (_, shown) = pty::shown(&mut command, 120);
    // The terminal shows a message about the profile's metric before the JSON.
    let (_, shown) = shown.split_at(shown.find("{\n").unwrap());
    assert_eq!(serde_json::from_str::<Value>(shown).unwrap(), json);

    // Python's csv module implements RFC 4180 independently of Counterpoint.
    let reader = "import csv, json, sys\n\
                  rows = list(csv.reader(open(sys.argv[1], newline='')))\n\
                  print(json.dumps(rows))";
    for (words, column, value) in [
        (["report", "--format", "csv"].as_slice(), "op", "other"),
        (&["stats", "--format", "csv", "--buckets", "2"], "library", "library"),
        (&["export", "--format", "csv"], "op", "other"),
        (&["export", "--format", "csv", "--what", "tracks"], "track", "track"),
    ] {
        let file = scratch.join("x.csv");
        fs::write(&file, stdout(&at, words)).unwrap();
        let read = Command::new("python3").args(["-c", reader]).arg(&file).output();
        let Ok(read) = read else {
            return crate::support::skip("programs_get_every_byte", "no python3");
        };
        assert!(read.status.success(), "{read:?}");
        let rows: Vec<Vec<String>> = serde_json::from_slice(&read.stdout).unwrap();
        let place = rows[0].iter().position(|name| name == column).unwrap();
        // docs/schema.md describes the apostrophe.
        let texts: Vec<&str> =
            rows.iter().filter_map(|row| row[place].strip_prefix('\'')).collect();
        assert!(texts.contains(&evil(value).as_str()), "{words:?}: {rows:?}");
        for cell in rows.iter().flatten() {
            let formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r']);
            assert!(!formula || cell.parse::<f64>().is_ok(), "{words:?}: {cell:?}");
        }
    }
}
