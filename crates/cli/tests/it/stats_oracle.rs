//! Compares `stats` with numpy and scipy, which compute the values from the rows of `export`.

use std::path::PathBuf;
use std::process::Command;

use testkit::{CallScript, Item, ProfileScript, Random, Scratch};

const PROGRAM: &str = env!("CARGO_BIN_EXE_counterpoint");
const ORACLE: &str = include_str!("stats_oracle.py");

/// The duration of a call, and its values of the counters `a`, `b` and `c`. If the values are
/// `None`, `a` and `b` are not read, and `c` is the index of the row.
type Row = (u64, Option<[u64; 3]>);

/// Returns a profile with a call for each row. Counters `a` and `b` are one group, which is
/// multiplexed in every seventh call (if it is read there).
fn profile(rows: &[Row]) -> ProfileScript {
    let mut script = ProfileScript::monotonic();
    for (name, group) in [("a", 0), ("b", 0), ("c", 1)] {
        script.counter(name, group);
    }
    let process = script.process(9);
    process.library("m", &["f", "g", "h"]);
    for name in ["s", "t"] {
        process.thread(name);
    }
    for (i, (duration, values)) in rows.iter().enumerate() {
        let thread = &mut process.threads[i % 2];
        let start = 1_000 * i as u64;
        if i % 300 == 299 {
            thread.then(Item::NextPage(start, 0, 0));
        }
        let call = CallScript::new((i / 2 % 3) as u32, start, *duration).on(i as u32 % 5, 0);
        thread.call(match values {
            None => call.unread().group(9, &[i as u64]),
            Some([a, b, c]) if i % 7 == 6 => call.scaled(9, 4, &[*a, *b]).group(9, &[*c]),
            Some([a, b, c]) => call.group(9, &[*a, *b]).group(9, &[*c]),
        });
    }
    script
}

fn cases() -> Vec<(&'static str, Vec<Row>)> {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut next = move || random.next();
    let mut rows = |calls: usize, row: &mut dyn FnMut(&mut dyn FnMut() -> u64) -> Row| {
        (0..calls).map(|_| row(&mut next)).collect::<Vec<_>>()
    };
    let big = u64::MAX;
    vec![
        ("none", vec![]),
        ("one call", vec![(5, Some([1, 2, 3]))]),
        ("one value each", rows(40, &mut |_| (7, Some([0, big, 3])))),
        ("two values", rows(90, &mut |n| (n() % 2, Some([n() % 2, big - n() % 2, 5])))),
        ("fewer than buckets", rows(23, &mut |n| (n() % 99, Some([n() % 9, n(), n() % 1_000])))),
        ("many ties", rows(700, &mut |n| (n() % 5, Some([n() % 3 * (n() % 2), n() % 7, 1])))),
        (
            "random",
            rows(1_500, &mut |n| (n() % 500, Some([n() % 100_000, n() >> 20, n() >> (n() % 64)]))),
        ),
        (
            "correlated",
            rows(900, &mut |n| {
                let x = n() % 1_000;
                (x, Some([x * x, big - x * 1_000_000 - n() % 99, x / 100 + n() % 3]))
            }),
        ),
        (
            "large, close together",
            rows(400, &mut |n| (3, Some([big - n() % 3, big - n() % 50, big]))),
        ),
        (
            "missing",
            rows(600, &mut |n| {
                let values = [n() % 50, n() >> (n() % 64), n() % 4];
                (n() % 300, (n() % 3 > 0).then_some(values))
            }),
        ),
        ("never read", rows(60, &mut |n| (n() % 10, None))),
        (
            "one far away",
            rows(200, &mut |n| (n() % 10, Some([if n() % 97 == 0 { big } else { n() % 9 }, 1, 2]))),
        ),
    ]
}

#[test]
fn agrees_with_numpy_and_scipy() {
    let Some(python) = testkit::python::with("stats_oracle", "numpy, scipy") else { return };
    let scratch = Scratch::new();
    let mut compare = Command::new(python);
    compare.args(["-W", "ignore", "-c", ORACLE]);
    for (number, (name, rows)) in cases().into_iter().enumerate() {
        let dir = scratch.join(&format!("{number}.cpt"));
        profile(&rows).write(&dir);
        let output = |arguments: &[&str], to: PathBuf| {
            let mut command = Command::new(PROGRAM);
            let output = command.arg(arguments[0]).arg(&dir).args(&arguments[1..]).output();
            let output = output.unwrap();
            assert!(output.status.success(), "{name}: {output:?}");
            std::fs::write(&to, output.stdout).unwrap();
            to
        };
        let rows =
            output(&["export", "--format", "csv"], scratch.join(&format!("{number}.calls.csv")));
        for buckets in ["1", "4", "16", "61"] {
            let stats = ["stats", "--format", "json", "--buckets", buckets];
            let to = scratch.join(&format!("{number}.{buckets}.json"));
            compare.arg(name).arg(&rows).arg(output(&stats, to));
        }
    }
    let output = compare.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    println!("{text}");
    assert!(text.contains(" pairs, "), "{text}");
}
