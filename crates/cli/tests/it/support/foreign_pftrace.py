"""Writes a trace in Perfetto's format as other programs do.

This program uses the classes generated from Perfetto's published definitions. The trace contains many kinds of names,
clocks and events.

Prints as JSON what a reader must find in the trace: [name, category, start, duration, arguments] of each complete
slice, in nanoseconds of real time; values of counters; flows.
"""

import json
import sys
import zlib

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

REAL = 1_700_000_000_000_000_000
BOOT = 5_000_000_000
trace = pb.Trace()
E = pb.TrackEvent


def packet(sequence, time=None, clock=None):
    p = trace.packet.add()
    p.trusted_packet_sequence_id = sequence
    if time is not None:
        p.timestamp = time
    if clock is not None:
        p.timestamp_clock_id = clock
    return p


# Clocks: a snapshot that relates boot time, monotonic time and real time.
p = packet(9)
for clock, at in [(6, BOOT), (3, BOOT - 1000), (1, REAL)]:
    c = p.clock_snapshot.clocks.add()
    c.clock_id, c.timestamp = clock, at
p.clock_snapshot.primary_trace_clock = 6

# Tracks: a process, and below it a thread, a custom track, a counter in bytes, and a counter whose
# values are differences in units of 2 GB/s.
p = packet(1)
p.track_descriptor.uuid = 10
p.track_descriptor.process.pid = 42
p.track_descriptor.process.process_name = "server"
p = packet(1)
p.track_descriptor.uuid = 11
p.track_descriptor.parent_uuid = 10
p.track_descriptor.thread.pid = 42
p.track_descriptor.thread.tid = 43
p.track_descriptor.thread.thread_name = "main"
p = packet(1)
p.track_descriptor.uuid = 12
p.track_descriptor.parent_uuid = 10
p.track_descriptor.name = "requests"
p = packet(1)
p.track_descriptor.uuid = 13
p.track_descriptor.parent_uuid = 10
p.track_descriptor.name = "memory"
p.track_descriptor.counter.unit = pb.CounterDescriptor.UNIT_SIZE_BYTES
p = packet(1)
p.track_descriptor.uuid = 14
p.track_descriptor.parent_uuid = 10
p.track_descriptor.name = "rate"
p.track_descriptor.counter.unit_name = "GB/s"
p.track_descriptor.counter.is_incremental = True
p.track_descriptor.counter.unit_multiplier = 2

# Sequence 1: its texts are not interned, and its clock is boot time.
p = packet(1, BOOT + 1000)
e = p.track_event
e.type, e.track_uuid, e.name = E.TYPE_SLICE_BEGIN, 11, "outer"
e.categories.extend(["app", "io"])
for value in ["text", 7, -3, 2.5, True]:
    a = e.debug_annotations.add()
    a.name = type(value).__name__ + ("" if value != -3 else "_negative")
    if isinstance(value, bool):
        a.bool_value = value
    elif isinstance(value, str):
        a.string_value = value
    elif isinstance(value, float):
        a.double_value = value
    elif value < 0:
        a.int_value = value
    else:
        a.uint_value = value
a = e.debug_annotations.add()
a.name = "dict"
entry = a.dict_entries.add()
entry.name, entry.string_value = "inner", "é"
entry = a.dict_entries.add()
entry.name = "list"
for n in [1, 2]:
    entry.array_values.add().uint_value = n
a = e.debug_annotations.add()
a.name, a.legacy_json_value = "json", '{"a": [1, null]}'
a = e.debug_annotations.add()
a.name, a.pointer_value = "pointer", 0xABCD
e.flow_ids.append(7)
p = packet(1, BOOT + 1200)
p.track_event.type, p.track_event.track_uuid, p.track_event.name = E.TYPE_SLICE_BEGIN, 11, "inner"
p = packet(1, BOOT + 1300)
p.track_event.type, p.track_event.track_uuid = E.TYPE_SLICE_END, 11
p = packet(1, BOOT + 1400)
p.track_event.type, p.track_event.track_uuid, p.track_event.name = E.TYPE_INSTANT, 11, "mark"
p = packet(1, BOOT + 1500)
p.track_event.type, p.track_event.track_uuid = E.TYPE_SLICE_END, 11

# Sequence 2: it has interned texts, defaults, monotonic time, and a counter value in the packet of
# a slice.
p = packet(2)
p.sequence_flags = 1
p.trace_packet_defaults.timestamp_clock_id = 3
p.trace_packet_defaults.track_event_defaults.track_uuid = 12
p.trace_packet_defaults.track_event_defaults.extra_counter_track_uuids.append(13)
p = packet(2, BOOT - 1000 + 2000)
p.sequence_flags = 2
d = p.interned_data
for part, texts in [
    (d.event_categories, ["rpc"]),
    (d.event_names, ["request"]),
    (d.debug_annotation_names, ["id"]),
]:
    for iid, text in enumerate(texts, 1):
        one = part.add()
        one.iid, one.name = iid, text
