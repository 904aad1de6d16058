//! Writes one sequence of packets: a row of the timeline, or a part of it if slices overlap without
//! being nested.
//!
//! ```text
//!  snapshot(clock 64 = T, track U) · begin +δ name 1 · begin +δ name 2 · end +δ · end +δ …
//! ```
//!
//! Each sequence has a default track, its own numbers for texts, and its own clock, on which times
//! are relative to the previous packet. A slice needs two packets, for its start and its end. The
//! packet for the end is written before the next event of the sequence that begins at this end or
//! later.

use super::encode::{Encoder, Fields, Width};
use super::extras::{ExtraTracks, Extras};
use super::fields::{annotation, clocks, defaults, event, interned, packet, trace};
use super::intern::{Interned, Interner};
use super::json::large_numbers_as_text;
use super::nest::Nest;
use crate::timeline::{Arg, ArgValue, Flow, FlowEnd, KeysId, Slice, TextId};
use model::activity::Value;

/// If a sequence has at least this many texts, their numbers start anew, so that memory stays
/// limited.
const MOST_TEXTS: usize = 1 << 16;

#[derive(Debug)]
pub struct Sequence {
    id: u64,
    /// The fields that the packets of events have in common: the number of the sequence, and the
    /// flag that says that the packet needs the sequence's state.
    same: Fields,
    /// The fields in `same`, and those for the end of a slice.
    same_at_end: Fields,
    track: u64,
    /// The time on the sequence's clock.
    now_ns: i64,
    started: bool,
    /// Open slices, whose ends are written later.
    nest: Nest,
    categories: Interner,
    names: Interner,
    keys: Interner,
    /// The numbers of the keys of arguments, by [`Slice::shape`](crate::timeline::Slice::shape) and
    /// position. An argument has up to three keys. A number that was not looked up yet is 0.
    shapes: Vec<Vec<[u64; 3]>>,
    /// The numbers of categories and names, by label. A number that was not looked up yet is 0.
    labels: Vec<[u64; 2]>,
    /// The default tracks, to which the counter values of a packet without tracks belong.
    extra_tracks: ExtraTracks,
    /// Whether the length of the last packet with a name took more than one byte, and the same for
    /// the event in that packet.
    widths: [Width; 2],
}

/// An event with a name.
pub struct Point<'a> {
    pub kind: u64,
    pub at_ns: i64,
    pub category: &'a str,
    pub name: &'a str,
    pub args: &'a [Arg<'a>],
    pub shape: Option<KeysId>,
    pub label: Option<TextId>,
    pub flows: &'a [Flow<'a>],
    /// Values of counter tracks in the same packet.
    pub extras: &'a Extras,
}

/// Texts that a packet uses for the first time: field of `InternedData`, number, text.
type Fresh = Vec<(u32, u64, String)>;

#[inline]
fn note(fresh: &mut Fresh, field: u32, found: Interned, text: &[&str]) -> u64 {
    if found.new {
        fresh.push((field, found.iid, text.concat()));
    }
    found.iid
}

impl Sequence {
    /// Creates the sequence with this number, whose events are on this track.
    pub fn new(id: u64, track: u64) -> Self {
        let same = |p: &mut Encoder| {
            p.uint(packet::SEQUENCE_ID, id);
            p.uint(packet::SEQUENCE_FLAGS, packet::NEEDS_STATE);
        };
        Self {
            id,
            same: Fields::new(same),
            same_at_end: Fields::new(|p| {
                same(p);
                p.message(packet::TRACK_EVENT, |e| e.uint(event::TYPE, event::SLICE_END));
            }),
            track,
            now_ns: 0,
            started: false,
            nest: Nest::default(),
            categories: Interner::default(),
            names: Interner::default(),
            keys: Interner::default(),
            shapes: Vec::new(),
            labels: Vec::new(),
            extra_tracks: ExtraTracks::default(),
            widths: Default::default(),
        }
    }

    /// Returns the track of the sequence's events.
    pub fn track(&self) -> u64 {
        self.track
    }

