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
use super::proto::Encoder;
use crate::event::{Arg, ArgValue, FlowEnd, Slice};
use model::activity::Value;

/// Texts after which a sequence starts its numbers again, so that memory stays bounded.
const MOST_TEXTS: usize = 1 << 16;

/// See the module's page.
#[derive(Debug)]
pub struct Sequence {
    id: u64,
    track: u64,
    /// What the sequence's clock shows.
    now_ns: i64,
    started: bool,
    /// Ends of the slices that are open, outermost first.
    open: Vec<i64>,
    categories: Interner,
    names: Interner,
    keys: Interner,
}

/// What a packet is about.
pub struct Point<'a> {
    pub kind: u64,
    pub at_ns: i64,
    pub category: &'a str,
    pub name: &'a str,
    pub args: &'a [Arg<'a>],
    pub flow: Option<crate::event::Flow<'a>>,
}

/// New texts of one packet: field of `InternedData`, number, text.
type Fresh = Vec<(u32, u64, String)>;

fn note(fresh: &mut Fresh, field: u32, found: Interned, text: &str) -> u64 {
    if found.new {
        fresh.push((field, found.iid, text.to_owned()));
    }
    found.iid
}

impl Sequence {
    /// The sequence with this number, whose events are on this track.
    pub fn new(id: u64, track: u64) -> Self {
        Self {
            id,
            track,
            now_ns: 0,
            started: false,
            open: Vec::new(),
            categories: Interner::default(),
            names: Interner::default(),
            keys: Interner::default(),
        }
    }

    /// Whether a slice can be put here: it begins when nothing is open, or lies inside of what is
    /// open. One that begins before the last one did is not looked at that closely.
    pub fn fits(&mut self, out: &mut Encoder, slice: &Slice<'_>) -> bool {
        if self.started && slice.start_ns < self.now_ns {
            return true;
        }
        self.close(out, slice.start_ns);
        self.open.last().is_none_or(|end| end_of(slice) <= *end)
    }

    /// Writes a slice that fits.
    pub fn slice(&mut self, out: &mut Encoder, slice: &Slice<'_>) {
        let late = self.started && slice.start_ns < self.now_ns;
        let begin = Point {
            kind: event::SLICE_BEGIN,
            at_ns: slice.start_ns,
            category: slice.category,
            name: slice.name,
            args: slice.args,
            flow: slice.flow,
        };
        self.point(out, &begin);
        if late {
            self.end(out, end_of(slice));
        } else {
            self.open.push(end_of(slice));
        }
    }

    /// Writes the ends that come no later than `until_ns`.
    pub fn close(&mut self, out: &mut Encoder, until_ns: i64) {
        while let Some(end) = self.open.last().copied().filter(|end| *end <= until_ns) {
            self.open.pop();
            self.end(out, end);
        }
    }

