//! Stores the state of a sequence of packets, and reads the events in the packets.

use std::borrow::Cow;
use std::collections::HashMap;

use super::args::{self, Room, Texts};
use super::clocks::{self, BOOTTIME, Clocks};
use super::tracks::{Id, ThreadTrack};
use super::{Done, LONGEST_NAME, Pending, Reader};
use crate::chrome::event::{Event, Raw, Scalar};
use crate::chrome::read::EventSink;
use crate::perfetto::decode::{Field, Fields, varint};
use crate::perfetto::fields::{defaults, event, interned, legacy, packet};
use crate::text;

/// How many of a track's last open slices are searched, to find the place of a new slice in the
/// list, or the slice to which an end belongs.
const MOST_LATER: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Sequence {
    /// Whether the packet that resets the texts and defaults was read, and no packet was lost after
    /// it.
    cleared: bool,
    categories: HashMap<u64, Box<str>>,
    names: HashMap<u64, Box<str>>,
    keys: HashMap<u64, Box<str>>,
    values: HashMap<u64, Box<str>>,
    track: Option<u64>,
    extra_tracks: Vec<u64>,
    extra_double_tracks: Vec<u64>,
    clock: Option<u64>,
    /// The process of the sequence, if the trace has the older format, where each sequence belongs
    /// to one thread.
    pub(super) pid: i64,
    thread: Option<(i64, i64)>,
    reference_ns: i64,
}

#[derive(Default)]
pub(super) struct Packet<'a> {
    flags: u64,
    dropped: bool,
    timestamp: Option<u64>,
    clock: Option<u64>,
    interned: Vec<&'a [u8]>,
    defaults: Option<&'a [u8]>,
    pub(super) event: Option<&'a [u8]>,
}

impl<'a> Packet<'a> {
    /// Stores a field of the packet. Returns whether this reader uses packets with this field.
    pub(super) fn take(&mut self, field: u32, value: Field<'a>) -> bool {
        let number = value.uint().unwrap_or(0);
        match field {
            packet::SEQUENCE_FLAGS => {
                self.flags |= number;
                // A packet may do nothing but reset the state.
                return number & packet::STATE_CLEARED != 0;
            }
            packet::STATE_WAS_CLEARED if number != 0 => self.flags |= packet::STATE_CLEARED,
            packet::PREVIOUS_DROPPED => self.dropped = number != 0,
            packet::TIMESTAMP => self.timestamp = value.uint(),
            packet::TIMESTAMP_CLOCK_ID => self.clock = value.uint(),
            packet::INTERNED_DATA => {
                self.interned.extend(value.bytes());
                return true;
            }
            packet::DEFAULTS => {
                self.defaults = value.bytes();
                return true;
            }
            packet::TRACK_EVENT => {
                self.event = value.bytes();
                return true;
            }
            _ => {}
        }
        false
    }
}

impl Sequence {
    /// Returns false if the state that the packet's event needs is missing.
    pub(super) fn update(&mut self, p: &Packet<'_>) -> bool {
        if p.dropped {
            self.cleared = false;
        }
        if p.flags & packet::STATE_CLEARED != 0 {
            let (pid, thread, reference_ns) = (self.pid, self.thread, self.reference_ns);
            *self = Self { cleared: true, pid, thread, reference_ns, ..Self::default() };
        }
        for bytes in &p.interned {
            self.intern(bytes);
        }
        if let Some(bytes) = p.defaults {
            self.set_defaults(bytes);
        }
        self.cleared || p.flags & packet::NEEDS_STATE == 0
    }

    fn intern(&mut self, bytes: &[u8]) {
        for (number, value, _) in Fields::new(bytes).flatten() {
            let texts = match number {
                interned::CATEGORIES => &mut self.categories,
                interned::NAMES => &mut self.names,
                interned::ANNOTATION_NAMES => &mut self.keys,
                interned::TEXT_VALUES => &mut self.values,
                _ => continue,
            };
            // Names are limited in length, because each event's name is compared with the name of
            // the previous event.
            let longest = if number == interned::NAMES { LONGEST_NAME } else { usize::MAX };
            let (mut iid, mut text) = (0, Box::<str>::default());
            for (number, value, _) in Fields::new(value.bytes().unwrap_or_default()).flatten() {
                match number {
                    interned::IID => iid = value.uint().unwrap_or(0),
                    interned::TEXT => {
                        let bytes = value.bytes().unwrap_or_default();
                        text = String::from_utf8_lossy(&bytes[..bytes.len().min(longest)]).into();
                    }
                    _ => {}
                }
            }
            texts.insert(iid, text);
        }
    }

