//! Checks, packet by packet, that a file is a trace in Perfetto's format.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, BufReader, Read};

use flate2::read::ZlibDecoder;

use super::decode::{Damage, Field, Fields, varint};
use super::extras::MOST_EXTRAS;
use super::fields::{clocks, defaults, event, interned, packet, trace};
use crate::check::Report;

/// The size in bytes of the largest packet that is accepted. A larger packet is a finding.
const MOST_PACKET: u64 = 1 << 28;
/// How many bytes of a compressed packet's content are decompressed at most.
const MOST_UNCOMPRESSED: u64 = 1 << 30;

/// Reads the file, at most up to a place where no valid packet starts, and returns the findings
/// about it.
pub fn check(source: impl Read) -> io::Result<Report> {
    let mut source = BufReader::with_capacity(1 << 18, source);
    let mut check = Check::default();
    let (mut at, mut body) = (0u64, Vec::new());
    loop {
        // A tag and a length take at most 20 bytes.
        let mut head = Vec::with_capacity(20);
        let mut values = [0u64; 2];
        for value in &mut values {
            let from = head.len();
            *value = loop {
                let Some(byte) = next_byte(&mut source)? else { break None };
                head.push(byte);
                match varint(&head[from..]) {
                    Ok((n, _)) => break Some(n),
                    Err(_) if head.len() - from < 10 => {}
                    Err(_) => break None,
                }
            }
            .unwrap_or(u64::MAX);
        }
        if head.is_empty() {
            return Ok(check.finish(at));
        }
        let [tag, length] = values;
        if tag != u64::from(trace::PACKET << 3 | 2) || length > MOST_PACKET {
            check.report.find(
                at,
                "damaged framing",
                "no packet starts here, so the rest is not read",
            );
            return Ok(check.finish(at));
        }
        let start = at + head.len() as u64;
        body.clear();
        let read = (&mut source).take(length).read_to_end(&mut body)? as u64;
        if read < length {
            let what =
                format!("a packet has {length} bytes, but only {read} of them are in the file");
            check.report.find(at, "truncated", what);
            return Ok(check.finish(at));
        }
        check.packet(start, &body, true);
        at = start + length;
    }
}

fn next_byte(source: &mut impl BufRead) -> io::Result<Option<u8>> {
    let byte = source.fill_buf()?.first().copied();
    source.consume(usize::from(byte.is_some()));
    Ok(byte)
}

#[derive(Default)]
struct Check {
    report: Report,
    sequences: HashMap<u64, Sequence>,
    open: HashMap<u64, u64>,
    /// For each flow: where it was first seen, and whether it was seen again.
    flows: HashMap<u64, (u64, bool)>,
    packets: u64,
    /// The clock on which viewers display times, and its latest time in the snapshots so far.
    shown_on: Option<u64>,
    shown_ns: Option<u64>,
}

#[derive(Default)]
struct Sequence {
    cleared: bool,
    /// The numbers of categories, of event names and of annotation names that the sequence has
    /// defined.
    known: [HashSet<u64>; 3],
    clocks: HashSet<u64>,
    track: u64,
    /// The number of tracks that the sequence's defaults give for the counter values of an event.
    extra_tracks: usize,
    clock: u64,
}

