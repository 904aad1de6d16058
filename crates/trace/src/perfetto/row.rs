//! One sequence of packets: a row of the timeline, or one of the rows that it is split into where
//! its slices overlap without one being inside the other.
//!
//! ```text
//!  snapshot(clock 64 = T, track U) · begin +δ name 1 · begin +δ name 2 · end +δ · end +δ …
//! ```
//!
//! Each sequence has a clock of its own that counts from one packet to the next, a default track,
//! and its own numbers for texts. A slice is two packets, so ends wait here until something
//! begins behind them.

use super::fields::{annotation, clocks, defaults, event, interned, packet, trace};
use super::intern::{Interned, Interner};
use super::nest::Nest;
use super::proto::{Encoder, Fields, Width};
use crate::event::{Arg, ArgValue, Flow, FlowEnd, Label, Shape, Slice};
use model::activity::Value;

/// Texts after which a sequence starts its numbers again, so that memory stays bounded.
const MOST_TEXTS: usize = 1 << 16;

/// See the module's page.
#[derive(Debug)]
pub struct Sequence {
    id: u64,
    /// What each of its packets says: its number, and that it needs its state.
    same: Fields,
    /// The same, and that a slice ends.
    same_at_end: Fields,
    track: u64,
    /// What the sequence's clock shows.
    now_ns: i64,
    started: bool,
    /// Slices whose ends wait.
    nest: Nest,
    categories: Interner,
    names: Interner,
    keys: Interner,
    /// The keys' numbers by shape and place; up to three for one key, 0 if not known.
    shapes: Vec<Vec<[u64; 3]>>,
    /// The numbers of categories and names by label, 0 if not known.
    labels: Vec<[u64; 2]>,
    /// The tracks that values in a slice's packet belong to if it does not name others.
    extra_tracks: Vec<u64>,
    /// Of its packets with names, and of the events in them.
    widths: [Width; 2],
}

/// What a packet is about.
pub struct Point<'a> {
    pub kind: u64,
    pub at_ns: i64,
    pub category: &'a str,
    pub name: &'a str,
    pub args: &'a [Arg<'a>],
    pub shape: Option<Shape>,
    pub label: Option<Label>,
    pub flows: &'a [Flow<'a>],
    /// Values of counter tracks; at most [`MOST_EXTRAS`].
    pub extras: &'a Extras,
    /// See [`Slice::raw`].
    pub raw: &'a str,
}

/// Values of counter tracks that stand in the packet of a slice.
#[derive(Debug, Default)]
pub struct Extras {
    pub tracks: Vec<u64>,
    pub values: Vec<i64>,
}

/// Perfetto's importer takes no more of them in one packet
/// (`TrackEventData::kMaxNumExtraCounters`, release 54).
pub const MOST_EXTRAS: usize = 8;

/// New texts of one packet: field of `InternedData`, number, text.
type Fresh = Vec<(u32, u64, String)>;

#[inline]
fn note(fresh: &mut Fresh, field: u32, found: Interned, text: &[&str]) -> u64 {
    if found.new {
        fresh.push((field, found.iid, text.concat()));
    }
    found.iid
}