    fn set_defaults(&mut self, bytes: &[u8]) {
        (self.clock, self.track) = (None, None);
        self.extra_tracks.clear();
        self.extra_double_tracks.clear();
        for (number, value, _) in Fields::new(bytes).flatten() {
            match number {
                defaults::TIMESTAMP_CLOCK_ID => self.clock = value.uint(),
                defaults::TRACK_EVENT => {
                    let of_events = value.bytes().unwrap_or_default();
                    for (number, value, _) in Fields::new(of_events).flatten() {
                        match number {
                            defaults::TRACK_UUID => self.track = value.uint(),
                            defaults::EXTRA_COUNTER_TRACKS => {
                                numbers(value, &mut self.extra_tracks)
                            }
                            defaults::EXTRA_DOUBLE_TRACKS => {
                                numbers(value, &mut self.extra_double_tracks);
                            }
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
    }

    pub(super) fn describe_thread(&mut self, bytes: &[u8]) {
        const REFERENCE_US: u32 = 6;
        let thread = ThreadTrack::read(bytes);
        self.thread = Some((thread.pid, thread.tid));
        for (number, value, _) in Fields::new(bytes).flatten() {
            if number == REFERENCE_US {
                self.reference_ns = (value.uint().unwrap_or(0) as i64).saturating_mul(1000);
            }
        }
    }

    /// Returns the time of an event, on the timeline's clock.
    pub(super) fn time(
        &mut self,
        number: u64,
        p: &Packet<'_>,
        event: &TrackEvent<'_>,
        all: &mut Clocks,
    ) -> Option<i64> {
        if let Some(us) = event.delta_us {
            self.reference_ns = self.reference_ns.checked_add(us.checked_mul(1000)?)?;
            return all.on_timeline((0, BOOTTIME), self.reference_ns);
        }
        if let Some(us) = event.absolute_us {
            return all.on_timeline((0, BOOTTIME), us.checked_mul(1000)?);
        }
        let clock = p.clock.or(self.clock).unwrap_or(BOOTTIME);
        all.time(clocks::id(number, clock), p.timestamp?)
    }
}

fn lossy(value: Field<'_>) -> Box<str> {
    String::from_utf8_lossy(value.bytes().unwrap_or_default()).into()
}

/// Appends one number, or several numbers that are packed in one field.
fn numbers(value: Field<'_>, to: &mut Vec<u64>) {
    let Some(mut packed) = value.bytes() else {
        to.extend(value.uint());
        return;
    };
    while let Ok((n, used)) = varint(packed) {
        to.push(n);
        packed = &packed[used..];
    }
}

/// Appends one number of eight bytes, or several that are packed in one field.
fn fixed(value: Field<'_>, to: &mut Vec<u64>) {
    match value.bytes() {
        Some(packed) => {
            to.extend(packed.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)));
        }
        None => to.extend(value.uint()),
    }
}

#[derive(Default)]
pub(super) struct TrackEvent<'a> {
    kind: u64,
    track: Option<u64>,
    category_iids: Vec<u64>,
    categories: Vec<&'a [u8]>,
    name_iid: Option<u64>,
    name: Option<&'a [u8]>,
    annotations: Vec<&'a [u8]>,
    flows: Vec<u64>,
    ends: Vec<u64>,
    value: Option<f64>,
    extra_tracks: Vec<u64>,
    extra_values: Vec<u64>,
    extra_double_tracks: Vec<u64>,
    extra_doubles: Vec<u64>,
    delta_us: Option<i64>,
    absolute_us: Option<i64>,
    legacy: Option<&'a [u8]>,
}

impl<'a> TrackEvent<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Self {
        let mut e = Self::default();
        for (number, value, _) in Fields::new(bytes).flatten() {
            match number {
                event::TYPE => e.kind = value.uint().unwrap_or(0),
                event::TRACK_UUID => e.track = value.uint(),
                event::CATEGORY_IIDS => numbers(value, &mut e.category_iids),
                event::CATEGORIES => e.categories.extend(value.bytes()),
                event::NAME_IID => e.name_iid = value.uint(),
                event::NAME => e.name = value.bytes(),
                event::ANNOTATIONS => e.annotations.extend(value.bytes()),
                event::FLOW_IDS => fixed(value, &mut e.flows),
                event::TERMINATING_FLOW_IDS => fixed(value, &mut e.ends),
                event::OLD_FLOW_IDS => numbers(value, &mut e.flows),
                event::OLD_TERMINATING_FLOW_IDS => numbers(value, &mut e.ends),
                event::COUNTER_VALUE => e.value = value.uint().map(|n| n as i64 as f64),
                event::DOUBLE_COUNTER_VALUE => e.value = value.uint().map(f64::from_bits),
                event::EXTRA_COUNTER_TRACKS => numbers(value, &mut e.extra_tracks),
                event::EXTRA_COUNTER_VALUES => numbers(value, &mut e.extra_values),
                event::EXTRA_DOUBLE_TRACKS => numbers(value, &mut e.extra_double_tracks),
                event::EXTRA_DOUBLE_VALUES => fixed(value, &mut e.extra_doubles),
                event::DELTA_US => e.delta_us = value.uint().map(|n| n as i64),
                event::ABSOLUTE_US => e.absolute_us = value.uint().map(|n| n as i64),
                event::LEGACY => e.legacy = value.bytes(),
                _ => {}
            }
        }
        e
    }
}

