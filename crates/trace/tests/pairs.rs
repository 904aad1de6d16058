//! Tests the starts and ends of slices in Perfetto's format. Readers sort them by time; those at
//! the same time stay in the order of the file. An end belongs to the last open start of its track.
//! The slices that a reader makes in this way must be those that the writer got.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::HashMap;
use std::io;

use model::activity::Vocabulary;
use profile::Role;
use profile::launches::Launches;
use proptest::prelude::*;
use support::{Field, fields};
use testkit::{CallScript, Item, ProfileScript};
use trace::export::calls::{CallsOptions, export_calls};
use trace::perfetto::write::{PerfettoHead, Writer};
use trace::timeline::{Id, Instant, ProcessRow, Row, SeriesPoint, Slice, ThreadRow, TimelineSink};

/// Name, start and end.
type One = (String, i64, i64);

#[derive(Default)]
struct Sequence {
    names: HashMap<u64, String>,
    track: u64,
    /// The sequence's clock.
    now: u64,
}

/// The start of a slice with its name, or an end, which has no name.
struct Event {
    at: u64,
    track: u64,
    name: Option<String>,
}

fn number(bytes: &[u8], wanted: u64) -> Option<u64> {
    fields(bytes).unwrap().into_iter().find_map(|(number, field)| match field {
        Field::Number(n) if number == wanted => Some(n),
        _ => None,
    })
}

fn message(bytes: &[u8], wanted: u64) -> Option<&[u8]> {
    messages(bytes, wanted).pop()
}

fn messages(bytes: &[u8], wanted: u64) -> Vec<&[u8]> {
    let all = fields(bytes).unwrap().into_iter();
    let wanted = all.filter_map(|(number, field)| match field {
        Field::Bytes(bytes) if number == wanted => Some(bytes),
        _ => None,
    });
    wanted.collect()
}

/// Returns the starts and ends in the order of the file. The numbers of fields come from Perfetto's
/// definitions.
fn events(trace: &[u8]) -> Vec<Event> {
    let (mut sequences, mut events) = (HashMap::<u64, Sequence>::new(), Vec::new());
    for packet in messages(trace, 1) {
        let sequence = sequences.entry(number(packet, 10).unwrap_or(0)).or_default();
        if number(packet, 13) == Some(1) {
            *sequence = Sequence::default();
            let clocks = message(packet, 6).map(|snapshot| messages(snapshot, 1));
            let own = clocks.unwrap().into_iter().find(|clock| number(clock, 1) == Some(64));
            sequence.now = number(own.unwrap(), 2).unwrap();
            let defaults = message(packet, 59).and_then(|defaults| message(defaults, 11));
            sequence.track = number(defaults.unwrap(), 11).unwrap();
        }
        for name in message(packet, 12).map(|interned| messages(interned, 2)).unwrap_or_default() {
            let text = message(name, 2).unwrap_or_default();
            let text = String::from_utf8(text.to_vec()).unwrap();
            sequence.names.insert(number(name, 1).unwrap(), text);
        }
        let Some(event) = message(packet, 11) else { continue };
        let at = match number(packet, 58) {
            None => {
                sequence.now += number(packet, 8).unwrap();
                sequence.now
            }
            Some(clock) => {
                assert_eq!(clock, 1, "CLOCK_REALTIME");
                number(packet, 8).unwrap()
            }
        };
        let name = match number(event, 9) {
            Some(1) => Some(sequence.names[&number(event, 10).unwrap()].clone()),
            Some(2) => None,
            _ => continue,
        };
        events.push(Event { at, track: number(event, 11).unwrap_or(sequence.track), name });
    }
    events
}

/// Returns the slices that a reader makes, sorted, and the number of tracks with slices.
fn paired(trace: &[u8]) -> (Vec<One>, usize) {
    let mut events = events(trace);
    events.sort_by_key(|event| event.at); // a stable sort
    let (mut open, mut slices) = (HashMap::<u64, Vec<(String, u64)>>::new(), Vec::new());
    for event in events {
        let stack = open.entry(event.track).or_default();
        match event.name {
            Some(name) => stack.push((name, event.at)),
            None => {
                let (name, begun) = stack.pop().expect("an end belongs to a begin");
                slices.push((name, begun as i64, event.at as i64));
            }
        }
    }
    assert!(open.values().all(Vec::is_empty), "all have ended");
    slices.sort();
    (slices, open.len())
}

struct Both<S> {
    sink: S,
    slices: Vec<One>,
}