value = d.debug_annotation_string_values.add()
value.iid, value.str = 5, b"from the table"
e = p.track_event
e.type, e.name_iid = E.TYPE_SLICE_BEGIN, 1
e.category_iids.append(1)
a = e.debug_annotations.add()
a.name_iid, a.string_value_iid = 1, 5
e.extra_counter_values.append(4096)
e.terminating_flow_ids.append(7)
p = packet(2, BOOT - 1000 + 2600)
p.sequence_flags = 2
p.track_event.type = E.TYPE_SLICE_END
# The state is cleared. Now iid 1 stands for another name, and the default clock is boot time again.
p = packet(2, BOOT + 3000)
p.sequence_flags = 3
one = p.interned_data.event_names.add()
one.iid, one.name = 1, "another"
p.track_event.type, p.track_event.track_uuid, p.track_event.name_iid = E.TYPE_SLICE_BEGIN, 12, 1
p = packet(2, BOOT + 3100)
p.sequence_flags = 2
p.track_event.type, p.track_event.track_uuid = E.TYPE_SLICE_END, 12
# A packet was lost, so the state that this packet refers to is not known.
p = packet(2, BOOT + 3200)
p.sequence_flags = 2
p.previous_packet_dropped = 1
p.track_event.type, p.track_event.track_uuid, p.track_event.name_iid = E.TYPE_SLICE_BEGIN, 12, 1

# Sequence 3: compressed packets. The clock of these packets counts microseconds since the previous
# packet.
inside = pb.Trace()
outer, trace = trace, inside
p = packet(3)
p.sequence_flags = 1
for clock, at, incremental, unit in [(64, 100, True, 1000), (6, BOOT + 10_000, False, 1)]:
    c = p.clock_snapshot.clocks.add()
    c.clock_id, c.timestamp, c.is_incremental, c.unit_multiplier_ns = clock, at, incremental, unit
p.trace_packet_defaults.timestamp_clock_id = 64
p.trace_packet_defaults.track_event_defaults.track_uuid = 11
for delta, kind in [(1, E.TYPE_SLICE_BEGIN), (4, E.TYPE_SLICE_END)]:
    p = packet(3, delta)
    p.sequence_flags = 2
    p.track_event.type = kind
    if kind == E.TYPE_SLICE_BEGIN:
        p.track_event.name = "compressed"
for delta, value in [(1, 3), (1, 4)]:
    p = packet(3, delta)
    p.sequence_flags = 2
    p.track_event.type, p.track_event.track_uuid = E.TYPE_COUNTER, 14
    p.track_event.counter_value = value
p = packet(3, 1)
p.sequence_flags = 2
p.track_event.type, p.track_event.track_uuid = E.TYPE_COUNTER, 13
p.track_event.double_counter_value = 0.5
trace = outer
trace.packet.add().compressed_packets = zlib.compress(inside.SerializeToString())

# Sequence 4: legacy events of Chrome, on another thread.
p = packet(4)
p.sequence_flags = 1
p.track_descriptor.uuid = 20
p.track_descriptor.thread.pid = 50
p.track_descriptor.thread.tid = 51
p.track_descriptor.thread.thread_name = "renderer"
p = packet(4, BOOT + 20_000)
e = p.track_event
e.track_uuid, e.name = 20, "complete"
e.legacy_event.phase, e.legacy_event.duration_us = ord("X"), 3
for at, phase in [(21_000, "b"), (26_000, "e")]:
    p = packet(4, BOOT + at)
    e = p.track_event
    e.track_uuid, e.name = 20, "async"
    e.categories.append("net")
    e.legacy_event.phase, e.legacy_event.unscoped_id = ord(phase), 77

# Packets that do not describe events: a configuration and statistics.
packet(1).trace_config.duration_ms = 5
packet(1, BOOT).trace_stats.producers_seen = 1

outer_args = {
    "str": "text",
    "int": 7,
    "int_negative": -3,
    "float": 2.5,
    "bool": True,
    "dict": {"inner": "é", "list": [1, 2]},
    "json": {"a": [1, None]},
    "pointer": "0xabcd",
}
expected = {
    "slices": [
        ["outer", "app,io", REAL + 1000, 500, outer_args],
        ["inner", None, REAL + 1200, 100, None],
        ["request", "rpc", REAL + 2000, 600, {"id": "from the table"}],
        ["another", None, REAL + 3000, 100, None],
        ["compressed", None, REAL + 11_000, 4000, None],
        ["complete", None, REAL + 20_000, 3000, None],
    ],
    "counters": [
        ["memory", "bytes", REAL + 2000, 4096.0],
        ["rate", "GB/s", REAL + 16_000, 6.0],
        ["rate", "GB/s", REAL + 17_000, 14.0],
        ["memory", "bytes", REAL + 18_000, 0.5],
    ],
    "flows": [["s", 7, REAL + 1000], ["f", 7, REAL + 2000]],
}
with open(sys.argv[1], "wb") as out:
    out.write(trace.SerializeToString())
json.dump(expected, sys.stdout)
