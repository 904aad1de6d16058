//! Passes a timeline from the thread that decodes the calls to a second thread, which writes the
//! file.
//!
//! ```text
//!  calls ─► Relay ─ a batch of slices ─► thread ─► TimelineSink ─► file
//!             ▲                            │
//!             └───── the batch, emptied ◄──┘
//! ```
//!
//! Decoding and merging calls takes about as long as writing them in Perfetto's format, so two
//! threads halve the time. The slices in a batch refer to names that the caller of [`relay`] keeps
//! until both threads are done. A name that was made for only one slice or row is stored in the
//! batch.
//!
//! Memory: [`BATCHES`] batches of at most [`MOST_SLICES`] slices each.

use std::borrow::Cow;
use std::io;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use crate::timeline::{
    Arg, Flow, Id, KeysId, ProcessRow, Row, SeriesPoint, Slice, TextId, ThreadRow, TimelineSink,
};

/// The maximum number of slices in a batch.
const MOST_SLICES: usize = 1024;
/// The number of batches: one is being filled, one is being written, and the others wait.
const BATCHES: usize = 4;

/// The slices and names of rows that are sent to the writing thread at once.
#[derive(Debug, Default)]
struct Batch<'a> {
    slices: Vec<Kept<'a>>,
    /// The arguments of all slices. After the arguments of a slice come the series of its counters.
    args: Vec<Arg<'a>>,
    counters: Vec<KeptCounter<'a>>,
    flows: Vec<Flow<'a>>,
    /// Names of processes and threads, each with the number of slices in the batch before it.
    others: Vec<(usize, Other)>,
}

/// A slice. Its arguments, counters and arrows are stored in the lists of the [`Batch`], after
/// those of the previous slice. Each list has fewer than 2³² elements, so the ends fit into 32
/// bits.
#[derive(Debug)]
struct Kept<'a> {
    head: SliceHead<'a>,
    args_end: u32,
    counters_end: u32,
    flows_end: u32,
}

/// A counter. Its series begin where those of the slice's previous counter end. The series of the
/// slice's first counter begin where the slice's arguments end.
#[derive(Debug)]
struct KeptCounter<'a> {
    label: CounterNames<'a>,
    series_end: usize,
}

#[derive(Debug)]
enum Other {
    Process {
        id: Id<'static>,
        name: String,
        labels: Cow<'static, str>,
        sort_index: i64,
        at_ns: i64,
    },
    Thread {
        row: Row<'static>,
        name: String,
        sort_index: i64,
        at_ns: i64,
    },
}

/// A slice without its lists; see [`Slice`].
#[derive(Clone, Debug)]
pub struct SliceHead<'a> {
    pub process: i64,
    pub thread: i64,
    pub category: &'a str,
    pub name: Cow<'a, str>,
    pub start_ns: i64,
    pub duration_ns: u64,
    pub shape: Option<KeysId>,
    pub label: Option<TextId>,
}

/// The names of one counter of a slice, and of its series; see [`SeriesPoint`].
#[derive(Clone, Copy, Debug)]
pub struct CounterNames<'a> {
    pub category: &'a str,
    pub name: &'a str,
    /// Identifies the counter's name with the names of its series. It is ignored if a series has no
    /// value.
    pub label: Option<TextId>,
    pub units: &'a [(&'a str, &'a str)],
}

/// Says that the thread that writes has ended. The error that this thread returned tells the
/// reason.
#[derive(Debug)]
pub struct Gone;

/// Receives a timeline. The caller first adds the arguments, counters and arrows of a slice, then
/// calls [`Relay::slice`].
#[derive(Debug)]
pub struct Relay<'a> {
    batch: Batch<'a>,
    /// The index in `batch.args` at which the arguments of the next slice end; `None` if the slice
    /// has no counter yet.
    args_end: Option<usize>,
    full: SyncSender<Batch<'a>>,
    empty: Receiver<Batch<'a>>,
}