impl<S: EventSink + ?Sized> Reader<'_, S> {
    pub(super) fn track_event(
        &mut self,
        sequence: &Sequence,
        e: &TrackEvent<'_>,
        at_ns: i64,
    ) -> Done {
        let track = e.track.or(sequence.track);
        let row = match (track, sequence.thread) {
            (None, Some((pid, tid))) => self.row((Id::Number(pid), Id::Number(tid))),
            (track, _) => self.row_of(track.unwrap_or(0)),
        };
        let text = |texts: &HashMap<u64, Box<str>>, iid: u64| texts.get(&iid).cloned();
        let mut lost = 0;
        let mut categories: Vec<Cow<'_, str>> =
            e.categories.iter().map(|c| String::from_utf8_lossy(c)).collect();
        for iid in &e.category_iids {
            match sequence.categories.get(iid).and_then(|known| self.room.take(known)) {
                Some(known) => categories.push(Cow::Borrowed(known)),
                None => lost += 1,
            }
        }
        let category = categories.join(",").into_boxed_str();
        let name = match (e.name, e.name_iid) {
            (Some(name), _) => String::from_utf8_lossy(name).into(),
            (None, Some(iid)) => text(&sequence.names, iid).unwrap_or_else(|| {
                lost += 1;
                Box::default()
            }),
            (None, None) => Box::default(),
        };
        let (args, bad) = arguments(sequence, e, &self.room);
        lost += bad;
        let flows =
            e.flows.iter().map(|id| (*id, false)).chain(e.ends.iter().map(|id| (*id, true)));
        let pending = Pending {
            phase: b'X',
            category,
            name,
            at_ns,
            args,
            lost,
            flows: flows.collect(),
            ..Pending::default()
        };
        self.extra_counters(sequence, e, at_ns)?;
        if let (0, Some(bytes)) = (e.kind, e.legacy) {
            return self.legacy(sequence, bytes, pending, row);
        }
        let track = track.unwrap_or(row as u64 | 1 << 63);
        match e.kind {
            event::SLICE_BEGIN => {
                let place = self.rows[row].gone + self.rows[row].queue.len() as u64;
                let open = self.open.entry(track).or_default();
                let last = open.len().saturating_sub(MOST_LATER);
                let outer = open[last..].iter().rposition(|(.., begin)| *begin <= at_ns);
                open.insert(outer.map_or(last, |at| last + at + 1), (row, place, at_ns));
                self.put(row, Pending { open: true, ..pending })
            }
            event::SLICE_END => {
                let begun = self.open.get_mut(&track).and_then(|open| {
                    let last = open.len().saturating_sub(MOST_LATER);
                    let at = open[last..].iter().rposition(|(.., begin)| *begin <= at_ns)?;
                    Some(open.remove(last + at))
                });
                let of_queue = begun.and_then(|(row, place, _)| {
                    let queue = &mut self.rows[row];
                    let at = usize::try_from(place.checked_sub(queue.gone)?).ok()?;
                    Some((row, queue.queue.get_mut(at)?))
                });
                let Some((row, begin)) = of_queue else {
                    // The start of the slice was already passed on, or is missing in the trace.
                    let row = begun.map_or(row, |(row, ..)| row);
                    return self.give(row, &Pending { phase: b'E', ..pending });
                };
                begin.open = false;
                begin.duration_ns = Some(at_ns.saturating_sub(begin.at_ns));
                begin.lost += pending.lost;
                begin.flows.extend(pending.flows);
                // The end of a slice may have arguments, too.
                if let Some(more) = pending.args.strip_prefix(b"{") {
                    if begin.args.pop().is_some() {
                        begin.args.push(b',');
                        begin.args.extend_from_slice(more);
                    } else {
                        begin.args = pending.args;
                    }
                }
                self.drain(row)
            }
            event::COUNTER => match (track, e.value) {
                (track, Some(value)) => self.value(track, at_ns, value),
                (_, None) => {
                    self.summary.lost += 1;
                    Ok(())
                }
            },
            event::INSTANT => self.give(row, &Pending { phase: b'i', ..pending }),
            _ => {
                self.summary.skipped += 1;
                Ok(())
            }
        }
    }

    /// Handles counter values in the packet of another event.
    fn extra_counters(&mut self, sequence: &Sequence, e: &TrackEvent<'_>, at_ns: i64) -> Done {
        let or = |own: &[u64], default: &[u64]| match own {
            [] => default.to_vec(),
            own => own.to_vec(),
        };
        if !e.extra_values.is_empty() {
            let tracks = or(&e.extra_tracks, &sequence.extra_tracks);
            self.summary.lost += e.extra_values.len().saturating_sub(tracks.len()) as u64;
            for (track, value) in tracks.into_iter().zip(&e.extra_values) {
                self.value(track, at_ns, *value as i64 as f64)?;
            }
        }
        if !e.extra_doubles.is_empty() {
            let tracks = or(&e.extra_double_tracks, &sequence.extra_double_tracks);
            self.summary.lost += e.extra_doubles.len().saturating_sub(tracks.len()) as u64;
            for (track, bits) in tracks.into_iter().zip(&e.extra_doubles) {
                self.value(track, at_ns, f64::from_bits(*bits))?;
            }
        }
        Ok(())
    }

    fn value(&mut self, uuid: u64, at_ns: i64, mut value: f64) -> Done {
        let (process, _) = self.tracks.row(uuid);
        let track = self.tracks.get(uuid);
        let (name, counter) = track.map_or(("", None), |t| (t.name.as_str(), t.counter.as_ref()));
        let name = if name.is_empty() { format!("counter {uuid}") } else { name.to_owned() };
        if let Some(counter) = counter {
            value *= counter.multiplier as f64;
            if counter.incremental {
                let sum = self.sums.entry(uuid).or_default();
                *sum += value;
                value = *sum;
            }
        }
        let unit = counter.map_or("", |c| c.unit.as_str());
        let mut args = b"{".to_vec();
        text::string(&mut args, if unit.is_empty() { "value" } else { unit });
        args.push(b':');
        match value.abs() < 9e15 && value.fract() == 0.0 {
            true => text::int(&mut args, value as i64),
            false => text::float(&mut args, value),
        }
        args.push(b'}');
        let first = *self.counters.entry((process.clone(), name.as_str().into())).or_insert(uuid);
        let event = Event {
            phase: b'C',
            name: Some(Cow::Borrowed(&name)),
            pid: Some(process.scalar()),
            time_ns: Some(at_ns),
            id: (first != uuid).then(|| Scalar::Text(format!("{uuid:#x}").into())),
            args: str::from_utf8(&args).ok().map(Raw::of),
            ..Event::default()
        };
        self.summary.events += 1;
        self.summary.lost += u64::from(!value.is_finite());
        self.sink.event(self.summary.bytes, &event)
    }

    /// Handles an event in Chrome's own format, which keeps its phase.
    fn legacy(&mut self, sequence: &Sequence, bytes: &[u8], mut of: Pending, row: usize) -> Done {
        let (mut duration_us, mut id, mut scope) = (None, None, None);
        let (mut pid, mut tid) = (None, None);
        for (number, value, _) in Fields::new(bytes).flatten() {
            match number {
                legacy::NAME_IID => {
                    let known = value.uint().and_then(|iid| sequence.names.get(&iid));
                    of.name = known.cloned().unwrap_or(of.name);
                }
                legacy::PHASE => {
                    // A phase must be an ASCII character, as in Chrome's format. Any other phase
                    // counts as missing.
                    let phase = value.uint().and_then(|n| u8::try_from(n).ok());
                    of.phase = phase.filter(u8::is_ascii).unwrap_or(0)
                }
                legacy::DURATION_US => duration_us = value.uint().map(|n| n as i64),
                legacy::UNSCOPED_ID | legacy::GLOBAL_ID => id = value.uint().map(|n| (n, false)),
                legacy::LOCAL_ID => id = value.uint().map(|n| (n, true)),
                legacy::ID_SCOPE => scope = Some(lossy(value)),
                legacy::PID => pid = value.uint().map(|n| n as i32 as i64),
                legacy::TID => tid = value.uint().map(|n| n as i32 as i64),
                _ => {}
            }
        }
        let row = match (pid, tid) {
            (None, None) => row,
            (pid, tid) => {
                let known = &self.rows[row];
                let process = pid.map_or(known.process.clone(), Id::Number);
                self.row((process, tid.map_or(known.thread.clone(), Id::Number)))
            }
        };
        let duration_ns =
            duration_us.map(|us| us.saturating_mul(1000)).filter(|_| of.phase == b'X');
        let mut other = Vec::new();
        let local = id.map(|(id, _)| format!("{{\"local\":\"{id:#x}\"}}"));
        let scope_json = scope.map(|scope| serde_json::Value::from(&*scope).to_string());
        if let (Some((_, true)), Some(json)) = (id, &local) {
            other.push((Cow::Borrowed("id2"), Raw::of(json)));
        }
        if let Some(json) = &scope_json {
            other.push((Cow::Borrowed("scope"), Raw::of(json)));
        }
        let known = &self.rows[row];
        let event = Event {
            phase: of.phase,
            name: Some(Cow::Borrowed(&*of.name)),
            category: Some(Cow::Borrowed(&*of.category)).filter(|c| !c.is_empty()),
            pid: Some(known.process.scalar()),
            tid: Some(known.thread.scalar()),
            time_ns: Some(of.at_ns),
            duration_ns,
            id: id
                .filter(|(_, local)| !local)
                .map(|(id, _)| Scalar::Text(format!("{id:#x}").into())),
            args: str::from_utf8(&of.args).ok().filter(|a| !a.is_empty()).map(Raw::of),
            other,
            lost: of.lost,
            ..Event::default()
        };
        self.summary.events += 1;
        self.summary.lost += u64::from(of.lost);
        self.sink.event(self.summary.bytes, &event)
    }
}

/// Returns the arguments as a JSON object, or an empty text, and the number of values that could
/// not be read.
fn arguments(sequence: &Sequence, e: &TrackEvent<'_>, room: &Room) -> (Vec<u8>, u32) {
    if e.annotations.is_empty() {
        return (Vec::new(), 0);
    }
    let texts = Texts { names: &sequence.keys, values: &sequence.values, room };
    let (mut out, mut lost) = (b"{".to_vec(), 0);
    for annotation in &e.annotations {
        lost += args::member(&mut out, annotation, &texts);
    }
    out.push(b'}');
    (out, lost)
}