#[derive(Default)]
struct Packet<'a> {
    sequence: u64,
    flags: u64,
    timestamp: Option<u64>,
    clock: Option<u64>,
    event: Option<(&'a [u8], usize)>,
    interned: Vec<(&'a [u8], usize)>,
    snapshot: Option<(&'a [u8], usize)>,
    defaults: Option<(&'a [u8], usize)>,
    compressed: Option<(&'a [u8], usize)>,
}

impl Check {
    fn finish(mut self, at: u64) -> Report {
        if self.packets == 0 {
            self.report.find(0, "nothing in it", "no packet at all");
        }
        let open: u64 = self.open.values().sum();
        if open > 0 {
            let what = format!("{open} slices that never end");
            self.report.find(at, "begin without an end", what);
        }
        let mut alone: Vec<(u64, u64)> = self
            .flows
            .iter()
            .filter(|(_, (_, again))| !again)
            .map(|(id, (at, _))| (*at, *id))
            .collect();
        alone.sort_unstable();
        for (at, id) in alone {
            let what = format!("flow {id} has only one end");
            self.report.find(at, "a flow with only one end", what);
        }
        self.report.findings.sort_by_key(|finding| finding.at);
        self.report
    }

    fn damage(&mut self, at: u64, damage: Damage) {
        self.report.find(at + damage.at as u64, "damaged message", damage.what);
    }

    /// Calls `each` with every field of a message, and reports damage as a finding. Damage becomes
    /// a finding.
    fn each<'a>(&mut self, at: u64, bytes: &'a [u8], mut each: impl FnMut(u32, Field<'a>, usize)) {
        for field in Fields::new(bytes) {
            match field {
                Ok((number, value, place)) => each(number, value, place),
                Err(damage) => self.damage(at, damage),
            }
        }
    }

    fn packet(&mut self, at: u64, bytes: &[u8], outer: bool) {
        self.packets += 1;
        self.report.count("packets");
        let mut p = Packet::default();
        self.each(at, bytes, |number, value, place| {
            let message = value.bytes().map(|bytes| (bytes, place));
            match number {
                packet::SEQUENCE_ID => p.sequence = value.uint().unwrap_or(0),
                packet::SEQUENCE_FLAGS => p.flags = value.uint().unwrap_or(0),
                packet::TIMESTAMP => p.timestamp = value.uint(),
                packet::TIMESTAMP_CLOCK_ID => p.clock = value.uint(),
                packet::TRACK_EVENT => p.event = message,
                packet::INTERNED_DATA => p.interned.extend(message),
                packet::CLOCK_SNAPSHOT => p.snapshot = message,
                packet::DEFAULTS => p.defaults = message,
                packet::COMPRESSED_PACKETS => p.compressed = message,
                _ => {}
            }
        });
        if let Some((bytes, place)) = p.compressed {
            self.compressed(at + place as u64, bytes, outer);
            return;
        }
        let mut sequence = self.sequences.remove(&p.sequence).unwrap_or_default();
        self.in_sequence(at, &p, &mut sequence);
        self.sequences.insert(p.sequence, sequence);
    }

    /// Findings inside of a compressed packet have the place of the packet.
    fn compressed(&mut self, at: u64, bytes: &[u8], outer: bool) {
        self.report.count("compressed packets");
        // A compressed packet inside of a compressed packet is not decompressed: a thousand bytes
        // could become a million bytes, and each thousand of these a million again.
        if !outer {
            self.report.find(at, "damaged message", "compressed twice");
            return;
        }
        let mut packets = Vec::new();
        let read = ZlibDecoder::new(bytes).take(MOST_UNCOMPRESSED).read_to_end(&mut packets);
        if read.is_err() {
            self.report.find(at, "damaged message", "its compression is damaged");
            return;
        }
        let mut inside = Vec::new();
        self.each(at, &packets, |number, value, _| {
            inside.extend(value.bytes().filter(|_| number == trace::PACKET));
        });
        for one in inside {
            self.packet(at, one, false);
        }
    }

    fn in_sequence(&mut self, at: u64, p: &Packet<'_>, sequence: &mut Sequence) {
        if p.flags & packet::STATE_CLEARED != 0 {
            *sequence = Sequence { cleared: true, ..Sequence::default() };
        }
        if p.flags & packet::NEEDS_STATE != 0 && !sequence.cleared {
            let what = format!("sequence {} needs a state that was never set", p.sequence);
            self.report.find(at, "a sequence without its state", what);
        }
        if let Some((bytes, place)) = p.snapshot {
            let mut all = Vec::new();
            let at = at + place as u64;
            let mut primary = None;
            self.each(at, bytes, |number, value, place| match number {
                clocks::CLOCKS => all.extend(value.bytes().map(|bytes| (bytes, place))),
                clocks::PRIMARY => primary = value.uint(),
                _ => {}
            });
            let mut shown = Vec::new();
            for (clock, place) in all {
                let (mut id, mut time) = (0, 0);
                self.each(at + place as u64, clock, |number, value, _| match number {
                    clocks::ID => id = value.uint().unwrap_or(0),
                    clocks::TIMESTAMP => time = value.uint().unwrap_or(0),
                    _ => {}
                });
                sequence.clocks.insert(id);
                shown.push((id, time));
            }
            self.snapshot(at, primary, &shown);
        }
        if let Some((bytes, place)) = p.defaults {
            let at = at + place as u64;
            let mut track = None;
            self.each(at, bytes, |number, value, place| match number {
                defaults::TIMESTAMP_CLOCK_ID => sequence.clock = value.uint().unwrap_or(0),
                defaults::TRACK_EVENT => track = value.bytes().map(|bytes| (bytes, place)),
                _ => {}
            });
            sequence.extra_tracks = 0;
            let (track, place) = track.unwrap_or_default();
            self.each(at + place as u64, track, |number, value, _| match number {
                defaults::TRACK_UUID => sequence.track = value.uint().unwrap_or(0),
                defaults::EXTRA_COUNTER_TRACKS => sequence.extra_tracks += 1,
                _ => {}
            });
        }
        for (bytes, place) in &p.interned {
            self.intern(at + *place as u64, bytes, sequence);
        }
        if let Some((bytes, place)) = p.event {
            self.event(at + place as u64, bytes, p, sequence);
        }
    }

    /// Checks that the clock on which times are displayed does not go back. A snapshot with clocks
    /// of a sequence of packets is not checked, because it only relates these clocks to others.
    fn snapshot(&mut self, at: u64, primary: Option<u64>, clocks: &[(u64, u64)]) {
        if clocks.iter().any(|(id, _)| *id >= clocks::OF_SEQUENCE) {
            return;
        }
        let shown_on = *self.shown_on.get_or_insert(primary.unwrap_or(clocks::BOOTTIME));
        let Some((_, now)) = clocks.iter().find(|(id, _)| *id == shown_on) else { return };
        let before = self.shown_ns.replace(*now).unwrap_or(0);
        if before > *now {
            let what =
                format!("clock {shown_on} at {now} ns, and at {before} ns in a snapshot before");
            self.report.find(at, "snapshots of clocks out of order", what);
            self.shown_ns = Some(before);
        }
    }

    fn intern(&mut self, at: u64, bytes: &[u8], sequence: &mut Sequence) {
        let mut entries = Vec::new();
        self.each(at, bytes, |number, value, place| {
            let kind = match number {
                interned::CATEGORIES => 0,
                interned::NAMES => 1,
                interned::ANNOTATION_NAMES => 2,
                _ => return,
            };
            entries.extend(value.bytes().map(|bytes| (kind, bytes, at + place as u64)));
        });
        for (kind, entry, at) in entries {
            let mut bad_text = false;
            self.each(at, entry, |number, value, _| match number {
                interned::IID => sequence.known[kind].extend(value.uint()),
                interned::TEXT => {
                    bad_text |= value.bytes().is_none_or(|text| str::from_utf8(text).is_err());
                }
                _ => {}
            });
            if bad_text {
                self.report.find(at, "text that is not UTF-8", "a name that is not UTF-8");
            }
        }
    }

    fn event(&mut self, at: u64, bytes: &[u8], p: &Packet<'_>, sequence: &Sequence) {
        let (mut kind, mut track) = (0, sequence.track);
        let (mut values, mut tracks) = (0, 0);
        let (mut zero, mut after_zero) = (false, 0);
        let mut flows = Vec::new();
        let mut used: [Vec<u64>; 3] = Default::default();
        let mut annotations = Vec::new();
        self.each(at, bytes, |number, value, _| match number {
            event::TYPE => kind = value.uint().unwrap_or(0),
            event::TRACK_UUID => track = value.uint().unwrap_or(0),
            event::CATEGORY_IIDS => used[0].extend(value.uint()),
            event::NAME_IID => used[1].extend(value.uint()),
            event::ANNOTATIONS => annotations.extend(value.bytes()),
            event::EXTRA_COUNTER_VALUES => {
                values += 1;
                let value = value.uint().unwrap_or(0);
                after_zero += u32::from(zero && value != 0);
                zero |= value == 0;
            }
            event::EXTRA_COUNTER_TRACKS => tracks += 1,
            event::FLOW_IDS | event::TERMINATING_FLOW_IDS => flows.extend(value.uint()),
            _ => {}
        });
        for flow in flows {
            self.flows.entry(flow).and_modify(|(_, again)| *again = true).or_insert((at, false));
        }
        // If an event has more than `most` counter values, Perfetto's importer drops the whole
        // event.
        let most = MOST_EXTRAS.min(if tracks > 0 { tracks } else { sequence.extra_tracks });
        if values > most {
            let what = format!("an event has {values} counter values, but tracks for only {most}");
            self.report.find(at, "values without a track", what);
        }
        if after_zero > 0 {
            let what = format!(
                "{after_zero} of {values} counter values in one event follow a 0, so \
                 Perfetto reads them as 0"
            );
            self.report.find(at, "values after a 0", what);
        }
        (0..values).for_each(|_| self.report.count("counter samples"));
        for annotation in annotations {
            self.each(at, annotation, |number, value, _| {
                if number == super::fields::annotation::NAME_IID {
                    used[2].extend(value.uint());
                }
            });
        }
        let names = ["category", "name", "name of an annotation"];
        for ((known, used), name) in sequence.known.iter().zip(used).zip(names) {
            for iid in used.into_iter().filter(|iid| !known.contains(iid)) {
                let what = format!("{name} {iid} of sequence {}: never interned", p.sequence);
                self.report.find(at, "a text that is not there", what);
            }
        }
        let clock = p.clock.unwrap_or(sequence.clock);
        let of_sequence = (clocks::OF_SEQUENCE..128).contains(&clock);
        if of_sequence && !sequence.clocks.contains(&clock) {
            let what = format!("clock {clock} of sequence {}: never set", p.sequence);
            self.report.find(at, "an unknown clock", what);
        }
        if p.timestamp.is_none() {
            self.report.find(at, "an event without a time", "an event without a time");
        }
        match kind {
            event::SLICE_BEGIN => {
                self.report.count("slices");
                *self.open.entry(track).or_insert(0) += 1;
            }
            event::SLICE_END => match self.open.get_mut(&track).filter(|open| **open > 0) {
                Some(open) => *open -= 1,
                None => {
                    let what = format!("an end without a begin before it on track {track}");
                    self.report.find(at, "end without a begin", what);
                }
            },
            event::INSTANT => self.report.count("instants"),
            event::COUNTER => self.report.count("counter samples"),
            _ => self.report.count("other events"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perfetto::write::{PerfettoHead, Writer};
    use crate::timeline::{Arg, Id, Row, Slice, TimelineSink};

    fn trace(compress: bool) -> Vec<u8> {
        let head = PerfettoHead { clocks: vec![(1_000, 1)], compress };
        let mut writer = Writer::new(Vec::new(), &head).unwrap();
        let row = Row { process: Id::Number(1), thread: Id::Text("t") };
        for (start_ns, name) in [(2_000, "a"), (2_010, "b"), (2_500, "é")] {
            let args = [Arg::uint("n", 7)];
            let slice = Slice {
                row,
                category: "kernel",
                name,
                start_ns,
                duration_ns: 100,
                args: &args,
                shape: None,
                label: None,
                flows: &[],
                counters: &[],
            };
            writer.slice(&slice).unwrap();
        }
        writer.finish([]).unwrap()
    }

    #[test]
    fn our_own_output_has_no_findings() {
        for compress in [false, true] {
            let report = check(&trace(compress)[..]).unwrap();
            assert_eq!(report.findings, []);
            assert_eq!(report.contents["slices"], 3);
        }
    }

    #[test]
    fn counter_values_need_tracks() {
        use crate::perfetto::encode::Encoder;
        let event = |defaults: usize, tracks: usize, values: usize| {
            let mut out = Encoder::default();
            out.message(trace::PACKET, |p| {
                p.uint(packet::SEQUENCE_ID, 1);
                p.uint(packet::SEQUENCE_FLAGS, packet::STATE_CLEARED);
                p.uint(packet::TIMESTAMP, 5);
                p.message(packet::DEFAULTS, |d| {
                    d.message(defaults::TRACK_EVENT, |t| {
                        (0..defaults).for_each(|_| t.uint(defaults::EXTRA_COUNTER_TRACKS, 7));
                    });
                });
                p.message(packet::TRACK_EVENT, |e| {
                    e.uint(event::TYPE, event::INSTANT);
                    (0..tracks).for_each(|_| e.uint(event::EXTRA_COUNTER_TRACKS, 7));
                    (0..values).for_each(|_| e.uint(event::EXTRA_COUNTER_VALUES, 1));
                });
            });
            check(&out.bytes[..]).unwrap()
        };
        for (defaults, tracks, values, wrong) in [
            (0, 0, 0, 0),
            (2, 0, 2, 0),
            (0, 2, 2, 0),
            (8, 0, 8, 0),
            (0, 0, 1, 1),
            (2, 0, 3, 1),
            (3, 2, 3, 1),
            (9, 0, 9, 1),
        ] {
            let report = event(defaults, tracks, values);
            assert_eq!(report.wrong(), wrong, "{defaults} {tracks} {values}");
            let samples = report.contents.get("counter samples").copied().unwrap_or(0);
            assert_eq!(samples, values as u64);
        }
    }

    #[test]
    fn values_that_perfetto_reads_as_0_are_found() {
        use crate::perfetto::encode::Encoder;
        for (values, wrong) in
            [(&[1i64, 2, 0, 0][..], 0), (&[0, 0], 0), (&[0, 1], 1), (&[3, 0, -1, 0], 1)]
        {
            let mut out = Encoder::default();
            out.message(trace::PACKET, |p| {
                p.uint(packet::TIMESTAMP, 5);
                p.message(packet::TRACK_EVENT, |e| {
                    e.uint(event::TYPE, event::INSTANT);
                    values.iter().for_each(|_| e.uint(event::EXTRA_COUNTER_TRACKS, 7));
                    values.iter().for_each(|value| e.int(event::EXTRA_COUNTER_VALUES, *value));
                });
            });
            let report = check(&out.bytes[..]).unwrap();
            assert_eq!(report.counts.get("values after a 0").copied().unwrap_or(0), wrong);
            assert_eq!(report.wrong(), wrong, "{values:?}");
        }
    }

    #[test]
    fn snapshots_are_in_the_order_of_time() {
        use crate::perfetto::encode::Encoder;
        type Clocks = &'static [(u64, u64)];
        let all: [(&[Clocks], Option<u64>, u64); 6] = [
            (&[&[(1, 10), (3, 5)], &[(1, 10), (3, 6)], &[(1, 12), (3, 8)]], Some(1), 0),
            (&[&[(1, 10), (3, 5)], &[(1, 9), (3, 6)], &[(1, 9), (3, 8)]], Some(1), 2),
            // Clocks on which times are not displayed may be set back, and snapshots with clocks of
            // a sequence are not checked.
            (&[&[(1, 10), (3, 5)], &[(1, 9), (3, 6)]], Some(3), 0),
            (&[&[(1, 10)], &[(1, 9), (64, 9)]], Some(1), 0),
            (&[&[(6, 10)], &[(6, 9)]], None, 1),
            (&[&[(1, 10)], &[(1, 9)]], None, 0),
        ];
        for (snapshots, primary, wrong) in all {
            let mut out = Encoder::default();
            for snapshot in snapshots {
                out.message(trace::PACKET, |p| {
                    p.message(packet::CLOCK_SNAPSHOT, |s| {
                        for (id, at) in *snapshot {
                            s.message(clocks::CLOCKS, |c| {
                                c.uint(clocks::ID, *id);
                                c.uint(clocks::TIMESTAMP, *at);
                            });
                        }
                        primary.iter().for_each(|id| s.uint(clocks::PRIMARY, *id));
                    });
                });
            }
            assert_eq!(check(&out.bytes[..]).unwrap().wrong(), wrong, "{snapshots:?}");
        }
    }

    #[test]
    fn a_cut_anywhere_is_found_at_its_place() {
        let whole = trace(false);
        let mut ends = vec![0];
        for (_, value, place) in Fields::new(&whole).map(|f| f.unwrap()) {
            ends.push(place + value.bytes().unwrap().len());
        }
        for cut in 0..whole.len() {
            let report = check(&whole[..cut]).unwrap();
            let last_end = *ends.iter().filter(|end| **end <= cut).max().unwrap() as u64;
            if ends.contains(&cut) {
                assert!(!report.counts.contains_key("truncated"), "{cut}");
            } else {
                let damaged = |f: &crate::check::Finding| f.at == last_end;
                assert!(report.findings.iter().any(damaged), "{cut}: {:?}", report.findings);
            }
        }
    }

    #[test]
    fn a_lost_packet_is_noticed() {
        let whole = trace(false);
        let packets: Vec<(usize, usize)> = Fields::new(&whole)
            .map(|f| f.unwrap())
            .map(|(_, value, place)| (place, place + value.bytes().unwrap().len()))
            .collect();
        let mut noticed = 0;
        for lost in 0..packets.len() {
            let mut bytes = Vec::new();
            let mut from = 0;
            for (i, (_, end)) in packets.iter().enumerate() {
                if i != lost {
                    bytes.extend_from_slice(&whole[from..*end]);
                }
                from = *end;
            }
            noticed += u64::from(check(&bytes[..]).unwrap().wrong() > 0);
        }
        // The loss of a packet is noticed, except for six packets: the one with clocks, the one with
        // metadata, and those that describe the four tracks (of the process, the row, the lane and
        // the lane's row).
        assert_eq!(noticed, packets.len() as u64 - 6);
    }
}