/// Runs `make`, which fills a [`Relay`], and passes the timeline in the relay on to `sink` in
/// another thread.
///
/// # Errors
/// Fails if writing failed, or if no other thread could be started.
pub fn relay<'a, T>(
    sink: &mut (impl TimelineSink + Send),
    make: impl FnOnce(&mut Relay<'a>) -> Result<T, Gone>,
) -> io::Result<T> {
    let (full, batches) = sync_channel(BATCHES);
    let (back, empty) = channel();
    for _ in 1..BATCHES {
        // The receiver still exists, so sending cannot fail.
        let _ = back.send(Batch::default());
    }
    let mut relay = Relay { batch: Batch::default(), args_end: None, full, empty };
    thread::scope(|scope| {
        let write = move || write(sink, &batches, &back);
        let writer =
            thread::Builder::new().name("trace writer".into()).spawn_scoped(scope, write)?;
        let made = make(&mut relay).and_then(|made| relay.send().map(|()| made));
        // This drops the sender of batches, so the writing thread ends after the last batch.
        drop(relay);
        match writer.join() {
            Ok(written) => written?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        made.map_err(|Gone| io::Error::other("the writer of the timeline has ended"))
    })
}

/// Passes the batches on to `sink`, and gives them back empty.
fn write<'a>(
    sink: &mut impl TimelineSink,
    batches: &Receiver<Batch<'a>>,
    back: &Sender<Batch<'a>>,
) -> io::Result<()> {
    for mut batch in batches {
        batch.write(sink)?;
        batch.clear();
        // If the thread that fills batches no longer receives any, it needs no more, so an error
        // does not matter.
        let _ = back.send(batch);
    }
    Ok(())
}

impl<'a> Relay<'a> {
    /// Returns the list for the arguments of the next slice.
    pub fn args(&mut self) -> &mut Vec<Arg<'a>> {
        &mut self.batch.args
    }

    pub fn flow(&mut self, flow: Flow<'a>) {
        self.batch.flows.push(flow);
    }

    /// Adds the series of a counter to the next slice. No arguments may be added to the slice after
    /// this.
    pub fn counter(&mut self, label: CounterNames<'a>, series: impl IntoIterator<Item = Arg<'a>>) {
        let batch = &mut self.batch;
        self.args_end.get_or_insert(batch.args.len());
        batch.args.extend(series);
        batch.counters.push(KeptCounter { label, series_end: batch.args.len() });
    }

    /// Completes the next slice.
    ///
    /// # Errors
    /// Fails if the writing thread has ended.
    pub fn slice(&mut self, head: SliceHead<'a>) -> Result<(), Gone> {
        let batch = &mut self.batch;
        batch.slices.push(Kept {
            head,
            args_end: self.args_end.take().unwrap_or(batch.args.len()) as u32,
            counters_end: batch.counters.len() as u32,
            flows_end: batch.flows.len() as u32,
        });
        if batch.slices.len() >= MOST_SLICES { self.send() } else { Ok(()) }
    }

    /// See [`TimelineSink::process`].
    pub fn process(
        &mut self,
        id: Id<'static>,
        name: String,
        labels: Cow<'static, str>,
        sort_index: i64,
        at_ns: i64,
    ) {
        self.other(Other::Process { id, name, labels, sort_index, at_ns });
    }

    /// See [`TimelineSink::thread`].
    pub fn thread(&mut self, row: Row<'static>, name: String, sort_index: i64, at_ns: i64) {
        self.other(Other::Thread { row, name, sort_index, at_ns });
    }

    fn other(&mut self, other: Other) {
        self.batch.others.push((self.batch.slices.len(), other));
    }

    /// Sends the batch, and continues with an empty one.
    fn send(&mut self) -> Result<(), Gone> {
        let next = self.empty.recv().map_err(|_| Gone)?;
        let full = std::mem::replace(&mut self.batch, next);
        self.full.send(full).map_err(|_| Gone)
    }
}