impl Sequence {
    /// The sequence with this number, whose events are on this track.
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
            extra_tracks: Vec::new(),
            widths: Default::default(),
        }
    }

    /// The track of its events.
    pub fn track(&self) -> u64 {
        self.track
    }

    /// Whether nothing was written yet.
    pub fn is_new(&self) -> bool {
        !self.started
    }

    /// Whether a slice can be put here: see [`Nest`]. If so, its begin has to be written, and its end
    /// waits.
    #[inline]
    pub fn takes(&mut self, out: &mut Encoder, slice: &Slice<'_>) -> bool {
        let (begin, end) = (slice.start_ns, end_of(slice));
        if self.nest.is_late(begin) {
            return self.nest.add_late(begin, end);
        }
        self.close(out, begin);
        self.nest.add(begin, end)
    }

    /// Writes the begin of a slice, whose end comes with [`Sequence::end`].
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
            raw: slice.raw,
        };
        self.point(out, &begin);
    }

    /// Writes the ends that come no later than `until_ns`.
    #[inline]
    pub fn close(&mut self, out: &mut Encoder, until_ns: i64) {
        while let Some(end) = self.nest.close(until_ns) {
            self.end(out, end);
        }
    }

    /// Writes an event with a name.
    pub fn point(&mut self, out: &mut Encoder, point: &Point<'_>) {
        self.start(out, point.at_ns, &point.extras.tracks);
        let mut fresh = Fresh::new();
        let label = point.label.and_then(Label::index);
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
        let (keys, extra_tracks) = (&mut self.keys, &self.extra_tracks);
        let mut shape = match point.shape {
            Some(Shape(number)) if number < Shape::MOST => {
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
                let Extras { tracks, values } = point.extras;
                if tracks != extra_tracks {
                    tracks.iter().for_each(|track| e.uint(event::EXTRA_COUNTER_TRACKS, *track));
                }
                values.iter().for_each(|value| e.int(event::EXTRA_COUNTER_VALUES, *value));
                for flow in point.flows {
                    let field = match flow.end {
                        FlowEnd::Start => event::FLOW_IDS,
                        FlowEnd::Finish => event::TERMINATING_FLOW_IDS,
                    };
                    e.fixed(field, flow.id);
                }
            });
            if !point.raw.is_empty() {
                put_raw(p, point);
            }
            if !fresh.is_empty() {
                p.message(packet::INTERNED_DATA, |d| {
                    for (field, iid, text) in &fresh {
                        d.message(*field, |t| {
                            t.uint(interned::IID, *iid);
                            t.bytes(interned::TEXT, text.as_bytes());
                        });
                    }
                });
            }
        });
    }

    /// The numbers of the category, 0 for none, and of the name.
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
        self.start(out, at_ns, &[]);
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

    /// Writes the end of the slice that was begun last.
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

    /// Sets the sequence's clock, tracks and numbers before its first packet, and again when the
    /// numbers have become too many, or values come for more tracks than it knows of.
    fn start(&mut self, out: &mut Encoder, at_ns: i64, extra_tracks: &[u64]) {
        let texts = self.categories.len() + self.names.len() + self.keys.len();
        let more = extra_tracks.len() > self.extra_tracks.len();
        if self.started && texts < MOST_TEXTS && !more {
            return;
        }
        if more {
            self.extra_tracks = extra_tracks.to_vec();
        }
        if !self.started {
            self.now_ns = at_ns;
        }
        self.started = true;
        for texts in [&mut self.categories, &mut self.names, &mut self.keys] {
            texts.clear();
        }
        self.shapes.clear();
        self.labels.clear();
        let now = self.now_ns.max(0) as u64;
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
            p.message(packet::DEFAULTS, |d| {
                d.uint(defaults::TIMESTAMP_CLOCK_ID, clocks::OF_SEQUENCE);
                d.message(defaults::TRACK_EVENT, |t| {
                    t.uint(defaults::TRACK_UUID, self.track);
                    for track in &self.extra_tracks {
                        t.uint(defaults::EXTRA_COUNTER_TRACKS, *track);
                    }
                });
            });
        });
    }
}

/// A value of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Whole.
    Int(i64),
    /// Anything else.
    Double(f64),
}

pub fn end_of(slice: &Slice<'_>) -> i64 {
    slice.start_ns.saturating_add_unsigned(slice.duration_ns)
}

/// Writes what only imports need: what annotations cannot say (`null`), and the rest as it is.
fn put_raw(p: &mut Encoder, point: &Point<'_>) {
    let is_null = |arg: &&Arg<'_>| matches!(arg.value, ArgValue::Plain(Value::Null));
    if !point.args.iter().any(|arg| is_null(&arg)) {
        return p.bytes(packet::RAW, point.raw.as_bytes());
    }
    let mut raw = Vec::new();
    for arg in point.args.iter().filter(is_null) {
        crate::text::string(&mut raw, arg.key);
        raw.extend_from_slice(b":null,");
    }
    raw.extend_from_slice(point.raw.as_bytes());
    p.bytes(packet::RAW, &raw);
}

/// Moves the clock on; `None` for a moment that it is past.
fn advance(now_ns: &mut i64, at_ns: i64) -> Option<u64> {
    let delta = u64::try_from(at_ns.checked_sub(*now_ns)?).ok()?;
    *now_ns = at_ns;
    Some(delta)
}

/// When, on the sequence's clock or else as an absolute time.
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

/// Of three numbers, those that are not 0 are written as `key.x`, `key.y`, `key.z`; what is not
/// known is not written. `known`: the numbers of these keys, or 0.
#[inline]
fn annotate(
    e: &mut Encoder,
    arg: &Arg<'_>,
    keys: &mut Interner,
    known: &mut [u64; 3],
    fresh: &mut Fresh,
) {
    // What most are.
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
                    Value::Json(s) => a.bytes(annotation::JSON, s.as_bytes()),
                    Value::Null | Value::Uint(_) | Value::Int(_) | Value::Bool(_) => {}
                }
            });
            return;
        }
    };
    e.pair(event::ANNOTATIONS, key(0, ""), number);
}
