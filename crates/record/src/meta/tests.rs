//! Tests of the metadata that a process writes.

use super::*;
use crate::brackets::Histogram;
use crate::clock::ClockKind;

fn example() -> Vec<Frame> {
    let export = Export {
        id: 7,
        ordinal: 1,
        recorded: true,
        name: "mlp_dispatch_0".into(),
        source_path: "mlp.mlir".into(),
        source_line: 2,
        workgroup_size: [1, 2, 3],
        ..Export::default()
    };
    vec![
        Frame::Process(Process {
            pid: 1,
            parent: 2,
            start_time: 3,
            generation: 4,
            clock: ClockKind::Tsc,
            program: "/bin/x".into(),
            arguments: vec!["x".into(), "".into()],
        }),
        Frame::Snapshot(Snapshot {
            ticks: 1,
            monotonic_ns: 2,
            realtime_ns: 3,
            uncertainty_ticks: 4,
        }),
        Frame::Host(2, Box::new(Host { name: "toy".into(), title: "Toy".into(), ..Host::UNKNOWN })),
        Frame::Library(Library {
            id: 0,
            name: "mlp_linked".into(),
            host: 2,
            abi: 6,
            features: 0,
            sanitizer: 0,
            ticks: 99,
            exports: vec![export],
        }),
        Frame::Calibration(Calibration {
            calls: 256,
            counters: 3,
            inside_ticks: 50,
            total_ticks: 90,
            inside_values: vec![0, 1],
            spread: None,
            sums: None,
        }),
        Frame::Calibration(Calibration {
            calls: 256,
            counters: 3,
            inside_ticks: 50,
            total_ticks: 90,
            inside_values: vec![0, 1],
            spread: Some(Spread {
                inside_ticks: [48, 55],
                total_ticks: [88, 130],
                inside_values: vec![[0, 0], [1, 4]],
                enabled_ns: vec![400, 410],
            }),
            sums: None,
        }),
        Frame::Calibration(Calibration {
            calls: 256,
            counters: 3,
            inside_ticks: 50,
            total_ticks: 90,
            inside_values: vec![0, 1],
            spread: Some(Spread::default()),
            sums: Some(Sums {
                thread_uid: 4,
                calls: 200,
                inside_ticks: Moments { sum: 10_000, squares: 500_100 },
                total_ticks: Moments { sum: 18_000, squares: 1 << 40 },
                inside_values: vec![Moments::default(), Moments { sum: 200, squares: 200 }],
            }),
        }),
        Frame::Op(OpExport {
            id: 8,
            library: 1,
            role: Role::Task,
            name: "matmul1".into(),
            arguments: "float32[1, 64], float32[64, 64]".into(),
            device: "cuda0".into(),
            asynchronous: true,
        }),
        Frame::Value(ValueKey { id: 16, name: "l2 hits".into(), kind: ValueKind::Percent }),
        Frame::Text(Text { id: 3, text: "avx2".into() }),
        Frame::Leaving(Leaving { pages: 3, cpu_ns: 1 << 40 }),
        Frame::Clock(Granularity { smallest_ticks: 18, typical_ticks: 24 }),
        Frame::Brackets(Brackets {
            thread_uid: 4,
            counters: 3,
            rehearsed: true,
            before: Histogram(vec![(3, 200), (240, 1)]),
            after: Histogram::default(),
        }),
        Frame::Announced(Brackets {
            thread_uid: 4,
            before: Histogram(vec![(57, 30)]),
            after: Histogram(vec![(20, 29), (47, 1)]),
            ..Brackets::default()
        }),
        Frame::Cost(ProcessCost {
            constructor_ns: 300_000,
            loading_ns: 1 << 40,
            after_reading_ticks: 90,
            process_cpu_ns: 7,
        }),
        Frame::Job(Job { rank: 3, size: Some(8) }),
        Frame::Job(Job { rank: 3, size: None }),
        Frame::JobName("train-7".into()),
        Frame::Threads(vec![ThreadCpu { tid: 9, name: "pool-1".into(), cpu_ns: 1 << 40 }]),
    ]
}

#[test]
fn round_trip_and_every_truncation() {
    let frames = example();
    let bytes: Vec<u8> = frames.iter().flat_map(Frame::to_bytes).collect();
    assert_eq!(read_frames(&bytes), Frames { frames: frames.clone(), torn_at: None });
    let ends: Vec<usize> = frames
        .iter()
        .scan(0, |at, f| {
            *at += f.to_bytes().len();
            Some(*at)
        })
        .collect();
    for cut in 0..bytes.len() {
        let read = read_frames(&bytes[..cut]);
        let whole = ends.iter().filter(|end| **end <= cut).count();
        assert_eq!(read.frames, frames[..whole], "cut at {cut}");
        let at_boundary = cut == 0 || ends.contains(&cut);
        assert_eq!(read.torn_at.is_none(), at_boundary, "cut at {cut}");
    }
}

/// A role's number in a file is an index of `Role::ALL`.
#[test]
fn lists_are_in_the_order_of_their_numbers() {
    assert!(Role::ALL.iter().enumerate().all(|(i, role)| *role as usize == i));
}

/// The values 1 to 4 have the mean 2.5, and the squares of the differences from it add up to 5.
#[test]
fn means_follow_from_sums() {
    let mut moments = Moments::default();
    (1..=4).for_each(|value| moments.add(value));
    assert_eq!(moments, Moments { sum: 10, squares: 30 });
    assert_eq!(moments.mean_and_deviation(4), Some((2.5, (5.0f64 / 3.0).sqrt())));
    assert_eq!(moments.mean_and_deviation(1), None);
    moments.add(u64::MAX);
    assert_eq!(moments.squares, u64::MAX);
}

#[test]
fn unknown_kinds_are_skipped() {
    let mut bytes = example()[1].to_bytes();
    bytes[4] = 200;
    bytes.extend(example()[0].to_bytes());
    assert_eq!(read_frames(&bytes).frames, example()[..1]);
}