    /// Adds a slice if it fits into the sequence; see [`Nest`]. Unless the slice is late, all ends
    /// up to its start are written first. If it fits, the caller must write its start.
    #[inline]
    pub fn takes(&mut self, out: &mut Encoder, slice: &Slice<'_>) -> bool {
        let (begin, end) = (slice.start_ns, end_of(slice));
        if self.nest.is_late(begin) {
            return self.nest.add_late(begin, end);
        }
        self.close(out, begin);
        self.nest.add(begin, end)
    }

    /// Writes the start of a slice.
    pub fn begin(&mut self, out: &mut Encoder, slice: &Slice<'_>, extras: &Extras) {
        let begin = Point {
            kind: event::SLICE_BEGIN,
            at_ns: slice.start_ns,
            category: slice.category,
            name: slice.name,
            args: slice.args,
            shape: slice.shape,
            label: slice.label,
            flows: slice.flows,
            extras,
        };
        self.point(out, &begin);
    }

    /// Writes the ends that are not later than `until_ns`.
    #[inline]
    pub fn close(&mut self, out: &mut Encoder, until_ns: i64) {
        while let Some(end) = self.nest.close(until_ns) {
            self.end(out, end);
        }
    }

    /// Writes an event with a name.
    pub fn point(&mut self, out: &mut Encoder, point: &Point<'_>) {
        let (extras, explicit) = self.extra_tracks.arrange(point.extras);
        self.start(out, point.at_ns);
        if self.extra_tracks.changed {
            self.extra_tracks.changed = false;
            out.message(trace::PACKET, |p| {
                p.fields(&self.same);
                p.message(packet::DEFAULTS, |d| self.defaults(d));
            });
        }
        let mut fresh = Fresh::new();
        let label = point.label.and_then(TextId::index);
        let known = label.and_then(|label| self.labels.get(label)).filter(|known| known[1] != 0);
        let [category, name] = match known {
            Some(known) => *known,
            None => {
                let numbers = self.number(point, &mut fresh);
                if let Some(label) = label {
                    self.labels.resize(self.labels.len().max(label + 1), [0; 2]);
                    self.labels[label] = numbers;
                }
                numbers
            }
        };
        let (same, at) = (&self.same, advance(&mut self.now_ns, point.at_ns));
        let keys = &mut self.keys;
        let mut shape = match point.shape {
            Some(KeysId(number)) if number < KeysId::MOST => {
                let number = usize::from(number);
                if self.shapes.len() <= number {
                    self.shapes.resize_with(number + 1, Vec::new);
                }
                self.shapes[number].resize(point.args.len(), [0; 3]);
                self.shapes[number].iter_mut()
            }
            _ => [].iter_mut(),
        };
        let [packet_width, event_width] = &mut self.widths;
        out.message_like(trace::PACKET, packet_width, |p| {
            head(p, at, point.at_ns);
            p.fields(same);
            p.message_like(packet::TRACK_EVENT, event_width, |e| {
                match category {
                    1.. => e.three(
                        (event::TYPE, point.kind),
                        (event::CATEGORY_IIDS, category),
                        (event::NAME_IID, name),
                    ),
                    0 => {
                        e.uint(event::TYPE, point.kind);
                        e.uint(event::NAME_IID, name);
                    }
                }
                for arg in point.args {
                    let mut none = [0; 3];
                    let known = shape.next().unwrap_or(&mut none);
                    annotate(e, arg, keys, known, &mut fresh);
                }
                if explicit {
                    for (track, _) in extras.iter() {
                        e.uint(event::EXTRA_COUNTER_TRACKS, *track);
                    }
                }
                for (_, value) in extras.iter() {
                    e.int(event::EXTRA_COUNTER_VALUES, *value);
                }
                for flow in point.flows {
                    let field = match flow.end {
                        FlowEnd::Start => event::FLOW_IDS,
                        FlowEnd::Finish => event::TERMINATING_FLOW_IDS,
                    };
                    e.fixed(field, flow.id);
                }
            });
            intern(p, &fresh);
        });
    }