impl Batch<'_> {
    fn clear(&mut self) {
        let Self { slices, args, counters, flows, others } = self;
        slices.clear();
        args.clear();
        counters.clear();
        flows.clear();
        others.clear();
    }

    fn write(&mut self, sink: &mut impl TimelineSink) -> io::Result<()> {
        let mut others = self.others.iter().peekable();
        let (mut args, mut counters, mut flows) = (0, 0, 0);
        let mut points = Vec::new();
        for (number, slice) in self.slices.iter().enumerate() {
            while let Some((_, other)) = others.next_if(|(before, _)| *before <= number) {
                other.write(sink)?;
            }
            let SliceHead { process, thread, category, name, start_ns, duration_ns, shape, label } =
                &slice.head;
            let row = Row { process: Id::Number(*process), thread: Id::Number(*thread) };
            let [args_end, counters_end, flows_end] =
                [slice.args_end, slice.counters_end, slice.flows_end].map(|end| end as usize);
            let mut series = args_end;
            points.clear();
            points.extend(self.counters[counters..counters_end].iter().map(|counter| {
                let CounterNames { category, name, label, units } = counter.label;
                let from = std::mem::replace(&mut series, counter.series_end);
                let series = &self.args[from..series];
                let label = label.filter(|_| series.len() == units.len());
                SeriesPoint { row, category, name, at_ns: *start_ns, series, label, units }
            }));
            sink.slice(&Slice {
                row,
                category,
                name,
                start_ns: *start_ns,
                duration_ns: *duration_ns,
                args: &self.args[args..args_end],
                shape: *shape,
                label: *label,
                flows: &self.flows[flows..flows_end],
                counters: &points,
            })?;
            (args, counters, flows) = (series, counters_end, flows_end);
        }
        others.try_for_each(|(_, other)| other.write(sink))
    }
}

