"""Reads the files of `export --format pprof|folded|speedscope`, and compares them with stacks that it computes itself
from the rows of single calls.

    stacks_oracle.py CALLS_CSV TREE_JSON PPROF FOLDED SPEEDSCOPE

pprof is decoded by Google's protobuf, with the fields of the published `profile.proto`; speedscope is
checked by the rules of its published schema.
"""

import csv
import gzip
import json
import sys
from collections import defaultdict

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

calls_csv, tree_json, pprof, folded, speedscope = sys.argv[1:]

# The fields of each message, as name, number and type (u: uint64, i: int64, s: string, otherwise
# the name of a message). An asterisk before the type means that the field is repeated.
PUBLISHED = {
    "ValueType": "type 1 i, unit 2 i",
    "Label": "key 1 i, str 2 i, num 3 i, num_unit 4 i",
    "Line": "function_id 1 u, line 2 i",
    "Function": "id 1 u, name 2 i, system_name 3 i, filename 4 i, start_line 5 i",
    "Location": "id 1 u, mapping_id 2 u, address 3 u, line 4 *Line",
    "Sample": "location_id 1 *u, value 2 *i, label 3 *Label",
    "Profile": "sample_type 1 *ValueType, sample 2 *Sample, location 4 *Location, function 5 *Function, "
    "string_table 6 *s, time_nanos 9 i, comment 13 *i, default_sample_type 14 i",
}
F = descriptor_pb2.FieldDescriptorProto
file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="p", syntax="proto3")
for message, fields in PUBLISHED.items():
    found = file.message_type.add(name=message)
    for field in fields.split(", "):
        name, number, kind = field.split(" ")
        made = found.field.add(name=name, number=int(number))
        made.label = F.LABEL_REPEATED if kind[0] == "*" else F.LABEL_OPTIONAL
        kind = kind.lstrip("*")
        made.type = {"u": F.TYPE_UINT64, "i": F.TYPE_INT64, "s": F.TYPE_STRING}.get(kind, F.TYPE_MESSAGE)
        if made.type == F.TYPE_MESSAGE:
            made.type_name = f".p.{kind}"
pool = descriptor_pool.DescriptorPool()
pool.Add(file)
Profile = message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Profile"))


def of_pprof():
    """Returns the values of each stack by name, and the names of the values.

    The key of a stack is (process, thread, path). The path has the names of the ops, the outermost one first.
    """
    with gzip.open(pprof) as packed:
        profile = Profile.FromString(packed.read())
    texts = profile.string_table
    assert texts[0] == ""
    kinds = [(texts[kind.type], texts[kind.unit]) for kind in profile.sample_type]
    assert kinds[:2] == [("calls", "count"), ("time", "nanoseconds")], kinds
    assert texts[profile.default_sample_type] == "time"
    functions = {one.id: texts[one.name] for one in profile.function}
    assert 0 not in functions and len(functions) == len(profile.function)
    locations = {one.id: functions[one.line[0].function_id] for one in profile.location}
    assert 0 not in locations and len(locations) == len(profile.location)
    stacks = defaultdict(lambda: defaultdict(int))
    for sample in profile.sample:
        labels = {texts[label.key]: label.num for label in sample.label}
        path = tuple(locations[at] for at in reversed(sample.location_id))
        for (kind, _), value in zip(kinds, sample.value, strict=True):
            # The first two frames are the process and the thread.
            stacks[(labels["pid"], labels["tid"], path[2:])][kind] += value
    return stacks, [kind for kind, _ in kinds]


def of_calls(counters):
    """Returns the values of each stack like `of_pprof`, but computes them from single calls.

    The parent of a call is the shortest call of its thread that contains it.
    """
    threads = defaultdict(list)
    with open(calls_csv, newline="") as rows:
        for order, row in enumerate(csv.DictReader(rows)):
            begin, ticks = int(row["start_ticks"]), int(row["duration_ticks"])
            values = {name: int(row[name]) if row[name] else None for name in counters}
            threads[(int(row["pid"]), int(row["tid"]))].append((begin, -begin - ticks, -order, row["op"], values))
    stacks = defaultdict(lambda: defaultdict(int))
    for thread, calls in threads.items():
        open_calls = []
        for begin, end, _, op, values in sorted(calls, key=lambda call: call[:3]):
            end = -end
            while open_calls and open_calls[-1][0] <= begin:
                open_calls.pop()
            path = (*(open_calls[-1][1] if open_calls else ()), op)
            stacks[(*thread, path)]["calls"] += 1
            stacks[(*thread, path)]["time"] += end - begin
            for name, value in values.items():
                stacks[(*thread, path)][name] += value
            if open_calls:
                around = stacks[(*thread, open_calls[-1][1])]
                around["time"] -= end - begin
                for name, value in values.items():
                    around[name] -= value
            open_calls.append((end, path))
    return stacks


def shown(name):
    """Returns how views show a name with control characters."""
    return "".join("\ufffd" if ord(c) < 32 else c for c in name)


stacks, kinds = of_pprof()
expected = of_calls(kinds[2:])
expected = {(p, t, tuple(map(shown, path))): dict(values) for (p, t, path), values in expected.items()}
assert {key: dict(values) for key, values in stacks.items()} == expected
assert len(expected) > 10, len(expected)

tree = json.load(open(tree_json))
total = sum(values["time"] for values in stacks.values())
assert total == round(tree["self_ns"]), (total, tree["self_ns"])

by_path = defaultdict(int)
for line in open(folded, newline="").read().split("\n")[:-1]:
    path, value = line.rsplit(" ", 1)
    by_path[tuple(path.split(";")[2:])] += int(value)
again = defaultdict(int)
for (_, _, path), values in stacks.items():
    again[tuple(name.replace(";", ",").strip() for name in path)] += values["time"]
assert by_path == {path: value for path, value in again.items() if value}, (by_path, again)

# The rest of this program checks the speedscope file: first by the rules of the published schema
# for sampled profiles, then by comparing its stacks.
document = json.load(open(speedscope))
assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
assert set(document) <= {"$schema", "exporter", "name", "activeProfileIndex", "shared", "profiles"}
frames = document["shared"]["frames"]
for frame in frames:
    assert set(frame) <= {"name", "file", "line", "col"} and isinstance(frame["name"], str)
assert len(document["profiles"]) == len(kinds)
for kind, profile in zip(kinds, document["profiles"]):
    assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
    assert profile["type"] == "sampled" and profile["name"] == kind
    assert profile["unit"] in ("none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes")
    assert len(profile["samples"]) == len(profile["weights"])
    assert profile["startValue"] == 0 and profile["endValue"] == sum(profile["weights"])
    assert all(0 <= at < len(frames) for sample in profile["samples"] for at in sample)
    found = defaultdict(int)
    for sample, weight in zip(profile["samples"], profile["weights"]):
        found[tuple(frames[at]["name"] for at in sample[2:])] += weight
    wanted = defaultdict(int)
    for (_, _, path), values in stacks.items():
        if values[kind]:
            wanted[path] += values[kind]
    assert found == wanted, kind
print(total)