    /// Returns the number of the category (0 if there is none) and the number of the name.
    fn number(&mut self, point: &Point<'_>, fresh: &mut Fresh) -> [u64; 2] {
        let mut category = 0;
        if !point.category.is_empty() {
            let found = self.categories.intern(point.category);
            category = note(fresh, interned::CATEGORIES, found, &[point.category]);
        }
        let found = self.names.intern(point.name);
        [category, note(fresh, interned::NAMES, found, &[point.name])]
    }

    /// Writes a value of a counter track.
    pub fn counter(&mut self, out: &mut Encoder, track: u64, at_ns: i64, value: Number) {
        self.start(out, at_ns);
        let (same, at) = (&self.same, advance(&mut self.now_ns, at_ns));
        out.message(trace::PACKET, |p| {
            head(p, at, at_ns);
            p.fields(same);
            p.message(packet::TRACK_EVENT, |e| {
                e.uint(event::TYPE, event::COUNTER);
                e.uint(event::TRACK_UUID, track);
                match value {
                    Number::Int(n) => e.int(event::COUNTER_VALUE, n),
                    Number::Double(n) => e.double(event::DOUBLE_COUNTER_VALUE, n),
                }
            });
        });
    }

    /// Writes the end of the innermost open slice.
    pub fn end(&mut self, out: &mut Encoder, end_ns: i64) {
        let same = &self.same_at_end;
        match advance(&mut self.now_ns, end_ns) {
            Some(delta) => out.number_and(trace::PACKET, (packet::TIMESTAMP, delta), same),
            None => out.message(trace::PACKET, |p| {
                head(p, None, end_ns);
                p.fields(same);
            }),
        }
    }