impl<S: TimelineSink> TimelineSink for Both<S> {
    fn process(&mut self, process: &ProcessRow<'_>) -> io::Result<()> {
        self.sink.process(process)
    }

    fn thread(&mut self, thread: &ThreadRow<'_>) -> io::Result<()> {
        self.sink.thread(thread)
    }

    fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()> {
        let end = slice.start_ns + slice.duration_ns as i64;
        self.slices.push((slice.name.to_owned(), slice.start_ns, end));
        self.sink.slice(slice)
    }

    fn instant(&mut self, instant: &Instant<'_>) -> io::Result<()> {
        self.sink.instant(instant)
    }

    fn counter(&mut self, counter: &SeriesPoint<'_>) -> io::Result<()> {
        self.sink.counter(counter)
    }
}

/// A call and the calls in it. `before` is the idle time before the call, and `rest` the call's
/// time after the last call in it. If it `threw` an exception, it is not recorded. With `flush`,
/// the page (block of calls) is full after the call.
#[derive(Clone, Debug)]
struct Tree {
    before: u64,
    rest: u64,
    threw: bool,
    flush: bool,
    children: Vec<Tree>,
}

/// Trees of calls with short times. If `shortest` is 0, many calls begin and end at the same tick.
fn tree(shortest: u64) -> impl Strategy<Value = Tree> {
    let parts =
        move || (shortest..3, shortest..3, prop::bool::weighted(0.1), prop::bool::weighted(0.3));
    let leaf = parts().prop_map(|(before, rest, threw, flush)| Tree {
        before,
        rest,
        threw,
        flush,
        children: vec![],
    });
    leaf.prop_recursive(5, 60, 6, move |inner| {
        (parts(), prop::collection::vec(inner, 0..6)).prop_map(
            |((before, rest, threw, flush), children)| Tree {
                before,
                rest,
                threw,
                flush,
                children,
            },
        )
    })
}

/// Records calls as a recorder does: when they end.
fn record(
    tree: &Tree,
    now: &mut u64,
    items: &mut Vec<Item>,
    call: &mut impl FnMut() -> CallScript,
) {
    *now += tree.before;
    let (begin, this) = (*now, call());
    for child in &tree.children {
        record(child, now, items, call);
    }
    *now += tree.rest;
    if !tree.threw {
        let mut this = this;
        (this.call.start, this.call.end) = (begin, *now);
        items.push(Item::Call(this));
    }
    if tree.flush {
        items.push(Item::NextPage(*now, 0, *now));
    }
}

/// Returns the exported trace of a profile, and the slices that the writer received.
fn export(script: &ProfileScript) -> (Vec<u8>, Vec<One>) {
    let (_scratch, profile) = script.opened();
    let writer = Writer::new(Vec::new(), &PerfettoHead::default()).unwrap();
    let mut both = Both { sink: writer, slices: Vec::new() };
    let options =
        CallsOptions { vocabulary: Vocabulary::Kineto, counter_tracks: true, arguments: true };
    export_calls(&profile, &options, &Launches::default(), &mut both).unwrap();
    both.slices.sort();
    (both.sink.finish([]).unwrap(), both.slices)
}

/// Makes threads of ops with unique names. Returns their exported trace, the slices that the writer
/// received, and those that were recorded.
fn export_ops(threads: &[Vec<Tree>]) -> (Vec<u8>, Vec<One>, Vec<One>) {
    let mut script = ProfileScript::monotonic();
    let process = script.process(100);
    let machine = process.machine("m");
    let (mut expected, mut names) = (Vec::new(), 0);
    for trees in threads {
        let (mut now, mut items) = (1_000, Vec::new());
        for tree in trees {
            record(tree, &mut now, &mut items, &mut || {
                let role = [Role::Run, Role::Op, Role::Region, Role::Task][names % 4];
                names += 1;
                CallScript::op(process.op(machine, role, &format!("op{names}"), ""), 0, 0)
            });
        }
        for item in &items {
            if let Item::Call(call) = item {
                let op = process.op_exports.iter().find(|op| op.id == call.call.export);
                let times = [call.call.start, call.call.end].map(|ns| REALTIME + ns as i64);
                expected.push((op.unwrap().name.clone(), times[0], times[1]));
            }
        }
        process.thread("main").items = items;
    }
    expected.sort();
    let (trace, given) = export(&script);
    (trace, given, expected)
}

