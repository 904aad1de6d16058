//! Tests the public interface: counts are exact if their source is exact, and missing if they could
//! not be read.

use measure::{Counters, Coverage, Measurement, OpenErrorKind};
use measure::{ErrorKind, ReadError};
use testkit::counting::*;

fn send_and_sync<T: Send + Sync>() {}

#[test]
fn a_closure_is_measured_and_its_result_comes_back() {
    if !can_count() {
        return;
    }
    send_and_sync::<Counters>();
    send_and_sync::<Measurement>();
    let mut counters = Counters::open(["page-faults:u", "minor-faults:u"]).unwrap();
    let memory = Fresh::new(700 * 4096);
    counters.measure(|| Fresh::new(4096).touch(4096));
    let (result, m) = counters.measure(|| {
        memory.touch(4096);
        "done"
    });
    assert_eq!(result, "done");
    assert_eq!(m.problem(), None);
    assert_eq!(m.value("page-faults:u"), Some(700));
    assert_eq!(m.value("page-faults"), Some(700), "without modifiers");
    assert_eq!(m.estimate("minor-faults:u"), Some(700));
    assert_eq!(m.value("major-faults"), None, "not a counter of this list");
    assert!(m.enabled_ns(0).unwrap() > 0);
    assert_eq!(m.enabled_ns(1), None);
    let count = m.count("minor-faults:u").unwrap();
    assert_eq!((count.group, count.coverage), (0, Coverage::Whole));
    assert_eq!(m.to_string(), "700  page-faults:u\n700  minor-faults:u");
    assert!(!counters.user_reads());
}

#[test]
fn begin_and_end_reuse_one_measurement() {
    if !can_count() {
        return;
    }
    let builder = Counters::builder().group(["page-faults"]).group(["dummy", "minor-faults"]);
    let mut counters = builder.user_only().open().unwrap();
    let mut m = counters.measurement();
    assert_eq!(m.value("page-faults"), None, "nothing was measured");
    let mut random = std::process::id() as usize;
    let mut expected = Vec::new();
    let mut counted = Vec::new();
    for round in 0..20 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_041);
        let pages = (random >> 33) % 50;
        let memory = Fresh::new((pages + 1) * 4096);
        counters.begin(&mut m).unwrap();
        for page in 0..pages {
            memory.touch_page(page);
        }
        counters.end(&mut m).unwrap();
        let faults = m.value("page-faults").unwrap();
        assert_eq!(m.value("dummy"), Some(0));
        // A second end counts everything since the same begin.
        memory.touch_page(pages);
        counters.end(&mut m).unwrap();
        if round > 0 {
            assert_eq!(m.value("page-faults"), Some(faults + 1), "round {round}");
            assert_eq!(m.value("minor-faults"), m.value("page-faults"));
        }
        // A vector that grows also touches pages, so values are pushed only after the last reading.
        expected.push(pages as u64);
        counted.push(faults);
    }
    assert_eq!(counted[1..], expected[1..], "after the first, which warms up");
    let names: Vec<_> = m.counts().map(|c| (c.name.to_owned(), c.group)).collect();
    let names: Vec<_> = names.iter().map(|(n, g)| (n.as_str(), *g)).collect();
    assert_eq!(names, [("page-faults:u", 0), ("dummy:u", 1), ("minor-faults:u", 1)]);
}

#[test]
fn a_measurement_belongs_to_its_counters() {
    if !can_count() {
        return;
    }
    let mut one = Counters::open(["dummy:u"]).unwrap();
    let mut other = Counters::open(["page-faults:u", "dummy:u"]).unwrap();
    let mut m = one.measurement();
    one.begin(&mut m).unwrap();
    assert_eq!(other.end(&mut m), Err(ReadError::OtherCounters));
    one.end(&mut m).unwrap();
    assert_eq!(m.value("dummy:u"), Some(0));
    other.begin(&mut m).unwrap();
    other.end(&mut m).unwrap();
    assert_eq!(m.counts().count(), 2);
}

/// Of the four counters, the first is exact, the second ran for a part of the time, the third never
/// ran, and the fourth cannot be read.
#[test]
fn missing_is_never_zero() {
    let mut counters = Counters::builder()
        .group(["sim/whole,readings=0:1234567,unit=ns/"])
        .group(["sim/part,readings=0:500@250/"])
        .group(["sim/none,readings=0:9@0/"])
        .group(["sim/fails,readings=0:7!/"])
        .open()
        .unwrap();
    let ((), m) = counters.measure(|| ());
    let of = |name: &str| (m.value(name), m.estimate(name), m.count(name).unwrap().covered());
    assert_eq!(of("whole"), (Some(1_234_567), Some(1_234_567), 1.0));
    assert_eq!(of("part"), (None, Some(2_000), 0.25));
    assert_eq!(of("none"), (None, None, 0.0));
    assert_eq!(of("fails"), (None, None, 0.0));
    assert_eq!(m.problem(), Some(ReadError::Group));
    let expected = "\
1,234,567  whole (ns)
    2,000  part        estimate: counted 25.0 % of the time
        –  none        not counting during this time
        –  fails       could not be read
read counters: a group is in error state (pinned, and not on the PMU)";
    assert_eq!(m.to_string(), expected);
}

