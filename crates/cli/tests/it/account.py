"""Computes the numbers of `report` from exports of runs without a budget, with slow and simple code (docs/account.md).

    python account.py CALLS.json... < ARGUMENTS

CALLS.json is the output of `counterpoint export PROFILE --format json`. For each file, ARGUMENTS has a line, which is
`raw` or empty. For each file, the program prints a line with a JSON object. Its members `op`, `thread`, `cpu` and
`process` have a row for each op, thread, CPU or process. Each row has the numbers of calls, inner_calls, dispatches,
threads and CPUs. It also has total, self, mean, min, p50, p99 and max in ns, and its share of all self time. For each
counter, a row has the recorded sum over outermost calls, and the number of these calls that have a value. Rows by op
also have the statistics of `counterpoint stats`. `tree` has calls, total and self for each path of ops, from the
outermost call inwards. `lives` has each thread's calls, wall time and time in calls.
"""

import json
import sys

import numpy
from scipy.stats import rankdata

PARTS = 16  # the time subtracted from a call is a whole number of these parts of a tick
BUCKETS = 4
KEYS = {
    "op": lambda call: call["op"],
    "thread": lambda call: f"{call['pass']} {call['pid']} {call['tid']}",
    "cpu": lambda call: str(call["cpu"]),
    "process": lambda call: f"{call['pass']} {call['pid']}",
}


def classes(document, raw):
    """Returns how long the recorder takes for a call, in parts of a tick: (inside of the call's duration, outside of
    it). The keys are the process and the set of counters. Empty if `raw` is set."""
    found = {}
    scale = PARTS / document["profile"]["clock"]["ns_per_tick"]
    parts = lambda ns: int(numpy.floor(max(ns, 0.0) * scale + 0.5))
    for one in [] if raw else document["compensation"]:
        inside, whole = one["duration_ns"]["value"], one["whole_ns"]["value"]
        key = one["process"], tuple(counter["name"] for counter in one["counters"])
        found[key] = parts(inside), parts(whole - inside)
    return found


def nested(calls):
    """Returns the indices of a thread's calls, sorted by begin, and for each call the index of the call directly
    around it. Of the calls that began no later and ended no earlier, this is the last one that began. If two calls
    have the same times, the one that was recorded later is the outer one, because calls are recorded when they end.
    A profiler of the host lists the outer call first, so for its calls (`foreign`), the earlier one is the outer
    one."""
    outside = lambda i: i if calls[i]["foreign"] else -i
    order = sorted(range(len(calls)), key=lambda i: (calls[i]["begin"], -calls[i]["end"], outside(i)))
    around, open_ = [None] * len(calls), []
    for i in order:
        # A call that ends before call `i` ends, or not after call `i` begins, does not contain it.
        ended = lambda at: calls[at]["end"] < calls[i]["end"] or calls[at]["end"] <= calls[i]["begin"]
        while open_ and ended(open_[-1]):
            open_.pop()
        around[i] = open_[-1] if open_ else None
        open_.append(i)
    return order, around


def threads_of(document, raw):
    """Returns the calls of each thread. Each call gets its self time, the time that was subtracted, and the call
    around it."""
    prices = classes(document, raw)
    names = [counter["name"] for counter in document["profile"]["counters"]]
    threads = {}
    for row in document["calls"]:
        # Calls of the library `python` are those of a profiler in the recorded program. No cost of
        # recording is subtracted for these calls.
        begin, ticks = row["start_ticks"], row["duration_ticks"]
        times = {"begin": begin, "end": begin + ticks, "foreign": row["library"] == "python"}
        call = {**row, **times, "pass": row.get("pass", 1)}
        threads.setdefault((call["pass"], row["pid"], row["tid"]), []).append(call)
    for calls in threads.values():
        order, around = nested(calls)
        for call in calls:
            read = tuple(name for name in names if call.get(name) is not None)
            call["price"] = (0, 0) if call["foreign"] else prices.get((call["process"], read), (0, 0))
            call["own"] = PARTS * (call["end"] - call["begin"])
            call["wanted"], call["inside"] = call["price"][0], 0
        for i, outer in enumerate(around):
            calls[i]["around"] = None if outer is None else calls[outer]
            if outer is not None:
                calls[outer]["own"] -= PARTS * (calls[i]["end"] - calls[i]["begin"])
                calls[outer]["wanted"] += calls[i]["price"][1]
        for i in reversed(order):  # what is inside comes first
            call = calls[i]
            taken = min(call["wanted"], call["own"])
            call["own"] -= taken
            call["taken"] = taken + call["inside"]
            call["time"] = PARTS * (call["end"] - call["begin"]) - call["taken"]
            if around[i] is not None:
                calls[around[i]]["inside"] += call["taken"]
    return threads


def outer_calls(call):
    while call["around"] is not None:
        call = call["around"]
        yield call