const REALTIME: i64 = 1_700_000_000_000_000_000;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Ops of a virtual machine run on up to two threads.
    #[test]
    fn ops_within_ops(threads in prop::collection::vec(prop::collection::vec(tree(0), 1..12), 1..3)) {
        let (trace, given, expected) = export_ops(&threads);
        prop_assert_eq!(&given, &expected);
        prop_assert_eq!(paired(&trace).0, expected);
    }

    /// If no two times are equal, one track must be enough, even if the calls inside of a call are
    /// in several other pages (blocks of calls).
    #[test]
    fn one_track_for_a_thread(trees in prop::collection::vec(tree(1), 1..12)) {
        let (trace, _, expected) = export_ops(&[trees]);
        let tracks = usize::from(!expected.is_empty());
        prop_assert_eq!(paired(&trace), (expected, tracks));
    }

    /// Exported functions of an IREE library are called inside of one another, and each dispatch
    /// has two workgroups.
    #[test]
    fn dispatches_within_dispatches(
        threads in prop::collection::vec(prop::collection::vec(tree(0), 1..8), 1..3),
        first in 0..2u32,
    ) {
        let mut script = ProfileScript::monotonic();
        let process = script.process(100);
        process.library("mlp", &["a", "b", "c"]);
        let mut calls = first;
        for trees in threads {
            let (mut now, mut items) = (1_000, Vec::new());
            for tree in &trees {
                record(tree, &mut now, &mut items, &mut || {
                    calls += 1;
                    CallScript::new(calls % 3, 0, 0).workgroup(calls / 3 % 2, 2)
                });
            }
            process.thread("worker").items = items;
        }
        let (trace, given) = export(&script);
        prop_assert_eq!(paired(&trace).0, given);
    }

    /// Slices may overlap in any way and come in any order.
    #[test]
    fn any_slices(
        slices in prop::collection::vec((0..30i64, 0..12u64, 0..8u8), 0..60),
        sorted in any::<bool>(),
    ) {
        let mut slices = slices;
        if sorted {
            slices.sort_by_key(|(begin, ..)| *begin);
        }
        let mut writer = Writer::new(Vec::new(), &PerfettoHead::default()).unwrap();
        let row = Row { process: Id::Number(1), thread: Id::Number(2) };
        let mut expected = Vec::new();
        for (i, (begin, duration_ns, other)) in slices.iter().enumerate() {
            let (name, start_ns) = (format!("slice{i}"), 100 + begin);
            let (category, args, flows) = ("kernel", &[][..], &[][..]);
            if *other == 0 {
                let at_ns = start_ns + 5;
                let instant = Instant { row, category, name: "now", at_ns, args, flows };
                writer.instant(&instant).unwrap();
            }
            writer.slice(&Slice {
                row,
                category,
                name: &name,
                start_ns,
                duration_ns: *duration_ns,
                args,
                shape: None,
                label: None,
                flows,
                counters: &[],
            }).unwrap();
            expected.push((name, start_ns, start_ns + *duration_ns as i64));
        }
        expected.sort();
        prop_assert_eq!(paired(&writer.finish([]).unwrap()).0, expected);
    }
}

/// A program replaced itself, and threads had the same id one after another. The names of calls
/// must be right for each of these threads.
#[test]
fn rows_that_several_threads_share() {
    let mut script = ProfileScript::monotonic();
    script.counter("n", 0);
    for (program, first) in [("before", 1_000), ("after", 5_000)] {
        let process = script.process(100);
        process.library("library", &[program]);
        for (i, thread) in ["a", "b"].into_iter().enumerate() {
            let start = first + 1_000 * i as u64;
            let call = CallScript::new(0, start, 10).workgroup(0, 1).group(10, &[1]);
            let thread = process.thread(&format!("{program}-{thread}"));
            thread.tid = 100;
            thread.items.push(Item::Call(call));
        }
    }
    let (trace, given) = export(&script);
    assert_eq!(paired(&trace).0, given);
    let of = |name| given.iter().filter(|(given, ..)| given == name).count();
    // The profile has two calls and two dispatches of each function.
    assert_eq!((of("before"), of("after")), (4, 4));
    let tracks = messages(&trace, 1).into_iter().filter_map(|packet| message(packet, 60));
    let names = tracks.filter_map(|track| message(track, 2));
    let mut names: Vec<String> =
        names.map(|name| String::from_utf8(name.to_vec()).unwrap()).collect();
    names.retain(|name| name.contains("counters"));
    names.sort();
    let all = ["after-a", "after-b", "before-a", "before-b"];
    assert_eq!(names, all.map(|thread| format!("{thread} 100 counters n")));
}
