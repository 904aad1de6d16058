//! Tests of exact statistics. Expected values come from sorting, and from Python's integers, which
//! can have any size.

use std::process::Command;

use testkit::random::Random;

use super::*;
use crate::Key;

fn bytes(exact: &Exact) -> Vec<u8> {
    let mut out = Vec::new();
    for (key, row) in &exact.rows {
        out.extend(format!("{key:?}").into_bytes());
        for (bucket, values) in row.durations.buckets() {
            out.extend(bucket.to_le_bytes());
            out.extend(values.to_le_bytes());
        }
        for m in &row.counters {
            out.extend(m.calls.to_le_bytes());
            for sum in [m.x, m.y, m.xx, m.xy, m.yy] {
                out.extend(sum.get().map_or([0xff; 16], u128::to_le_bytes));
            }
        }
    }
    out
}

/// Makes the statistics of some ranks, with a few ops each. The last op has values whose sum of
/// squares is too large to be stored.
fn ranks() -> Vec<Exact> {
    let mut random = Random(0x5eed);
    let rank = |rank: u64| {
        let mut exact = Exact::default();
        for op in 0..3u32 {
            if (rank + u64::from(op)).is_multiple_of(5) {
                continue;
            }
            let mut row = ExactRow { counters: vec![Moments::default(); 2], ..ExactRow::default() };
            for _ in 0..6 {
                let ns = random.below(1 << 20);
                row.durations.add(ns);
                row.counters[0].add(ns, random.below(1 << 40));
                row.counters[1].add(ns, if op == 2 { u64::MAX } else { random.below(9) });
            }
            exact.rows.insert(Key::OpIn(0, op), row);
        }
        exact
    };
    (0..12).map(rank).collect()
}

#[test]
fn any_order_and_tree_of_merging_gives_identical_bytes() {
    let leaves = ranks();
    let mut expected = Exact::default();
    leaves.iter().for_each(|leaf| expected.merge(leaf.clone()));
    let expected = bytes(&expected);
    let mut random = Random(7);
    for round in 0..1000 {
        let mut trees = leaves.clone();
        while trees.len() > 1 {
            let one = trees.swap_remove(random.place(trees.len()));
            let at = random.place(trees.len());
            trees[at].merge(one);
        }
        assert!(bytes(&trees[0]) == expected, "round {round}");
    }
}

#[test]
fn sums_beyond_38_digits_have_no_value_in_any_order() {
    let mut sum = Sum::default();
    sum.add(Some(BEYOND - 1));
    assert_eq!(sum.get(), Some(BEYOND - 1));
    sum.add(Some(1));
    assert_eq!(sum.get(), None);
    sum.add(Some(0));
    assert_eq!(sum.get(), None, "nor does it get one again");
    let mut sum = Sum::default();
    (0..2).for_each(|_| sum.add(Some(1 << 62)));
    assert_eq!(sum.get(), Some(1 << 63));
}

#[test]
fn quantiles_are_within_a_128th() {
    let mut random = Random(99);
    let part = |random: &mut Random| (random.next() >> 11) as f64 / (1u64 << 53) as f64;
    let mut sets: Vec<(&str, Vec<u64>)> = vec![
        ("constant", vec![123_456_789; 20_000]),
        ("largest", vec![u64::MAX; 20_000]),
        ("small", (0..20_000).map(|_| random.below(3)).collect()),
    ];
    let bimodal = |random: &mut Random| match random.odd(10) {
        true => 5_000_000 + random.below(1_000_000),
        false => 900 + random.below(200),
    };
    sets.push(("bimodal", (0..20_000).map(|_| bimodal(&mut random)).collect()));
    // Pareto's distribution with the exponent 1.1: a heavy tail.
    let pareto = |random: &mut Random| (1000.0 * part(random).max(1e-12).powf(-1.0 / 1.1)) as u64;
    sets.push(("pareto", (0..20_000).map(|_| pareto(&mut random)).collect()));
    for (name, mut values) in sets {
        let mut histogram = Histogram::default();
        values.iter().for_each(|value| histogram.add(*value));
        values.sort_unstable();
        for q in [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0] {
            let rank = ((q * values.len() as f64).ceil() as usize).max(1);
            let (exact, found) = (values[rank - 1], histogram.quantile(q).unwrap());
            let off = exact.abs_diff(found);
            assert!(u128::from(off) * 128 <= exact.into(), "{name} {q}: {found} for {exact}");
        }
    }
    assert_eq!(Histogram::default().quantile(0.5), None);
}

