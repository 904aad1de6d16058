//! Tests what a report says about the time between calls. The expected numbers were computed on
//! paper.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use testkit::{CallScript, ProfileScript};

fn report(profile: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_counterpoint"));
    command.arg("report").arg(profile).args(options).output().unwrap()
}

fn text(profile: &Path, options: &[&str]) -> String {
    let out = report(profile, options);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// On *main*, `load` takes 1 ms and `step` 2 ms, ten times in turn. A gap of 3 ms is before each
/// `step`, and one of 1 ms before each `load` except the first. Each `step` contains another call
/// of `load`; the time around that call belongs to `step` and is no gap. On *helper*, there is one
/// call.
fn alternating() -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    let process = script.process(4711);
    process.library("m", &["load", "step"]);
    let main = process.thread("main");
    for n in 0..10 {
        let at = n * 7_000_000;
        main.call(CallScript::new(0, at, 1_000_000));
        main.call(CallScript::new(0, at + 4_500_000, 1_000_000));
        main.call(CallScript::new(1, at + 4_000_000, 2_000_000));
    }
    process.thread("helper").call(CallScript::new(1, 0, 1_000_000));
    script
}

#[test]
fn gaps_are_after_one_op_and_before_another() {
    let (_scratch, profile) = alternating().written();
    let printed = text(&profile, &["--by", "between", "--width", "300"]);
    // The gaps are 10 × 3 ms and 9 × 1 ms. From its first call to the end of its last one, *main*
    // takes 69 ms, and *helper* 1 ms.
    let expected = [
        "main (4711): 39.0 ms of its 69.0 ms (56.5 %) are in no recorded call",
        "; 30.0 ms of that (76.9 %) are 10 gaps",
    ];
    for part in expected {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let json: Value =
        serde_json::from_str(&text(&profile, &["--by", "between", "--format", "json"])).unwrap();
    let row = |at: usize| {
        let of = &json["rows"][at];
        let number = |name: &str| of[name].as_f64().unwrap();
        let names = [&of["after"], &of["before"]].map(|name| name.as_str().unwrap());
        (names, number("gaps"), number("total_ns"), number("mean_ns"), number("max_ns"))
    };
    assert_eq!(row(0), (["load", "step"], 10.0, 30e6, 3e6, 3e6));
    assert_eq!(row(1), (["step", "load"], 9.0, 9e6, 1e6, 1e6));
    assert_eq!(json["rows"].as_array().unwrap().len(), 2);
    assert_eq!((&json["between_ns"], &json["wall_ns"]), (&39e6.into(), &70e6.into()));
    // The calls of `step` take 20 ms in all; the calls of `load` inside of them take 10 ms of this.
    let level = |at: usize| {
        let of = &json["levels"][at];
        ["level", "calls", "in_calls_ns", "between_ns"].map(|name| of[name].as_f64().unwrap())
    };
    assert_eq!([level(0), level(1)], [[0.0, 20.0, 30e6, 39e6], [1.0, 10.0, 10e6, 10e6]]);
    assert_eq!(json["levels"].as_array().unwrap().len(), 2, "helper has one level");
    let by_op = text(&profile, &["--width", "200"]);
    let is_it = |line: &str| line.starts_with("(between)") && line.contains("39.0 ms");
    assert!(by_op.lines().any(is_it), "{by_op}");
    let one = text(&profile, &["--by", "between", "--filter", "step", "--top", "1"]);
    assert!(one.contains("and 1 more"), "{one}");
}

#[test]
fn levels_are_chosen_in_text_as_in_json() {
    let (_scratch, profile) = alternating().written();
    for (options, expected) in [(&[][..], 2), (&["--top", "1"], 1), (&["--filter", "step"], 0)] {
        let with = |more: &[&str]| text(&profile, &[&["--by", "between"], options, more].concat());
        let printed = with(&["--width", "300"]);
        let levels = printed.lines().skip_while(|line| !line.starts_with("thread")).skip(1);
        let levels = levels.take_while(|line| line.starts_with("main"));
        assert_eq!(levels.count(), expected, "{options:?}: {printed}");
        let json: Value = serde_json::from_str(&with(&["--format", "json"])).unwrap();
        assert_eq!(json["levels"].as_array().unwrap().len(), expected, "{options:?}");
    }
}

/// Two functions have the same name.
#[test]
fn ops_of_one_name_have_two_names_in_json() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(4711);
    process.library("outer", &["f"]);
    process.library("inner", &["f"]);
    let main = process.thread("main");
    for at in [0, 100] {
        main.call(CallScript::new(1, 1_000 + at, 40));
        main.call(CallScript::new(0, 990 + at, 60));
    }
    let (_scratch, profile) = script.written();
    let json = text(&profile, &["--by", "between", "--format", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let most = |level: usize| json["levels"][level]["most"].as_str().unwrap();
    assert_ne!(most(0), most(1));
    assert_eq!(most(0), json["rows"][0]["after"]);
    let id = |level: usize| json["levels"][level]["most_op_id"].as_u64().unwrap();
    assert_ne!(id(0), id(1));
}

/// The gaps are 1, 1, 1 and 9 ms long, so their mean is far from the length of any gap.
#[test]
fn the_median_of_gaps_is_beside_their_mean() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(4711);
    process.library("m", &["f"]);
    let main = process.thread("main");
    for ms in [0, 2, 4, 6, 16] {
        main.call(CallScript::new(0, ms * 1_000_000, 1_000_000));
    }
    let (_scratch, profile) = script.written();
    let csv = text(&profile, &["--by", "between", "--format", "csv"]);
    let of = |name: &str| {
        let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let at = lines.next().unwrap().iter().position(|column| *column == name).unwrap();
        lines.next().unwrap()[at].parse::<f64>().unwrap()
    };
    assert_eq!(["gaps", "mean_ns", "p50_ns", "max_ns"].map(of), [4.0, 3e6, 1e6, 9e6]);
    let printed = text(&profile, &["--by", "between", "--width", "200"]);
    assert!(printed.contains("mean      p50") && printed.contains("3.00 ms  1.00 ms"), "{printed}");
}

#[test]
fn long_names_leave_room_for_numbers() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/readme/iree");
    let printed = text(&kept, &["--by", "between", "--top", "3", "--width", "80"]);
    let head = printed.lines().find(|line| line.starts_with("after ")).unwrap();
    assert!(["before", "total", "share"].iter().all(|name| head.contains(name)), "{printed}");
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
}

