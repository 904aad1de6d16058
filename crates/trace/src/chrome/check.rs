//! Checks that a file is a trace according to Chrome's format and Kineto's schema.

use std::collections::{HashMap, HashSet};
use std::io::Read;

use super::event::{Event, Raw, Scalar, args};
use super::read::{EventSink, ReadError, read};
use crate::check::Report;

/// Reads the whole file and returns the findings about it. The memory that this needs grows with
/// the number of rows (threads), flows (arrows) and slices that have not ended yet.
///
/// # Errors
/// Fails at a problem after which reading cannot continue; the findings up to that place are
/// returned, too. A truncated document is not an error, but a finding.
pub fn check(source: impl Read) -> Result<Report, (Report, ReadError)> {
    let mut check = Check::default();
    match read(source, &mut check) {
        Ok(summary) => {
            let mut report = check.finish();
            if summary.truncated {
                report.find(summary.bytes, "truncated", "the document ends here, in the middle");
            }
            if let Some(at) = summary.rest {
                let what = "something follows the end of the document, which most readers reject";
                report.find(at, "something after the end", what);
            }
            if summary.mended > 0 {
                *report.counts.entry("not UTF-8, or control characters in strings").or_insert(0) +=
                    summary.mended;
            }
            Ok(report)
        }
        Err(error) => Err((check.finish(), error)),
    }
}

/// The process and the thread of a row, in a form that distinguishes texts from numbers.
type RowKey = (String, String);

#[derive(Default)]
struct Check {
    report: Report,
    /// For each row, the places of the begin events (`B`) whose end events (`E`) were not read yet.
    open: HashMap<RowKey, Vec<u64>>,
    /// For each flow (an arrow between two slices), by category and id: the place of the end that
    /// was read first, and which of its two ends were read.
    arrows: HashMap<(String, String), (u64, u8)>,
    keys: HashSet<String>,
}

const STARTED: u8 = 1;
const FINISHED: u8 = 2;

