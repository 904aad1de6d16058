//! Tests that a time in an exported trace leads to the same moment in the page of `report --html`.

use std::path::Path;
use std::process::{Command, Output};

use profile::Role;
use serde_json::{Value, json};
use testkit::{Browser, CallScript, ProfileScript, Scratch};

use crate::page::{make, open, ready};
use crate::page_data::block;
use crate::support::trace_processor::TraceProcessor;

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

fn run(words: &[&str], paths: &[&Path]) -> Output {
    Command::new(PROGRAM).args(words).args(paths).output().unwrap()
}

fn done(words: &[&str], paths: &[&Path]) {
    let out = run(words, paths);
    assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// Writes a profile with two threads. On *main*, each call of `linear` contains two calls of
/// `addmm`. The first one begins at the same moment as the call of `linear`. Meanwhile, `copy_`
/// runs on *helper*.
fn nested(path: &Path) {
    let mut script = ProfileScript::monotonic();
    script.counter("page-faults", 0);
    let process = script.process(4711);
    let machine = process.machine("torch");
    let op = |process: &mut testkit::ProcessScript, name| process.op(machine, Role::Op, name, "");
    let [linear, addmm, copy] =
        ["aten::linear", "aten::addmm", "aten::copy_"].map(|name| op(process, name));
    let main = process.thread("main");
    for n in 0..40 {
        let at = 5_000 + n * 10_000;
        main.call(CallScript::op(addmm, at, 1_000).group(50, &[n]));
        main.call(CallScript::op(addmm, at + 2_003, 500 + n).group(50, &[3]));
        main.call(CallScript::op(linear, at, 5_000).group(50, &[5]));
    }
    let helper = process.thread("helper");
    for n in 0..40 {
        helper.call(CallScript::op(copy, 5_500 + n * 10_000, 3_000).group(50, &[1]));
    }
    script.write(path);
}

/// Perfetto shows these values of a slice: time, duration, name, depth, thread, process.
type Seen = (i64, i64, String, i64, i64, i64);

const SLICES: &str = "select s.ts, s.dur, s.name, s.depth, t.tid, p.pid from slice s \
    join thread_track tt on tt.id = s.track_id join thread t using (utid) \
    join process p using (upid) order by s.ts, s.depth";

/// Returns the slices that Perfetto shows, and the time that it shows as zero.
fn shown(oracle: &mut TraceProcessor, file: &Path) -> (Vec<Seen>, i64) {
    assert_eq!(oracle.faults(file), Vec::<Vec<Value>>::new());
    let start = oracle.query("select start_ts from trace_bounds")[0][0].as_i64().unwrap();
    let slices = oracle.query(SLICES).into_iter().map(|row| {
        let int = |at: usize| row[at].as_i64().unwrap();
        (int(0), int(1), row[2].as_str().unwrap().to_owned(), int(3), int(4), int(5))
    });
    (slices.collect(), start)
}

/// Opens a link in the page, and returns the page's text about the call to which the link leads.
fn follow(browser: &mut Browser, fragment: &str) -> String {
    browser.eval("location.hash = '#recording'");
    browser.wait_for("document.body.dataset.view === 'recording'");
    browser.eval(&format!("location.hash = {}", json!(fragment)));
    browser.wait_for("document.body.dataset.view === 'timeline'");
    ready(browser);
    browser.eval("document.querySelector('.call-line').textContent").as_str().unwrap().to_owned()
}

/// `1234567` becomes `1,234,567`.
fn grouped(n: i64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[test]
fn a_trace_and_the_page_lead_to_each_other() {
    let Some(mut oracle) = TraceProcessor::start("page_moments") else { return };
    let Some(mut browser) = Browser::start() else { return };
    let scratch = Scratch::new();
    let [profile, page] = ["x.cpt", "x.html"].map(|name| scratch.join(name));
    nested(&profile);
    done(&["report", "--html", page.to_str().unwrap()], &[&profile]);
    let text = std::fs::read_to_string(&page).unwrap();
    let head: Value = serde_json::from_slice(&block(&text, "head")).unwrap();
    let begin: i64 = head["timeline"]["begin"].as_str().unwrap().parse().unwrap();
    browser.open(&page, "");
    ready(&mut browser);
    let [whole, cut, json] = ["x.pftrace", "cut.pftrace", "x.json"].map(|name| scratch.join(name));
    done(&["trace", "export", "-o", whole.to_str().unwrap()], &[&profile]);
    done(&["trace", "export", "-o", json.to_str().unwrap()], &[&profile]);
    let (from, to) = ("--from=103us", "--to=220us");
    done(&["trace", "export", from, to, "-o", cut.to_str().unwrap()], &[&profile]);
    for (file, base) in [(&whole, 0), (&json, 0), (&cut, 0)] {
        let of_json = std::fs::read(file).unwrap().starts_with(b"{");
        let base: i64 = if of_json {
            head["timeline"]["base"].as_str().unwrap().parse().unwrap()
        } else {
            base
        };
        let (slices, start) = shown(&mut oracle, file);
        assert!(slices.len() >= 40, "{}", slices.len());
        let is_whole = file != &cut;
        assert_eq!(slices.len() == 160, is_whole);
        for (ts, dur, name, depth, tid, pid) in slices.iter().step_by(7) {
            let link = format!("#timeline?time={ts}&tid={tid}&pid={pid}&level={}", depth + 1);
            let said = follow(&mut browser, &link);
            // Times in Chrome's JSON are doubles, which can be wrong by 1 ns.
            let exact = |by: i64| {
                let at = ts + base - begin + by;
                said.starts_with(&format!("{name} "))
                    && said.contains(&format!("from {} ns to", grouped(at)))
            };
            assert!(exact(0) || of_json && (exact(1) || exact(-1)), "{link} of {dur}: {said}");
            if is_whole {
                assert!(
                    (ts - start - (ts + base - begin)).abs() <= i64::from(of_json),
                    "{start} {begin} {base}"
                );
                let shown = browser.eval("document.querySelector('.elsewhere code').textContent");
                let at = ts + base - begin;
                let clock = |ns: i64| json!(format!("00:00:00.{ns:09}"));
                assert!(
                    shown == clock(at)
                        || of_json && [clock(at - 1), clock(at + 1)].contains(&shown),
                    "{shown}"
                );
            }
        }
    }
    // The trace of a part of the recording begins later than the timeline in the page. The trace's
    // metadata contain the beginning of a link into the page. The rest of the link is a time as
    // Perfetto shows it.
    let (slices, start) = shown(&mut oracle, &cut);
    let facts = oracle.query("select str_value from metadata where name = 'cr-counterpoint'");
    let facts: Value = serde_json::from_str(facts[0][0].as_str().unwrap()).unwrap();
    assert_eq!(facts["page"]["first_ns"], start);
    let (ts, _, name, ..) = slices.iter().rev().find(|slice| slice.2 == "aten::copy_").unwrap();
    let ns = ts - start;
    let link = format!("{}00:00:00.{ns:09}", facts["page"]["fragment"].as_str().unwrap());
    let said = follow(&mut browser, &link);
    assert!(
        said.starts_with(name) && said.contains(&format!("from {} ns to", grouped(ts - begin))),
        "{link}: {said}"
    );
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

/// The page links to Perfetto if it was made with the address of a trace.
#[test]
fn a_page_with_a_trace_opens_it_at_the_call() {
    let Some(mut browser) = Browser::start() else { return };
    let scratch = Scratch::new();
    let [profile, page] = ["x.cpt", "x.html"].map(|name| scratch.join(name));
    nested(&profile);
    let to = page.to_str().unwrap();
    let out = run(&["report", "--html", to, "--trace", "x.bin"], &[&profile]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && said.contains("--trace x.bin: unknown ending"), "{said}");
    let rows = "[...document.querySelectorAll('.elsewhere dt')].map((row) => row.textContent)";
    let address = "https://example.org/a b/x.pftrace?v=1";
    done(&["report", "--html", to, "--trace", address], &[&profile]);
    let text = std::fs::read_to_string(&page).unwrap();
    let head: Value = serde_json::from_slice(&block(&text, "head")).unwrap();
    let begin: i64 = head["timeline"]["begin"].as_str().unwrap().parse().unwrap();
    browser.open(&page, "#timeline?time=2.1us");
    ready(&mut browser);
    assert_eq!(
        browser.eval(rows),
        json!(["Perfetto shows", "ts in a .pftrace", "link to this call"])
    );
    let query = |key: &str| {
        format!(
            "new URL(document.querySelector('.elsewhere p a').href.replace('#!', '')).searchParams.get('{key}')"
        )
    };
    for (key, value) in [
        ("url", address.to_owned()),
        ("ts", (begin + 2_003).to_string()),
        ("dur", "500".to_owned()),
        ("pid", "4711".to_owned()),
        ("visStart", (begin + 2_003 - 5_000).to_string()),
    ] {
        assert_eq!(browser.eval(&query(key)), json!(value), "{key}");
    }
    let href = browser.eval("document.querySelector('.elsewhere p a').href");
    assert!(href.as_str().unwrap().starts_with("https://ui.perfetto.dev/#!/?"), "{href}");
    // A link cannot make Perfetto's web application open a local file, so the page has no link to
    // Perfetto.
    done(&["report", "--html", to, "--trace", "x.json.gz"], &[&profile]);
    browser.open(&page, "#timeline?time=2.1us");
    ready(&mut browser);
    assert_eq!(browser.eval(rows), json!(["Perfetto shows", "ts in a .json", "link to this call"]));
    assert_eq!(browser.eval("document.querySelectorAll('.elsewhere p a').length"), 0);
    let said = browser.eval("document.querySelector('.elsewhere p').textContent");
    assert!(said.as_str().unwrap().contains("x.json.gz"), "{said}");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

pub fn a_time_leads_to_its_call(browser: &mut Browser, scratch: &Scratch) {
    let page = make(scratch, "usual");
    open(browser, &page, "#timeline");
    let line = "document.querySelector('.call-line').textContent";
    let go_to = |browser: &mut Browser, text: &str| {
        browser.eval("document.activeElement.blur()");
        browser.key("g");
        assert_eq!(browser.eval("document.activeElement.className"), "moment");
        browser.eval(&format!("document.activeElement.value = {}", json!(text)));
        browser.key("Enter");
        browser.eval("new Promise((done) => requestAnimationFrame(done))");
        browser.eval(line).as_str().unwrap().to_owned()
    };
    // The first call is inside of the slice `run`, which begins at the same time.
    let first = go_to(browser, "1us");
    assert!(first.contains("from 1,000 ns to") && first.contains("level 2"), "{first}");
    for text in [
        "0.001 ms",
        "00:00:00.000001",
        "1,000 ns",
        "1000",
        "1763793844123457789",
        "4493770123457789",
        " 1 \u{b5}s ",
    ] {
        go_to(browser, "2ms");
        assert_eq!(go_to(browser, text), first, "{text}");
    }
    let inside = go_to(browser, "1ms 1us");
    let [from, to] = ["from ", " to "].map(|word| {
        let rest = &inside[inside.find(word).unwrap() + word.len()..];
        rest.split(" ns").next().unwrap().replace(',', "").parse::<u64>().unwrap()
    });
    assert!(from <= 1_001_000 && 1_001_000 < to, "{inside}");
    for text in ["x", "-1", "9s", "1.5", "99999999999999999999999"] {
        let said = go_to(browser, text);
        assert!(said.contains("is no time of this recording"), "{text}: {said}");
    }
    // The page offers a link to the call at this time.
    go_to(browser, "1us");
    browser.wait_for("/at=1000&lane=0&level=2/.test(location.hash)");
    let link = browser.eval("document.querySelector('.elsewhere dd a').getAttribute('href')");
    assert_eq!(link, "#timeline?time=1763793844123457789&pid=4711&tid=4711&level=2");
    for (fragment, level) in [
        (link.as_str().unwrap(), "level 2"),
        ("#timeline?time=1us&tid=4711&level=1", "level 1"),
        ("#timeline?at=1000&lane=0&level=2", "level 2"),
    ] {
        open(browser, &page, fragment);
        let said = browser.eval(line);
        let said = said.as_str().unwrap();
        assert!(
            said.contains(level)
                && said.contains("from 1,000 ns to")
                && said.contains("iree-worker-0"),
            "{fragment}: {said}"
        );
    }
    // This thread begins later.
    open(browser, &page, "#timeline?time=1us&tid=4712");
    assert!(browser.eval(line).as_str().unwrap().starts_with("No call runs at 1.00"));
    // The first three buttons copy times, and the last one the link.
    open(browser, &page, "#timeline?time=1us&tid=4711");
    browser.eval(
        "document.querySelector('.elsewhere summary').click(); \
         window.copied = []; navigator.clipboard.writeText = async (text) => window.copied.push(text); \
         document.querySelectorAll('.elsewhere button').forEach((button) => button.click())",
    );
    let copied: Vec<String> = serde_json::from_value(browser.eval("window.copied")).unwrap();
    assert_eq!(copied[..3], ["00:00:00.000001000", "1763793844123457789", "4493770123457789"]);
    assert!(
        copied[3].starts_with("file:") && copied[3].ends_with(link.as_str().unwrap()),
        "{copied:?}"
    );
}
