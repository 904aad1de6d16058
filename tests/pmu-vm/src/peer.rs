//! Compares counts of this project with counts of Debian's PAPI for the same loop (`c/papi.c`).

use std::process::Command;

use crate::loops::{self, Random};
use crate::report::tests;
use crate::set;

tests![peer: papi_agrees];

/// Returns, for each number in `trips`, PAPI's count for a loop with that number of iterations. The
/// counts include PAPI's own instructions.
fn papi(trips: &[u64]) -> Vec<u64> {
    let output = Command::new("/bin/papi")
        .args(trips.iter().map(u64::to_string))
        .output()
        .expect("start /bin/papi");
    let [text, words] = [&output.stdout, &output.stderr].map(|b| String::from_utf8_lossy(b));
    assert!(output.status.success(), "papi: {} {words}", output.status);
    let counts: Vec<u64> = text.lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(counts.len(), trips.len(), "papi said {text}");
    counts
}

/// The cost of the readings themselves is measured with an empty loop, and subtracted.
fn papi_agrees() {
    let mut random = Random::new("papi");
    let mut trips = vec![0, 0];
    trips.extend((0..8).map(|_| random.below(1_000_000)));
    let theirs = papi(&trips);

    let plan = set::plan("instructions:u");
    let mut counters = set::open(&plan);
    let mut spin = |trips| {
        let [begin, end] = set::measure(&mut counters, || loops::spin(trips));
        end.since(&begin, 0).expect("the counter was read")
    };
    let ours: Vec<u64> = trips.iter().map(|&trips| spin(trips)).collect();
    println!("an empty loop: {} by PAPI, {} by us", theirs[0], ours[0]);
    for ((trips, theirs_n), ours_n) in trips.iter().zip(&theirs).zip(&ours) {
        assert_eq!(theirs_n - theirs[0], 2 * trips, "PAPI, {trips} trips");
        assert_eq!(ours_n - ours[0], theirs_n - theirs[0], "{trips} trips");
    }
    counters.close();
}