fn show(id: &Option<Scalar<'_>>) -> String {
    match id {
        // The quotes distinguish the text `"1"` from the number 1, which is a different id.
        Some(Scalar::Text(text)) => format!("{text:?}"),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}

impl Check {
    fn finish(mut self) -> Report {
        // A report keeps only the first findings of each kind, so they are reported in the order of
        // the file.
        let mut open: Vec<u64> = self.open.values().flatten().copied().collect();
        open.sort_unstable();
        for at in open {
            self.report.find(at, "begin without an end", "a begin (B) whose end (E) is missing");
        }
        let mut arrows: Vec<_> = self.arrows.iter().collect();
        arrows.sort_unstable_by_key(|(name, (at, _))| (*at, *name));
        for ((_, id), (at, ends)) in arrows {
            match *ends {
                STARTED => {
                    let what = format!("flow {id} starts and never finishes");
                    self.report.find(*at, "flow without a finish", what);
                }
                FINISHED => {
                    let what = format!("flow {id} finishes and never started");
                    self.report.find(*at, "flow without a start", what);
                }
                _ => {}
            }
        }
        self.report.findings.sort_by_key(|finding| finding.at);
        self.report
    }

    fn need(&mut self, at: u64, phase: u8, present: bool, key: &'static str) {
        if !present {
            let what = format!("an event of phase {} has no {key}", phase as char);
            self.report.find(at, "a key is missing", what);
        }
    }

    /// Reports values that could not be read, and repeated keys.
    fn values(&mut self, at: u64, event: &Event<'_>) {
        let times = [
            ("ts", event.time_ns, event.exact_time),
            ("dur", event.duration_ns, event.exact_duration),
        ];
        let mut known = 0;
        for (key, ns, exact) in times {
            if let (None, Some(text)) = (ns, exact) {
                known += 1;
                let what = format!("{key} is not a time in microseconds: {:.40}", text.get());
                self.report.find(at, "a value that cannot be read", what);
            }
        }
        if event.lost > known {
            let what = "a value that is not JSON (NaN, Infinity), or does not fit its key";
            self.report.find(at, "a value that cannot be read", what);
        }
        let twice = |key: &str| format!("the key {key:?} occurs more than once");
        if let Some(key) = event.twice {
            self.report.find(at, "a key more than once", twice(key));
        }
        let Some(raw) = event.args else { return };
        let (mut keys, mut again) = (HashSet::<String>::new(), None);
        args(raw, |key, _| {
            if !keys.insert(key.to_owned()) && again.is_none() {
                again = Some(format!("{} in args", twice(key)));
            }
        });
        if let Some(what) = again {
            self.report.find(at, "a key more than once", what);
        }
    }

    fn counter(&mut self, at: u64, event: &Event<'_>) {
        let Some(raw) = event.args else {
            self.report.find(at, "a key is missing", "an event of phase C without args");
            return;
        };
        let mut bad = None;
        args(raw, |key, value| {
            let text = value.get();
            let number = text.trim_matches('"').parse::<f64>().is_ok() || text == "null";
            if !number && bad.is_none() {
                bad = Some(format!("series {key:?} is no number: {text}"));
            }
        });
        if let Some(what) = bad {
            self.report.find(at, "a counter that is no number", what);
        }
    }

    fn arrow(&mut self, at: u64, event: &Event<'_>, end: u8) {
        let id = show(&event.id);
        self.need(at, event.phase, !id.is_empty(), "id");
        let category = event.category.as_deref().unwrap_or_default().to_owned();
        let known = self.arrows.entry((category, id)).or_insert((at, 0));
        known.1 |= end;
    }
}

impl EventSink for Check {
    fn event(&mut self, at: u64, event: &Event<'_>) -> Result<(), String> {
        let phase = event.phase;
        let row = || (show(&event.pid), show(&event.tid));
        if !matches!(phase, b'M' | 0) {
            let there = event.time_ns.is_some() || event.exact_time.is_some() || event.lost > 0;
            self.need(at, phase, there, "ts");
        }
        self.values(at, event);
        if event.pid.is_none() && phase != 0 && event.lost == 0 {
            self.need(at, phase, false, "pid");
        }
        match phase {
            b'X' => {
                self.report.count("slices");
                self.need(at, phase, event.name.is_some() || event.lost > 0, "name");
                let there = event.duration_ns.is_some() || event.lost > 0;
                self.need(at, phase, there, "dur");
                if let Some(ns) = event.duration_ns.filter(|ns| *ns < 0) {
                    let what = format!("a slice of {ns} ns");
                    self.report.find(at, "a negative duration", what);
                }
            }
            b'B' => {
                self.report.count("slices");
                self.open.entry(row()).or_default().push(at);
            }
            b'E' => {
                if self.open.get_mut(&row()).and_then(Vec::pop).is_none() {
                    let what = "an end (E) without a begin (B) before it in its row";
                    self.report.find(at, "end without a begin", what);
                }
            }
            b'C' => {
                self.report.count("counter samples");
                self.need(at, phase, event.name.is_some(), "name");
                self.counter(at, event);
            }
            b'i' | b'I' | b'R' => self.report.count("instants"),
            b's' => {
                self.report.count("flows");
                self.arrow(at, event, STARTED);
            }
            b't' => self.arrow(at, event, STARTED | FINISHED),
            b'f' => self.arrow(at, event, FINISHED),
            b'M' => {
                self.report.count("names of rows");
                self.need(at, phase, event.name.is_some(), "name");
            }
            0 => self.report.find(at, "a key is missing", "an event without ph"),
            // These events of Chrome are not checked further: asynchronous events, events of
            // objects, memory and contexts, samples, and synchronization of clocks.
            b'b' | b'e' | b'n' | b'S' | b'T' | b'F' | b'p' | b'N' | b'O' | b'D' | b'V' | b'v'
            | b'c' | b'P' | b'(' | b')' => self.report.count("other events"),
            other => {
                let what = format!("phase {:?} is none of the format's", other as char);
                self.report.find(at, "an unknown phase", what);
            }
        }
        Ok(())
    }

    fn key(&mut self, at: u64, key: &str) {
        if !self.keys.insert(key.to_owned()) {
            let what = format!("the key {key:?} of the document stands there more than once");
            self.report.find(at, "a key more than once", what);
        }
    }

    fn damaged(&mut self, error: &ReadError) {
        let text = error.to_string();
        let what = text.split_once(": ").map_or(text.as_str(), |(_, what)| what);
        self.report.find(error.at, "a damaged event", what);
    }

    fn top(&mut self, at: u64, key: &str, value: Raw<'_>) -> Result<(), String> {
        let text = value.get();
        match key {
            "baseTimeNanoseconds" if text.trim_matches('"').parse::<i64>().is_err() => {
                let what = format!("baseTimeNanoseconds is not a whole number: {text}");
                self.report.find(at, "a bad key of the document", what);
            }
            "displayTimeUnit" if !matches!(text, "\"ms\"" | "\"ns\"") => {
                let what = format!("displayTimeUnit is neither ms nor ns: {text}");
                self.report.find(at, "a bad key of the document", what);
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<(u64, String)> {
        let report = check(text.as_bytes()).expect("the document can be read");
        report.findings.into_iter().map(|f| (f.at, f.what)).collect()
    }

    #[test]
    fn a_correct_document_has_no_findings() {
        let text = r#"{"displayTimeUnit":"ms","baseTimeNanoseconds":"12","traceEvents":[
            {"ph":"X","name":"a","pid":"Spans","tid":1,"ts":1.5,"dur":0},
            {"ph":"B","name":"b","pid":1,"tid":1,"ts":2},
            {"ph":"E","pid":1,"tid":1,"ts":3},
            {"ph":"f","id":7,"cat":"ac2g","pid":1,"tid":1,"ts":3,"bp":"e"},
            {"ph":"s","id":7,"cat":"ac2g","pid":1,"tid":1,"ts":2},
            {"ph":"C","name":"c","pid":1,"ts":4,"args":{"x":1.5,"y":null}},
            {"ph":"M","name":"process_name","pid":1,"args":{"name":"p"}}]}"#;
        let report = check(text.as_bytes()).expect("the document can be read");
        assert_eq!(report.findings, []);
        let contents: Vec<_> = report.contents.into_iter().collect();
        assert_eq!(
            contents,
            [("counter samples", 1), ("flows", 1), ("names of rows", 1), ("slices", 2)]
        );
    }

    #[test]
    fn each_fault_is_found_at_its_byte() {
        let fault = |event: &str| {
            let text = format!("[ {event}]");
            let found = findings(&text);
            assert!(found.iter().all(|(at, _)| *at == 2), "{found:?}");
            found.into_iter().map(|(_, what)| what).collect::<Vec<_>>().join("; ")
        };
        for (event, expected) in [
            (r#"{"name":"x"}"#, "an event without ph"),
            (
                r#"{"ph":"X","pid":1}"#,
                "an event of phase X has no ts; an event of phase X has no name; \
                 an event of phase X has no dur",
            ),
            (r#"{"ph":"X","pid":1,"name":"x","ts":1,"dur":-1}"#, "a slice of -1000 ns"),
            (
                r#"{"ph":"E","pid":1,"tid":1,"ts":1}"#,
                "an end (E) without a begin (B) before it in its row",
            ),
            (r#"{"ph":"B","pid":1,"ts":1}"#, "a begin (B) whose end (E) is missing"),
            (r#"{"ph":"s","id":5,"pid":1,"ts":1}"#, "flow 5 starts and never finishes"),
            (r#"{"ph":"f","id":"5","pid":1,"ts":1}"#, "flow \"5\" finishes and never started"),
            (
                r#"{"ph":"C","name":"c","pid":1,"ts":1,"args":{"a":1,"b":[2]}}"#,
                "series \"b\" is no number: [2]",
            ),
            (r#"{"ph":"q","pid":1,"ts":1}"#, "phase 'q' is none of the format's"),
        ] {
            assert_eq!(fault(event), expected, "{event}");
        }
    }

    #[test]
    fn many_of_a_kind_are_counted() {
        let events = vec!["{\"ph\":\"E\",\"pid\":1,\"tid\":1,\"ts\":1}"; 25].join(",");
        let report = check(format!("[{events}]").as_bytes()).expect("the document can be read");
        assert_eq!((report.findings.len(), report.wrong()), (crate::check::KEPT, 25));
    }

    #[test]
    fn damage_is_reported_with_its_byte() {
        let (report, error) = check(&br#"[{"ph":"E","pid":1,"ts":1} {"ph":"M"}]"#[..]).unwrap_err();
        assert_eq!(report.wrong(), 1);
        assert_eq!(error.at, 27, "{error}");
        let report = check(&br#"[{"ph" 5},{"ph":"E","pid":1,"ts":1},{"ph":tru}]"#[..])
            .expect("the document can be read");
        let places: Vec<u64> = report.findings.iter().map(|f| f.at).collect();
        assert_eq!(places, [7, 10, 36, 36], "{:?}", report.findings);
        let report = check(&br#"{"traceEvents":[{"ph":"M","#[..]).expect("readable");
        assert_eq!(report.findings[0].at, 16, "{:?}", report.findings);
    }
}