/// The report has no line break between a number and its unit.
#[test]
fn a_report_says_where_most_of_the_time_between_calls_is() {
    let (_scratch, profile) = alternating().written();
    let printed = text(&profile, &["--width", "60"]);
    let at = printed.find("\nbetween: ").unwrap_or_else(|| panic!("{printed}"));
    let said: Vec<&str> = printed[at + 1..].split_whitespace().collect();
    let said = said.join(" ");
    let expected = "between: 30.0 ms of 39.0 ms on main (4712) in 10 gaps after load and before step; all: report --by between";
    let expected = expected.replace("4712", &tid_of(&profile));
    assert!(said.starts_with(&expected), "{said}");
    let units = ["ms", "ms,", "%", "s"];
    let parted = printed.lines().filter(|line| {
        let first = line.split_whitespace().next().unwrap_or_default();
        units.contains(&first)
    });
    assert_eq!(parted.count(), 0, "{printed}");
}

fn tid_of(profile: &Path) -> String {
    let csv = text(profile, &["--by", "thread", "--format", "csv"]);
    let line = csv.lines().find(|line| line.starts_with("main (")).unwrap();
    line["main (".len()..line.find(')').unwrap()].to_owned()
}

#[test]
fn a_run_with_a_budget_does_not_know_its_gaps() {
    let mut script = alternating();
    script.budget(0.02);
    let (_scratch, profile) = script.written();
    let out = report(&profile, &["--by", "between"]);
    assert_eq!(out.status.code(), Some(2));
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("with a budget, calls that were only counted"), "{said}");
}