#[test]
fn moments_are_those_of_whole_numbers_of_any_size() {
    let Ok(version) = Command::new("python3").arg("--version").output() else {
        return testkit::skip_this("no python3");
    };
    assert!(version.status.success());
    let mut random = Random(31);
    let mut lines = Vec::new();
    let mut found = Vec::new();
    // The sets range from noise to nearly straight lines. Some are offset by a number that a float
    // cannot represent exactly.
    for set in 0..60u64 {
        let (base, spread) = (random.of(&[0, 1 << 30, (1 << 59) + 1]), 1 << (set % 30 + 1));
        let mut moments = Moments::default();
        let mut line = String::new();
        for _ in 0..40 {
            let x = base + random.below(spread);
            let y = match set % 3 {
                0 => random.below(1 << 20),
                1 => (x - base) * 3 + random.below(2),
                _ => (1 << 60) - (x - base) + random.below(5),
            };
            moments.add(x, y);
            line.push_str(&format!("{x} {y} "));
        }
        lines.push(line);
        found.push(moments);
    }
    // This program computes the expected values with 100 digits.
    const JUDGE: &str = "
import decimal, sys
decimal.getcontext().prec = 100
for line in sys.argv[1].splitlines():
    all = list(map(int, line.split()))
    x, y = all[::2], all[1::2]
    s = lambda a, b: sum(map(lambda p: p[0] * p[1], zip(a, b)))
    n, sx, sy, xx, xy, yy = len(x), sum(x), sum(y), s(x, x), s(x, y), s(y, y)
    top, square = n * xy - sx * sy, (n * xx - sx * sx) * (n * yy - sy * sy)
    r = decimal.Decimal(top) / decimal.Decimal(square).sqrt() if square else 'none'
    print(sx, sy, xx, xy, yy, repr(float(r)) if square else 'none')
";
    let out = Command::new("python3").args(["-c", JUDGE, &lines.join("\n")]).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let answers = String::from_utf8(out.stdout).unwrap();
    assert_eq!(answers.lines().count(), found.len());
    for (set, (moments, line)) in found.iter().zip(answers.lines()).enumerate() {
        let (sums, r) = line.rsplit_once(' ').unwrap();
        let own = [moments.x, moments.y, moments.xx, moments.xy, moments.yy];
        let own = own.map(|sum| sum.get().unwrap().to_string());
        assert_eq!(own.join(" "), sums, "set {set}");
        match (moments.pearson(), r) {
            (None, "none") => {}
            (Some(own), r) => {
                let off = (own - r.parse::<f64>().unwrap()).abs();
                assert!(off <= 1e-15, "set {set}: {own} for {r}");
            }
            (None, r) => panic!("set {set}: nothing for {r}"),
        }
    }
}

#[test]
fn a_constant_has_no_correlation() {
    let mut moments = Moments::default();
    assert_eq!(moments.pearson(), None);
    (0..5).for_each(|i| moments.add(i, 7));
    assert_eq!(moments.pearson(), None);
    moments.add(9, 8);
    // 6·142 − 19·43 = 35, 6·111 − 19² = 305 and 6·309 − 43² = 5, so the correlation is 35 / √1525.
    assert_eq!(moments.pearson(), Some(35.0 / 1525f64.sqrt()));
}