def buckets(values):
    values, n = sorted(values), len(values)
    edges = [n * b // BUCKETS for b in range(BUCKETS + 1)]
    return [sum(values[a:b]) / (b - a) if b > a else None for a, b in zip(edges, edges[1:])]


def correlations(x, y):
    """Returns Pearson's and Spearman's correlation, or None for both if x or y is constant."""
    if len(set(x)) < 2 or len(set(y)) < 2:
        return None, None
    return tuple(float(numpy.corrcoef(a, b)[0, 1]) for a, b in ((x, y), (rankdata(x), rankdata(y))))


def described(calls, names, scale):
    """Returns the statistics of `counterpoint stats` for durations and for each counter, with the correlation of
    each counter with the duration."""
    times = [call["time"] * scale for call in calls]
    out = {"duration_ns": {"buckets": buckets(times), "deviation": None}}
    if len(times) > 1:
        out["duration_ns"]["deviation"] = float(numpy.std(times, ddof=1))
    for name in names:
        both = [(call["time"], call[name]) for call in calls if call.get(name) is not None]
        x, y = zip(*both) if both else ((), ())
        out[name] = {
            "calls": len(both),
            "deviation": float(numpy.std(y, ddof=1)) if len(y) > 1 else None,
            "correlations": correlations(x, y),
        }
    return out


def account(document, threads, by):
    names = [counter["name"] for counter in document["profile"]["counters"]]
    scale = document["profile"]["clock"]["ns_per_tick"] / PARTS
    rows, key = {}, KEYS[by]
    for calls in threads.values():
        for call in calls:
            new = {"outermost": [], "self": 0, "inner": 0, "first_in_pass": [], "threads": set(), "cpus": set()}
            row = rows.setdefault(key(call), new)
            row["self"] += call["own"]
            if not (call["workgroup_x"] or call["workgroup_y"] or call["workgroup_z"]):
                row["first_in_pass"].append(call["pass"])
            row["threads"].add((call["pass"], call["pid"], call["tid"]))
            row["cpus"].add(call["cpu"])
            if any(key(outer) == key(call) for outer in outer_calls(call)):
                row["inner"] += 1
            else:
                row["outermost"].append(call)
    whole = sum(row["self"] for row in rows.values())
    # Each pass repeats the calls, so sums of an op are divided by the number of passes. Statistics
    # of single calls use the calls of all passes.
    passes = document["profile"].get("passes") or 1 if by == "op" else 1
    of_pass = lambda numbers: [sum(number == n + 1 for number in numbers) for n in range(passes)]
    out = {}
    for name, row in rows.items():
        calls = row["outermost"]
        times = numpy.array([call["time"] for call in calls], dtype=numpy.float64)
        quantile = lambda q: float(numpy.quantile(times, q)) * scale
        values = {n: [call[n] for call in calls if call.get(n) is not None] for n in names}
        agree = len(set(of_pass([call["pass"] for call in calls]))) == 1
        firsts = of_pass(row["first_in_pass"])
        out[name] = {
            "calls": len(calls) // passes if agree else None,
            "inner_calls": row["inner"] // passes,
            "dispatches": len(row["first_in_pass"]) // passes if len(set(firsts)) == 1 else None,
            "share": row["self"] / whole if whole else None,
            "threads": len(row["threads"]),
            "cpus": len(row["cpus"]),
            "total_ns": sum(call["time"] for call in calls) * scale / passes,
            "self_ns": row["self"] * scale / passes,
            "mean_ns": float(times.mean()) * scale,
            "min_ns": float(times.min()) * scale,
            "p50_ns": quantile(0.5),
            "p99_ns": quantile(0.99),
            "max_ns": float(times.max()) * scale,
            "counters": {n: sum(values[n]) for n in names if values[n]},
            "with": {n: len(values[n]) for n in names if values[n]},
        }
        if by == "op":
            out[name]["stats"] = described(calls, names, scale)
    return out


def tree(document, threads):
    """Returns calls, total and self for each path of names, from the outermost call to the call itself."""
    scale = document["profile"]["clock"]["ns_per_tick"] / PARTS / (document["profile"].get("passes") or 1)
    nodes = {}
    for call in (call for calls in threads.values() for call in calls):
        path = "/".join(reversed([call["op"], *(outer["op"] for outer in outer_calls(call))]))
        node = nodes.setdefault(path, {"calls": 0, "total_ns": 0, "self_ns": 0})
        node["calls"] += 1
        node["total_ns"] += call["time"] * scale
        node["self_ns"] += call["own"] * scale
    return nodes


def lives(document, threads):
    """Returns, for each thread, its number of calls, the time from the first begin to the last end, and the time in
    calls."""
    ns = document["profile"]["clock"]["ns_per_tick"]
    return {
        f"{one} {pid} {tid}": {
            "calls": len(calls),
            "wall_ns": (max(call["end"] for call in calls) - min(call["begin"] for call in calls)) * ns,
            "dispatch_ns": sum(call["own"] for call in calls) * ns / PARTS,
        }
        for (one, pid, tid), calls in threads.items()
    }


if __name__ == "__main__":
    for name, arguments in zip(sys.argv[1:], sys.stdin):
        with open(name, encoding="utf-8") as file:
            document = json.load(file)
        threads = threads_of(document, arguments.strip() == "raw")
        out = {by: account(document, threads, by) for by in KEYS}
        print(json.dumps({**out, "tree": tree(document, threads), "lives": lives(document, threads)}))