/// Two workers repeat this three times: `wide` with four workgroups for 3 ms, nothing for 1 ms,
/// `narrow` with one workgroup for 2 ms, and `even` with two for 1 ms.
#[test]
fn sites_say_for_how_much_of_the_time_a_thread_would_have_work() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(4711);
    process.library("m", &["wide", "narrow", "even"]);
    let ms = 1_000_000;
    let mut workers = [Vec::new(), Vec::new()];
    for run in 0..3 {
        let at = 7 * ms * run;
        let call = |op, from: u64, long: u64, id, of| {
            CallScript::new(op, at + from * ms, long * ms).workgroup(id, of)
        };
        workers[0].extend([call(0, 0, 1, 0, 4), call(0, 1, 2, 2, 4)]);
        workers[1].extend([call(0, 0, 2, 1, 4), call(0, 2, 1, 3, 4)]);
        workers[0].extend([call(1, 4, 2, 0, 1), call(2, 6, 1, 0, 2)]);
        workers[1].push(call(2, 6, 1, 1, 2));
    }
    for (n, calls) in workers.into_iter().enumerate() {
        let thread = process.thread(&format!("worker-{n}"));
        for call in calls {
            thread.call(call);
        }
    }
    let (_scratch, profile) = script.written();
    let printed = text(&profile, &["--by", "site", "--width", "300"]);
    for part in [
        "of 21.0 ms from the first dispatch to the end of the last one, no dispatch runs for 3.00 ms (14.3 %), and \
         only one workgroup can run for 6.00 ms (28.6 %): more threads cannot shorten these",
        "for 3.00 ms (14.3 %), a dispatch runs that has no more workgroups than there are workers",
        "for 9.00 ms (42.9 %), a dispatch runs that has more workgroups than workers: only there",
        // In each repetition, dispatches run for 6 ms, so the two workers have 2 × 6 ms, in which
        // they ran workgroups for 6 + 2 + 2 ms.
        "in dispatches, the 2 workers ran workgroups for 83.3 % of the time",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let json = text(&profile, &["--by", "site", "--format", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["room"]["more_than_workers_ns"], 9e6);
    assert_eq!(json["rows"][0]["workers"], 2);
}

/// The model runs ten times. In each run, it has two dispatches of 1 ms each, with 1 ms between
/// them. Nothing runs for 47 ms before the last run, and for 2 ms before each other run except the
/// first.
#[test]
fn the_time_between_runs_is_told_from_that_inside_of_runs() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(4711);
    process.library("m", &["f", "g"]);
    let ms = 1_000_000;
    for worker in 0..2 {
        let thread = process.thread(&format!("worker-{worker}"));
        for run in 0..10 {
            let at = 5 * ms * run + if run == 9 { 45 * ms } else { 0 };
            for op in 0..2 {
                let call = CallScript::new(op, at + 2 * ms * u64::from(op), ms);
                thread.call(call.workgroup(worker, 2));
            }
        }
    }
    let (_scratch, profile) = script.written();
    // There are nine gaps, which take 8 × 2 + 47 ms in all. The whole time is 9 × 5 + 45 + 3 ms.
    let gaps = "9 gaps (median 2.00 ms, mean 7.00 ms, longest 47.0 ms)";
    let said = text(&profile, &["--width", "500"]);
    let expected = format!(
        "look at: most of the time is between runs of the model, in {gaps}; a run takes 3.00 ms (mean of 10); \
         changing that can save at most 67.7 % of the wall time (63.0 ms of 93.0 ms)"
    );
    assert!(said.contains(&expected), "{said}");
    let said = text(&profile, &["--by", "site", "--width", "500"]);
    let expected = format!(
        "a run of the model (mean of 10 runs of 2 dispatches each): 2.00 ms in dispatches, 1.00 ms between them; \
         between runs: {gaps}"
    );
    assert!(said.contains(&expected), "{said}");
    let outside =
        "no dispatch runs for 73.0 ms (78.5 %), 63.0 ms of it between runs of the model: more";
    assert!(said.contains(outside), "{said}");
    let json = text(&profile, &["--by", "site", "--format", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let run = &json["run"];
    let [mean, p50, max, all] = ["before_ns", "before_p50_ns", "before_max_ns", "before_total_ns"];
    assert_eq!(
        [&run[mean], &run[p50], &run[max], &run[all]],
        [7e6, 2e6, 47e6, 63e6].map(Value::from).each_ref()
    );
    assert_eq!((&run["gaps"], &run["runs"]), (&9.into(), &10.into()));
    let first = json["rows"].as_array().unwrap().iter().find(|row| row["site"] == 1).unwrap();
    assert_eq!(
        (&first["gap_ns"], &first["gap_p50_ns"], &first["gap_max_ns"]),
        (&7e6.into(), &2e6.into(), &47e6.into())
    );
}

/// Three of the four ops have names that differ only in a number.
#[test]
fn ops_around_gaps_have_the_names_of_the_table() {
    let mut script = ProfileScript::monotonic();
    let process = script.process(4711);
    let names = [0, 1, 14].map(|n| format!("tblock$async_dispatch_{n}_reduction_128x64_f32"));
    let [a, b, c] = names.each_ref().map(String::as_str);
    process.library("m", &[a, b, c, "tblock$async_dispatch_16_matmul_128x64x256_f32"]);
    let thread = process.thread("worker");
    for run in 0..10 {
        for (op, at) in [(0, 0), (1, 11), (2, 22), (3, 33)] {
            thread.call(CallScript::new(op, (100 * run + at) * 1_000_000, 7_000_000));
        }
    }
    let (_scratch, profile) = script.written();
    let said = text(&profile, &["--width", "80"]);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = "9 gaps after …16_matmul_128x64x256_f32 and before …0_reduction_128x64_f32;";
    assert!(said.contains(expected), "{said}");
    // The line that begins with `between:` shortens names, but keeps the parts in which they
    // differ.
    let said = text(&profile, &["--width", "300"]);
    let line = said.lines().find(|line| line.starts_with("between: ")).unwrap();
    assert!(line.contains(" and before tblock$async_…0…n_128x64_f32;"), "{line}");
}