#[test]
fn errors_say_what_failed_on_what_and_why() {
    let error = Counters::open(["page-fault"]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Name(_)), "{error:?}");
    assert!(error.to_string().starts_with("page-fault: counter list, byte 0: unknown"), "{error}");
    assert!(error.to_string().contains("(similar: page-faults"), "{error}");
    if !can_count() {
        return;
    }
    let error = Counters::builder().group(["dummy:u"]).thread(0x7fff_ffff).open().unwrap_err();
    assert_eq!(error.to_string(), "open dummy:u on thread 2147483647: ESRCH");
    let ErrorKind::Open(open) = error.kind() else { panic!("{error:?}") };
    assert_eq!(open.kind, OpenErrorKind::NoSuchThread);
    // x86-64 has four breakpoints.
    if cfg!(target_arch = "x86_64") {
        let value = 0u64;
        let at = &raw const value as usize;
        let names: Vec<String> = [1, 2, 4, 8, 1]
            .iter()
            .zip(0..)
            .map(|(l, i)| format!("mem:{:#x}/{l}:w:u", (at & !7) + if i == 4 { 1 } else { 0 }))
            .collect();
        let error = Counters::open(&names).unwrap_err();
        let ErrorKind::Open(open) = error.kind() else { panic!("{error:?}") };
        assert_eq!(open.kind, OpenErrorKind::NoSlot, "{error}");
        assert!(error.to_string().ends_with("} fit together"), "{error}");
        std::hint::black_box(value);
    }
}

/// The counted thread runs before the counters are opened and ends before the last reading.
#[test]
fn another_thread_is_counted_from_outside() {
    if !can_count() {
        return;
    }
    use std::sync::mpsc::channel;
    let (to_worker, orders) = channel::<usize>();
    let (answers, from_worker) = channel();
    let worker = std::thread::spawn(move || {
        // SAFETY: `gettid` has no preconditions.
        answers.send(unsafe { libc::gettid() }).unwrap();
        for pages in orders {
            let memory = Fresh::new(pages * 4096);
            memory.touch(4096);
            answers.send(0).unwrap();
        }
    });
    let tid = from_worker.recv().unwrap();
    let order = |pages| {
        to_worker.send(pages).unwrap();
        from_worker.recv().unwrap();
    };
    order(100);
    let mut counters = Counters::builder().group(["page-faults:u"]).thread(tid).open().unwrap();
    order(1); // Warms up.
    let (mut m, mut mine) = (counters.measurement(), Counters::open(["page-faults:u"]).unwrap());
    let ((), own) = mine.measure(|| {
        counters.begin(&mut m).unwrap();
        order(321);
        counters.end(&mut m).unwrap();
    });
    assert_eq!(m.value("page-faults:u"), Some(321));
    assert!(own.value("page-faults:u").unwrap() < 100, "{own}");
    drop(to_worker);
    worker.join().unwrap();
    counters.end(&mut m).unwrap();
    assert!(m.value("page-faults:u").unwrap() >= 321);
}

#[test]
fn a_forked_child_is_told_and_reads_nothing() {
    if !can_count() {
        return;
    }
    let mut counters = Counters::open(["page-faults:u"]).unwrap();
    let mut m = counters.measurement();
    counters.begin(&mut m).unwrap();
    counters.end(&mut m).unwrap();
    let code = in_child(|| {
        let end = counters.end(&mut m);
        let forked = end == Err(ReadError::Forked) && m.value("page-faults:u").is_none();
        let begin = counters.begin(&mut m) == Err(ReadError::Forked);
        i32::from(!(forked && begin && m.value("page-faults:u").is_none()))
    });
    assert_eq!(code, 0);
    counters.begin(&mut m).unwrap();
    counters.end(&mut m).unwrap();
    assert!(m.value("page-faults:u").is_some());
}

#[test]
fn dropping_closes_and_unmaps() {
    if !can_count() {
        return;
    }
    let code = in_child(|| {
        let open = || {
            let descriptors = (0..8192).filter(|&fd| {
                // SAFETY: F_GETFD takes any number.
                unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
            });
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
            (descriptors.count(), maps.matches("[perf_event]").count())
        };
        let before = open();
        for names in [["page-faults:u"], ["msr/tsc/"], ["cycles:u"]] {
            for _ in 0..10 {
                let _ = Counters::open(names);
            }
        }
        i32::from(before != open())
    });
    assert_eq!(code, 0);
}
