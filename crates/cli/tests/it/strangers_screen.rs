//! Checks that views show no nonsense (docs/account.md): a negative or missing time although calls
//! were timed, a mean that is not between minimum and maximum, parts that exceed their whole, and 0
//! for a value that was not measured.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use testkit::{ProfileScript, Random, Scratch};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");

struct Screen<'a> {
    what: String,
    document: &'a Value,
}

fn at_most(a: f64, b: f64) -> bool {
    a <= b + 1e-6 * b.abs().max(1.0)
}

impl Screen<'_> {
    fn fail(&self, what: &str, row: &Value) -> ! {
        panic!("{}: {what}: {row}", self.what)
    }

    /// Checks that estimates are inside of their intervals, and that no value is negative. Only
    /// some members may be negative, such as correlations and lower ends of intervals.
    fn no_negative(&self, value: &Value, name: &str) {
        match value {
            Value::Object(members) => {
                let number = |key: &str| members.get(key).and_then(Value::as_f64);
                if let (Some(value), Some(low), Some(high)) =
                    (number("value"), number("low"), number("high"))
                    && !(at_most(low, value) && at_most(value, high))
                {
                    self.fail("a value outside of its interval", &value.into());
                }
                for (key, member) in members {
                    self.no_negative(member, key);
                }
            }
            Value::Array(all) => all.iter().for_each(|one| self.no_negative(one, name)),
            Value::Number(number) => {
                let may_be_below =
                    ["low", "pearson", "spearman", "offset_ns", "start_ns", "signal"];
                if number.as_f64().is_some_and(|n| n < 0.0) && !may_be_below.contains(&name) {
                    self.fail(&format!("{name} is negative"), value);
                }
            }
            _ => {}
        }
    }

    /// Checks that none of these members of a row is larger than the next one. Missing members are
    /// left out.
    fn in_order(&self, row: &Value, names: &[&str]) {
        let values: Vec<f64> = names.iter().filter_map(|name| row[*name].as_f64()).collect();
        if !values.windows(2).all(|pair| at_most(pair[0], pair[1])) {
            self.fail(&format!("{names:?} are not in this order"), row);
        }
    }

    fn row(&self, row: &Value) {
        self.in_order(row, &["min_ns", "p50_ns", "p99_ns", "max_ns"]);
        self.in_order(row, &["self_ns", "total_ns"]);
        let sampled = row.get("sampled").filter(|sampled| !sampled.is_null());
        // With a budget, the mean is an estimate for all calls, but minimum and maximum are those
        // of the timed calls.
        if sampled.is_none() {
            self.in_order(row, &["min_ns", "mean_ns", "max_ns"]);
        }
        let timed = sampled.map_or(row["calls"].as_u64(), |s| s["timed_calls"].as_u64());
        // With a budget, quantiles are not known in a table by CPU, or if too few calls were
        // sampled.
        let by_cpu = sampled.is_some_and(|sampled| sampled["calls"].is_null());
        let few = sampled.is_some_and(|sampled| sampled["effective_calls"].is_null());
        let no_quantiles = by_cpu || few;
        let quantile = (!no_quantiles).then_some("p50_ns");
        for name in ["min_ns", "max_ns"].into_iter().chain(quantile) {
            if row[name].is_null() != (timed == Some(0)) {
                self.fail(&format!("{name} where {timed:?} calls were timed"), row);
            }
        }
        for counter in row["counters"].as_array().into_iter().flatten() {
            if counter["calls"] == 0 && !counter["total"].is_null() {
                self.fail("a sum over no calls", counter);
            }
            if by_cpu && !counter["total"].is_null() {
                self.fail("a sum over the drawn calls alone", counter);
            }
        }
    }

    fn report(&self) {
        let rows = self.document["rows"].as_array().unwrap();
        rows.iter().for_each(|row| self.row(row));
        let shares: f64 = rows.iter().filter_map(|row| row["share"].as_f64()).sum();
        assert!(at_most(shares, 1.0), "{}: shares add up to {shares}", self.what);
        let mut lived = 0.0;
        for thread in self.document["threads"].as_array().unwrap() {
            self.in_order(thread, &["dispatch_ns", "wall_ns"]);
            self.in_order(thread, &["no_dispatch_ns", "wall_ns"]);
            self.in_order(thread, &["off_cpu_ns", "no_dispatch_ns"]);
            self.in_order(&thread["usage"], &["cpu_ns", "of_ns"]);
            lived += thread["wall_ns"].as_f64().unwrap();
        }
        let total = self.document["total"]["self_ns"].as_f64();
        if self.document["profile"]["budget"].is_null() && total.is_some_and(|t| !at_most(t, lived))
        {
            self.fail("more time in calls than threads lived", &self.document["total"]);
        }
        // `cpu_ns` is the threads' processor time without the recorder's time to attach threads and
        // to write full pages of calls. So of the recorder's costs, only `probes_ns`, those around
        // calls, must not exceed `cpu_ns`.
        self.in_order(&self.document["probe"], &["probes_ns", "cpu_ns"]);
    }

    fn stats(&self) {
        for op in self.document["ops"].as_array().unwrap() {
            let threads = op["threads"].as_array().unwrap().iter();
            for scope in threads.chain([&op["all"]]) {
                for variable in scope["variables"].as_array().unwrap() {
                    self.in_order(variable, &["min", "mean", "max"]);
                    let means = variable["bucket_means"].as_array().unwrap().iter();
                    let known: Vec<f64> = means.filter_map(Value::as_f64).collect();
                    assert!(
                        known.windows(2).all(|pair| at_most(pair[0], pair[1])),
                        "{}: {variable}",
                        self.what
                    );
                    // If too few calls were sampled, there is no mean.
                    let sampled = !self.document["profile"]["budget"].is_null();
                    let without = variable["mean"].is_null();
                    if without != (variable["calls"] == 0) && !(sampled && without) {
                        self.fail("a mean without calls, or calls without a mean", variable);
                    }
                }
            }
        }
    }

    fn ops(&self) {
        for op in self.document["ops"].as_array().unwrap() {
            self.in_order(op, &["self_ns", "duration_ns"]);
        }
        for run in self.document["runs"].as_array().unwrap() {
            self.in_order(run, &["own_ns", "duration_ns"]);
            self.in_order(run, &["between_ops_ns", "duration_ns"]);
        }
    }
}