impl Other {
    fn write(&self, sink: &mut impl TimelineSink) -> io::Result<()> {
        match self {
            Self::Process { id, name, labels, sort_index, at_ns } => sink.process(&ProcessRow {
                id: *id,
                name,
                labels,
                sort_index: *sort_index,
                at_ns: *at_ns,
            }),
            Self::Thread { row, name, sort_index, at_ns } => {
                let (sort_index, at_ns) = (*sort_index, *at_ns);
                sink.thread(&ThreadRow { row: *row, name, sort_index, at_ns })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::timeline::{FlowEnd, Instant};
    use model::activity::FlowKind;

    const ROW: Row<'_> = Row { process: Id::Number(7), thread: Id::Number(8) };

    /// Records what it receives, and fails at the slice with the name `fails_at`. If `fails_at` is
    /// `panic`, it panics at the first slice.
    #[derive(Default)]
    struct Said {
        lines: Vec<String>,
        fails_at: Option<&'static str>,
    }

    impl Said {
        fn say(&mut self, line: String) -> io::Result<()> {
            self.lines.push(line);
            Ok(())
        }
    }

    impl TimelineSink for Said {
        fn process(&mut self, process: &ProcessRow<'_>) -> io::Result<()> {
            self.say(format!("{process:?}"))
        }
        fn thread(&mut self, thread: &ThreadRow<'_>) -> io::Result<()> {
            self.say(format!("{thread:?}"))
        }
        fn slice(&mut self, slice: &Slice<'_>) -> io::Result<()> {
            match self.fails_at {
                Some("panic") => panic!("as it was told"),
                Some(name) if name == slice.name => Err(io::Error::other("as it was told")),
                _ => self.say(format!("{slice:?}")),
            }
        }
        fn instant(&mut self, _: &Instant<'_>) -> io::Result<()> {
            unreachable!("calls have no instants")
        }
        fn counter(&mut self, _: &SeriesPoint<'_>) -> io::Result<()> {
            unreachable!("counters come with slices")
        }
    }

    /// Passes slices with different lists and names to `relay`, and names of rows between them.
    /// Adds to `expected` what the sink must receive.
    fn fill<'a>(
        relay: &mut Relay<'a>,
        slices: usize,
        texts: &'a [String],
        kind: &'a FlowKind,
        expected: &mut Vec<String>,
    ) -> Result<(), Gone> {
        for i in 0..slices {
            let text = &texts[i % texts.len()];
            if i % 900 == 0 {
                let row =
                    ProcessRow { id: ROW.process, name: "", labels: "l", sort_index: 1, at_ns: 2 };
                relay.process(row.id, text.clone(), row.labels.into(), row.sort_index, row.at_ns);
                expected.push(format!("{:?}", ProcessRow { name: text, ..row }));
                relay.thread(ROW, text.clone(), 3, 4);
                let (row, name) = (ROW, text.as_str());
                expected.push(format!("{:?}", ThreadRow { row, name, sort_index: 3, at_ns: 4 }));
            }
            let args: Vec<Arg<'a>> = (0..i % 5).map(|n| Arg::uint(text, n as u64)).collect();
            let flows = vec![Flow { kind, id: i as u64, end: FlowEnd::Start }; i % 2];
            let series: Vec<Arg<'a>> =
                (0..i % 4).map(|n| Arg::text(text, texts[n].as_str())).collect();
            let (label, units) = (TextId(i as u32), &[("a", "b"), ("c", "d")][..]);
            relay.args().extend(args.iter().copied());
            flows.iter().for_each(|flow| relay.flow(*flow));
            let counters = [&series[..], &series[..i % 2]];
            let counters = &counters[..i % 3];
            for series in counters {
                let of = CounterNames { category: "k", name: text, label: Some(label), units };
                relay.counter(of, series.iter().copied());
            }
            let counters: Vec<SeriesPoint<'_>> = counters
                .iter()
                .map(|series| SeriesPoint {
                    row: ROW,
                    category: "k",
                    name: text,
                    at_ns: i as i64,
                    series,
                    label: (series.len() == 2).then_some(label),
                    units,
                })
                .collect();
            let slice = Slice {
                row: ROW,
                category: "c",
                name: text,
                start_ns: i as i64,
                duration_ns: 9,
                args: &args,
                shape: Some(KeysId(3)),
                label: Some(label),
                flows: &flows,
                counters: &counters,
            };
            expected.push(format!("{slice:?}"));
            relay.slice(SliceHead {
                process: 7,
                thread: 8,
                category: "c",
                name: text.as_str().into(),
                start_ns: i as i64,
                duration_ns: 9,
                shape: Some(KeysId(3)),
                label: Some(label),
            })?;
        }
        relay.thread(ROW, "last".into(), 3, 4);
        let row = ThreadRow { row: ROW, name: "last", sort_index: 3, at_ns: 4 };
        expected.push(format!("{row:?}"));
        Ok(())
    }

    fn texts() -> Vec<String> {
        (0..97).map(|i| format!("text {i}")).collect()
    }

    #[test]
    fn everything_arrives_in_order() {
        let (texts, kind) = (texts(), FlowKind::HostToDevice);
        for slices in [0, 1, MOST_SLICES - 1, MOST_SLICES, 9 * MOST_SLICES + 5] {
            let (mut said, mut expected) = (Said::default(), Vec::new());
            let made = relay(&mut said, |relay| {
                fill(relay, slices, &texts, &kind, &mut expected).map(|()| "made")
            });
            assert_eq!(made.unwrap(), "made");
            assert!(said.lines == expected, "{slices}");
        }
    }

    #[test]
    fn the_error_of_the_sink_ends_both_threads() {
        let (texts, kind) = (texts(), FlowKind::HostToDevice);
        for slices in [1, 100 * MOST_SLICES] {
            let mut said = Said { fails_at: Some("text 0"), ..Said::default() };
            let mut expected = Vec::new();
            let made = relay(&mut said, |relay| fill(relay, slices, &texts, &kind, &mut expected));
            assert_eq!(made.unwrap_err().to_string(), "as it was told");
            // `fill` must stop soon after the sink's error.
            assert!(expected.len() < 20 * MOST_SLICES, "{}", expected.len());
        }
    }

    #[test]
    fn a_panic_of_the_sink_is_one_of_the_caller() {
        let (texts, kind) = (texts(), FlowKind::HostToDevice);
        let mut said = Said { fails_at: Some("panic"), ..Said::default() };
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            relay(&mut said, |relay| fill(relay, 5 * MOST_SLICES, &texts, &kind, &mut Vec::new()))
        }));
        let text = panicked.unwrap_err();
        assert_eq!(text.downcast_ref::<&str>(), Some(&"as it was told"));
    }
}