    /// Writes the end of the innermost open slice, with arguments that became known at its end.
    pub fn end_with(&mut self, out: &mut Encoder, end_ns: i64, args: &[Arg<'_>]) {
        if args.is_empty() {
            return self.end(out, end_ns);
        }
        self.start(out, end_ns);
        let (same, at) = (&self.same, advance(&mut self.now_ns, end_ns));
        let (keys, mut fresh) = (&mut self.keys, Fresh::new());
        out.message(trace::PACKET, |p| {
            head(p, at, end_ns);
            p.fields(same);
            p.message(packet::TRACK_EVENT, |e| {
                e.uint(event::TYPE, event::SLICE_END);
                for arg in args {
                    annotate(e, arg, keys, &mut [0; 3], &mut fresh);
                }
            });
            intern(p, &fresh);
        });
    }

    /// Defines the sequence's clock, tracks and numbers of texts before its first packet, and again
    /// if too many texts have numbers.
    fn start(&mut self, out: &mut Encoder, at_ns: i64) {
        let texts = self.categories.len() + self.names.len() + self.keys.len();
        if self.started && texts < MOST_TEXTS {
            return;
        }
        if !self.started {
            self.now_ns = at_ns.max(0);
        }
        self.started = true;
        self.extra_tracks.changed = false;
        for texts in [&mut self.categories, &mut self.names, &mut self.keys] {
            texts.clear();
        }
        self.shapes.clear();
        self.labels.clear();
        let now = self.now_ns as u64;
        out.message(trace::PACKET, |p| {
            p.uint(packet::SEQUENCE_ID, self.id);
            p.uint(packet::SEQUENCE_FLAGS, packet::STATE_CLEARED);
            p.message(packet::CLOCK_SNAPSHOT, |s| {
                s.message(clocks::CLOCKS, |c| {
                    c.uint(clocks::ID, clocks::OF_SEQUENCE);
                    c.uint(clocks::TIMESTAMP, now);
                    c.uint(clocks::IS_INCREMENTAL, 1);
                });
                s.message(clocks::CLOCKS, |c| {
                    c.uint(clocks::ID, clocks::REALTIME);
                    c.uint(clocks::TIMESTAMP, now);
                });
            });
            p.message(packet::DEFAULTS, |d| self.defaults(d));
        });
    }

    fn defaults(&self, d: &mut Encoder) {
        d.uint(defaults::TIMESTAMP_CLOCK_ID, clocks::OF_SEQUENCE);
        d.message(defaults::TRACK_EVENT, |t| {
            t.uint(defaults::TRACK_UUID, self.track);
            for track in &self.extra_tracks.tracks {
                t.uint(defaults::EXTRA_COUNTER_TRACKS, *track);
            }
        });
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Int(i64),
    Double(f64),
}

pub fn end_of(slice: &Slice<'_>) -> i64 {
    slice.start_ns.saturating_add_unsigned(slice.duration_ns)
}

/// Advances the clock to `at_ns` and returns the difference. Returns `None` if the clock is already
/// past this moment. The format cannot express times before 1970: these become 1970.
fn advance(now_ns: &mut i64, at_ns: i64) -> Option<u64> {
    let at_ns = at_ns.max(0);
    let delta = u64::try_from(at_ns.checked_sub(*now_ns)?).ok()?;
    *now_ns = at_ns;
    Some(delta)
}

/// Writes the time of a packet: on the sequence's clock or, without `delta`, as an absolute time.
#[inline]
fn head(p: &mut Encoder, delta: Option<u64>, at_ns: i64) {
    match delta {
        Some(delta) => p.uint(packet::TIMESTAMP, delta),
        None => {
            p.uint(packet::TIMESTAMP, at_ns.max(0) as u64);
            p.uint(packet::TIMESTAMP_CLOCK_ID, clocks::REALTIME);
        }
    }
}

fn intern(p: &mut Encoder, fresh: &Fresh) {
    if fresh.is_empty() {
        return;
    }
    p.message(packet::INTERNED_DATA, |d| {
        for (field, iid, text) in fresh {
            d.message(*field, |t| {
                t.uint(interned::IID, *iid);
                t.bytes(interned::TEXT, text.as_bytes());
            });
        }
    });
}

/// Writes an argument. Of three numbers, those that are not 0 are written as `key.x`, `key.y` and
/// `key.z`. `known` contains the number of each key, or 0 if it is not known yet. A value that is
/// `Null` is not written.
#[inline]
fn annotate(
    e: &mut Encoder,
    arg: &Arg<'_>,
    keys: &mut Interner,
    known: &mut [u64; 3],
    fresh: &mut Fresh,
) {
    // Most arguments are unsigned numbers whose key already has a number.
    if let (ArgValue::Plain(Value::Uint(n)), 1..) = (arg.value, known[0]) {
        let key = (annotation::NAME_IID, known[0]);
        return e.pair(event::ANNOTATIONS, key, (annotation::UINT, n));
    }
    let mut key = |axis: usize, end: &str| {
        if known[axis] == 0 {
            let found = keys.intern_both(arg.key, end);
            known[axis] = note(fresh, interned::ANNOTATION_NAMES, found, &[arg.key, end]);
        }
        (annotation::NAME_IID, known[axis])
    };
    let number = match arg.value {
        ArgValue::Plain(Value::Null) => return,
        ArgValue::Plain(Value::Uint(n)) => (annotation::UINT, n),
        ArgValue::Plain(Value::Int(n)) => (annotation::INT, n as u64),
        ArgValue::Plain(Value::Bool(b)) => (annotation::BOOL, b.into()),
        ArgValue::Triple(numbers) => {
            for (axis, n) in numbers.into_iter().enumerate().filter(|(_, n)| *n != 0) {
                let key = key(axis, [".x", ".y", ".z"][axis]);
                e.pair(event::ANNOTATIONS, key, (annotation::UINT, n.into()));
            }
            return;
        }
        ArgValue::Plain(other) => {
            let (field, iid) = key(0, "");
            e.message(event::ANNOTATIONS, |a| {
                a.uint(field, iid);
                match other {
                    Value::Float(n) => a.double(annotation::DOUBLE, n),
                    Value::Text(s) => a.bytes(annotation::TEXT, s.as_bytes()),
                    // Perfetto accepts only lists and objects as JSON.
                    Value::Json(s) if s.starts_with(['[', '{']) => {
                        a.bytes(annotation::JSON, large_numbers_as_text(s).as_bytes());
                    }
                    Value::Json(s) => a.bytes(annotation::TEXT, s.as_bytes()),
                    Value::Null | Value::Uint(_) | Value::Int(_) | Value::Bool(_) => {}
                }
            });
            return;
        }
    };
    e.pair(event::ANNOTATIONS, key(0, ""), number);
}