    /// Writes an event with a name.
    pub fn point(&mut self, out: &mut Encoder, point: &Point<'_>) {
        self.start(out, point.at_ns);
        let mut fresh = Fresh::new();
        let category = (!point.category.is_empty()).then(|| {
            let found = self.categories.intern(point.category);
            note(&mut fresh, interned::CATEGORIES, found, point.category)
        });
        let found = self.names.intern(point.name);
        let name = note(&mut fresh, interned::NAMES, found, point.name);
        let keys = &mut self.keys;
        let (id, at) = (self.id, advance(&mut self.now_ns, point.at_ns));
        out.message(trace::PACKET, |p| {
            head(p, id, at, point.at_ns);
            p.message(packet::TRACK_EVENT, |e| {
                e.uint(event::TYPE, point.kind);
                if let Some(category) = category {
                    e.uint(event::CATEGORY_IIDS, category);
                }
                e.uint(event::NAME_IID, name);
                for arg in point.args {
                    annotate(e, arg, &mut |key| {
                        note(&mut fresh, interned::ANNOTATION_NAMES, keys.intern(key), key)
                    });
                }
                if let Some(flow) = point.flow {
                    let field = match flow.end {
                        FlowEnd::Start => event::FLOW_IDS,
                        FlowEnd::Finish => event::TERMINATING_FLOW_IDS,
                    };
                    e.fixed(field, flow.id);
                }
            });
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

    /// Writes a value of a counter track.
    pub fn counter(&mut self, out: &mut Encoder, track: u64, at_ns: i64, value: Number) {
        self.start(out, at_ns);
        let (id, at) = (self.id, advance(&mut self.now_ns, at_ns));
        out.message(trace::PACKET, |p| {
            head(p, id, at, at_ns);
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

    fn end(&mut self, out: &mut Encoder, end_ns: i64) {
        let (id, at) = (self.id, advance(&mut self.now_ns, end_ns));
        out.message(trace::PACKET, |p| {
            head(p, id, at, end_ns);
            p.message(packet::TRACK_EVENT, |e| e.uint(event::TYPE, event::SLICE_END));
        });
    }

    /// Sets the sequence's clock, track and numbers before its first packet, and again when the
    /// numbers have become too many.
    fn start(&mut self, out: &mut Encoder, at_ns: i64) {
        let texts = self.categories.len() + self.names.len() + self.keys.len();
        if self.started && texts < MOST_TEXTS {
            return;
        }
        if !self.started {
            self.now_ns = at_ns;
        }
        self.started = true;
        for texts in [&mut self.categories, &mut self.names, &mut self.keys] {
            texts.clear();
        }
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
                d.message(defaults::TRACK_EVENT, |t| t.uint(defaults::TRACK_UUID, self.track));
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

fn end_of(slice: &Slice<'_>) -> i64 {
    slice.start_ns.saturating_add_unsigned(slice.duration_ns)
}

/// Moves the clock on; `None` for a moment that it is past.
fn advance(now_ns: &mut i64, at_ns: i64) -> Option<u64> {
    let delta = u64::try_from(at_ns.checked_sub(*now_ns)?).ok()?;
    *now_ns = at_ns;
    Some(delta)
}

/// What every packet has: when, on the sequence's clock or else as an absolute time.
fn head(p: &mut Encoder, sequence: u64, delta: Option<u64>, at_ns: i64) {
    match delta {
        Some(delta) => p.uint(packet::TIMESTAMP, delta),
        None => {
            p.uint(packet::TIMESTAMP, at_ns.max(0) as u64);
            p.uint(packet::TIMESTAMP_CLOCK_ID, clocks::REALTIME);
        }
    }
    p.uint(packet::SEQUENCE_ID, sequence);
    p.uint(packet::SEQUENCE_FLAGS, packet::NEEDS_STATE);
}

/// Of three numbers, those that are not 0 are written as `key.x`, `key.y`, `key.z`; what is not
/// known is not written.
fn annotate(e: &mut Encoder, arg: &Arg<'_>, iid: &mut impl FnMut(&str) -> u64) {
    let mut put = |key: &str, fill: &dyn Fn(&mut Encoder)| {
        let iid = iid(key);
        e.message(event::ANNOTATIONS, |a| {
            a.uint(annotation::NAME_IID, iid);
            fill(a);
        });
    };
    match arg.value {
        ArgValue::Plain(Value::Null) => {}
        ArgValue::Plain(Value::Bool(b)) => put(arg.key, &|a| a.uint(annotation::BOOL, b.into())),
        ArgValue::Plain(Value::Uint(n)) => put(arg.key, &|a| a.uint(annotation::UINT, n)),
        ArgValue::Plain(Value::Int(n)) => put(arg.key, &|a| a.int(annotation::INT, n)),
        ArgValue::Plain(Value::Float(n)) => put(arg.key, &|a| a.double(annotation::DOUBLE, n)),
        ArgValue::Plain(Value::Text(s)) => {
            put(arg.key, &|a| a.bytes(annotation::TEXT, s.as_bytes()));
        }
        ArgValue::Plain(Value::Json(s)) => {
            put(arg.key, &|a| a.bytes(annotation::JSON, s.as_bytes()));
        }
        ArgValue::Triple(numbers) => {
            // One buffer for the three keys, kept between them.
            let mut key = String::with_capacity(arg.key.len() + 2);
            for (axis, n) in [".x", ".y", ".z"].iter().zip(numbers).filter(|(_, n)| *n != 0) {
                key.clear();
                key.push_str(arg.key);
                key.push_str(axis);
                put(&key, &|a| a.uint(annotation::UINT, n.into()));
            }
        }
    }
}