/// Checks the views of a profile. A view may show nothing, but it must not fail.
pub fn look_at(dir: &Path, name: &str) {
    let mut views: Vec<Vec<&str>> = Vec::new();
    for by in ["op", "thread", "cpu", "process", "kind", "device", "stream"] {
        views.push(vec!["report", "--by", by]);
        views.push(vec!["report", "--by", by, "--raw"]);
    }
    views.extend([vec!["stats", "--buckets", "4"], vec!["stats", "--raw"], vec!["ops"]]);
    views.extend([vec!["loops", "report"], vec!["report", "--filter", "a*"]]);
    for view in views {
        let mut command = Command::new(PROGRAM);
        let output = command.args(&view).arg(dir).args(["--format", "json"]).output().unwrap();
        let what = format!("{} of {name}", view.join(" "));
        let code = output.status.code();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(code, Some(0 | 1)), "{what}: {said}");
        let Ok(document) = serde_json::from_slice::<Value>(&output.stdout) else { continue };
        let screen = Screen { what, document: &document };
        screen.no_negative(&document, "");
        match view[0] {
            "report" => screen.report(),
            "stats" => screen.stats(),
            "ops" => screen.ops(),
            _ => {}
        }
    }
}

fn scripted(script: &ProfileScript, name: &str) {
    let (_scratch, dir) = script.written();
    look_at(&dir, name);
}

#[test]
fn random_profiles() {
    let mut r = Random(0x5c2e_e000);
    for round in 0..4 {
        scripted(&crate::account::script(&mut r), &format!("profile {round}"));
    }
}

#[test]
fn profiles_on_paper() {
    scripted(&crate::ops::nested(), "ops inside of ops");
    scripted(&crate::sampled::paper(), "a budget");
    scripted(&crate::sampled::with_counts_only(), "calls that were only counted");
    scripted(&crate::sampled::drawn(), "a drawn sample");
}

#[test]
fn recorded_profiles() {
    for (from, name) in [("v1", "v1"), ("pages-2/recorded", "pages-2")] {
        let scratch = Scratch::new();
        let dir = scratch.join("x.cpt");
        crate::kept::copy(&crate::kept::kept().join(from), &dir);
        look_at(&dir, name);
    }
}
