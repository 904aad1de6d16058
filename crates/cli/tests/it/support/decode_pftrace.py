"""Reads a .pftrace with the classes generated from Perfetto's published definitions and prints
its content as JSON: slices, counters, clocks, metadata. Follows the rules that Perfetto documents
for sequences (incremental state, interning, defaults, clocks), and fails if the file breaks one."""

import json
import sys
import zlib

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb


def no_unknown(message):
    # Counterpoint adds one field of its own to Perfetto's definitions (docs/traces.md).
    ours = {2041} if message.DESCRIPTOR.name == "TracePacket" else set()
    assert all(f.field_number in ours for f in UnknownFieldSet(message)), message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for one in value if hasattr(value, "__len__") else [value]:
            no_unknown(one)


def packets(data):
    trace = pb.Trace()
    trace.ParseFromString(data)
    for packet in trace.packet:
        if packet.HasField("compressed_packets"):
            yield from packets(zlib.decompress(packet.compressed_packets))
        else:
            yield packet


class Sequence:
    def __init__(self):
        self.cleared = False
        self.reset()

    def reset(self):
        self.categories, self.names, self.keys = {}, {}, {}
        self.clock, self.now, self.track, self.extra_tracks = None, None, None, []


def annotation(seq, a):
    kind = a.WhichOneof("value")
    value = getattr(a, kind)
    return seq.keys[a.name_iid], json.loads(value) if kind == "legacy_json_value" else value


def main(path):
    sequences, tracks, open_slices = {}, {}, {}
    out = {"slices": [], "counters": [], "instants": [], "clocks": [], "metadata": {}}
    real, primary = set(), None
    with open(path, "rb") as file:
        data = file.read()
    events = []
    for packet in packets(data):
        no_unknown(packet)
        seq = sequences.setdefault(packet.trusted_packet_sequence_id, Sequence())
        assert packet.trusted_packet_sequence_id != 0
        if packet.sequence_flags & 1:
            seq.reset()
            seq.cleared = True
        if packet.sequence_flags & 2:
            assert seq.cleared, "a packet needs state that was never set"
        if packet.HasField("clock_snapshot"):
            snapshot = packet.clock_snapshot
            clocks = {c.clock_id: c for c in snapshot.clocks}
            if 64 in clocks:
                assert clocks[64].is_incremental
                assert clocks[64].timestamp == clocks[1].timestamp
                seq.now = clocks[64].timestamp
            else:
                primary = snapshot.primary_trace_clock
                out["clocks"].append({c: clocks[c].timestamp for c in clocks})
        if packet.HasField("trace_packet_defaults"):
            defaults = packet.trace_packet_defaults
            seq.clock, seq.track = (
                defaults.timestamp_clock_id,
                defaults.track_event_defaults.track_uuid,
            )
            seq.extra_tracks = list(defaults.track_event_defaults.extra_counter_track_uuids)
        if packet.HasField("track_descriptor"):
            d = packet.track_descriptor
            assert d.uuid not in tracks, "a track is described twice"
            assert not d.HasField("parent_uuid") or d.parent_uuid in tracks, "parent after child"
            tracks[d.uuid] = d
        for entry in packet.interned_data.event_categories:
            seq.categories[entry.iid] = entry.name
        for entry in packet.interned_data.event_names:
            seq.names[entry.iid] = entry.name
        for entry in packet.interned_data.debug_annotation_names:
            seq.keys[entry.iid] = entry.name
        if packet.HasField("chrome_events"):
            for m in packet.chrome_events.metadata:
                out["metadata"][m.name] = json.loads(m.json_value)
        if not packet.HasField("track_event"):
            continue
        if packet.timestamp_clock_id == 0:
            assert seq.clock == 64
            seq.now += packet.timestamp
            at = seq.now
        else:
            assert packet.timestamp_clock_id == 1
            at = packet.timestamp
        e = packet.track_event
        uuid = e.track_uuid if e.HasField("track_uuid") else seq.track
        name = seq.names[e.name_iid] if e.HasField("name_iid") else None
        category = [seq.categories[c] for c in e.category_iids]
        args = dict(annotation(seq, a) for a in e.debug_annotations)
        assert len(args) == len(e.debug_annotations), "a slice has a key twice"
        flows = (list(e.flow_ids), list(e.terminating_flow_ids))
        # Counter values in the packet of an event have the event's time. Each value becomes an
        # event of its own, which is placed before the packet's event. Perfetto's importer drops an
        # event that has more than eight counter values, or that refers to unknown tracks.
        extra_tracks = list(e.extra_counter_track_uuids) or seq.extra_tracks
        assert len(e.extra_counter_values) <= min(8, len(extra_tracks))
        for track, value in zip(extra_tracks, e.extra_counter_values):
            assert tracks[track].HasField("counter"), "a counter value on a track that is not a counter"
            counter = (at, len(events), track, pb.TrackEvent.TYPE_COUNTER)
            events.append((*counter, None, [], {}, ([], []), value))
        value = None
        if e.type == pb.TrackEvent.TYPE_COUNTER:
            value = e.counter_value if e.HasField("counter_value") else e.double_counter_value
        events.append((at, len(events), uuid, e.type, name, category, args, flows, value))

    assert primary == 1

    def row(uuid):
        d = tracks[uuid]
        parent = tracks.get(d.parent_uuid)
        process = (parent.process.process_name or parent.name) if parent else None
        return [process, d.thread.thread_name or d.name, d.process.pid, d.thread.tid]

    # Events are sorted by time, as in Perfetto's importer. Events with equal times keep the order
    # of the file.
    events.sort(key=lambda e: e[:2])
    for at, _, uuid, kind, name, category, args, flows, value in events:
        assert uuid in tracks, "an event is on a track without a description"
        stack = open_slices.setdefault(uuid, [])
        if kind == pb.TrackEvent.TYPE_SLICE_BEGIN:
            stack.append((at, name, category, args, flows))
        elif kind == pb.TrackEvent.TYPE_SLICE_END:
            begin, name, category, args, (start, finish) = stack.pop()
            out["slices"].append({
                "row": row(uuid), "name": name, "category": category, "start": begin,
                "duration": at - begin, "args": args, "from": start, "to": finish,
            })
        elif kind == pb.TrackEvent.TYPE_INSTANT:
            out["instants"].append({
                "row": row(uuid), "name": name, "category": category, "at": at, "args": args,
                "from": flows[0], "to": flows[1],
            })
        elif kind == pb.TrackEvent.TYPE_COUNTER:
            d = tracks[uuid]
            unit = d.counter.unit_name or pb.CounterDescriptor.Unit.Name(d.counter.unit)
            out["counters"].append({"name": d.name, "unit": unit, "at": at, "value": value})
        else:
            raise AssertionError(kind)
    assert not any(open_slices.values()), "slices that never end"
    json.dump(out, sys.stdout)


main(sys.argv[1])
