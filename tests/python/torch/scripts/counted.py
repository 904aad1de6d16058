"""Records training steps with counters and with torch.profiler at the same time, and prints both results.

    counted.py THREADS mlp|conv|transformer …
"""

import collections
import json
import os
import sys
import tempfile
import threading

import quick  # noqa: F401
import torch
from torch.profiler import ProfilerActivity, profile, record_function

import counterpoint.torch as cp
from counterpoint import _session

FAULTS = "page-faults:u"

sys.argv, words = [sys.argv[0]], sys.argv[1:]
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import models  # noqa: E402  (prints an empty object for no models)

torch.set_num_threads(int(words[0]))


def steps(name):
    model, x = models.MODELS[name]
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        with record_function("forward"):
            y = model(x)
        y.square().mean().backward()
        optimizer.step()

    return step


def paths_of_torch(prof):
    events = [e for e in prof.profiler.kineto_results.events() if "CPU" in str(e.device_type())]
    events.sort(key=lambda e: (e.start_thread_id(), e.start_ns(), -e.end_ns()))
    stack = []
    for e in events:
        while stack and (stack[-1].start_thread_id() != e.start_thread_id() or stack[-1].end_ns() < e.end_ns()):
            stack.pop()
        stack.append(e)
        yield " / ".join(above.name() for above in stack)


def paths_of_ours(ops):
    by_number = {op["op"]: op for op in ops}
    for op in ops:
        path = []
        while op is not None:
            path.append(op["name"])
            op = by_number.get(op["parent"])
        yield " / ".join(reversed(path))


def without_repeats(ops):
    """Torch's key_averages leaves out an op that is the only op inside an op with the same name
    (EventList._remove_dup_nodes)."""
    inside = collections.Counter(op["parent"] for op in ops)
    by_number = {op["op"]: op for op in ops}
    for op in ops:
        parent = by_number.get(op["parent"])
        if parent is None or parent["name"] != op["name"] or inside[parent["op"]] != 1:
            yield op["name"]


def sums(ops):
    """Returns the ops whose counts or times are not the sum of their own values and those of the ops inside."""
    inside = collections.defaultdict(lambda: [0, 0.0])
    for op in ops:
        inside[op["parent"]][0] += op["counters"][FAULTS]
        inside[op["parent"]][1] += op["duration_ns"]
    for op in ops:
        faults, ns = inside[op["op"]]
        if op["counters"][FAULTS] != op["self_counters"][FAULTS] + faults:
            yield op
        elif abs(op["duration_ns"] - op["self_ns"] - ns) > 1:
            yield op


def slices(prof):
    """Reads the counts of each op (total, self and workers) from torch's exported trace. Also returns the
    names of ops without counts."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        prof.export_chrome_trace(path)
        with open(path) as file:
            events = json.load(file)["traceEvents"]
    found = collections.Counter()
    without = []
    for e in events:
        if e.get("cat") not in ("cpu_op", "user_annotation") or e["name"].startswith("ProfilerStep"):
            continue
        if FAULTS not in e["args"]:
            without.append(e["name"])
            continue
        found[e["name"]] += e["args"][FAULTS]
        found["self " + e["name"]] += e["args"].get("self " + FAULTS, 0)
        found["workers " + e["name"]] += e["args"].get(FAULTS + " (workers)", 0)
    return found, without


def ours_by_name(ops):
    found = collections.Counter()
    for op in ops:
        found[op["name"]] += op["counters"][FAULTS]
        if not op.get("range"):
            found["self " + op["name"]] += op["self_counters"][FAULTS]
        found["workers " + op["name"]] += op["workers"].get(FAULTS) or 0
    return found


def counted(name):
    step = steps(name)
    step()
    with cp.profile([FAULTS]) as mine:
        with profile(activities=[ProfilerActivity.CPU]) as prof:
            step()
    everything = _session.read(mine._session, mine._since, mine._until)["ops"]
    # PyTorch's profiler sees no op that a thread of OpenMP calls inside a parallel region.
    ops = [op for op in everything if op["thread"] == threading.get_native_id()]
    report = mine.report()
    averages = {e.key: e.count for e in prof.key_averages()}
    counts = collections.Counter(without_repeats(ops))
    of_slices, without = slices(prof)
    return {
        "paths": [sorted(paths_of_torch(prof)), sorted(paths_of_ours(ops))],
        "counts": [averages, counts],
        "wrong_sums": [op["name"] for op in sums(ops)],
        "slices": [+of_slices, +ours_by_name(ops)],
        "without": without,
        "losses": [str(loss) for loss in report.losses],
        "forward": sorted({(op["name"], op["forward"]) for op in ops if op.get("forward")}),
        "regions": sum(len(op["regions"]) for op in ops),
        "rows": [len(report.calls), len(everything)],
        "columns": sorted({key for row in report.calls for key in row}),
        "total": report.device_metrics["cpu0"][FAULTS].value,
        "outer": sum(op["counters"][FAULTS] for op in ops if op["parent"] is None),
        "workers": sum(op["workers"].get(FAULTS) or 0 for op in ops),
    }


print(json.dumps({name: counted(name) for name in words[1:]}))
