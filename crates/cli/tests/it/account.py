"""The report's numbers of runs without a budget, computed slowly from exports (docs/account.md).

    python account.py CALLS.json... < ARGUMENTS

CALLS.json is `counterpoint export PROFILE --format json`; a line of ARGUMENTS for each file is `raw` or
empty. Prints a line with a JSON object for each file: by op, thread, cpu and process, for each row its
calls, inner_calls, dispatches, total, self, mean, min, p50, p99 and max in ns, how many threads and
CPUs, and the recorded sum of each counter over outermost calls with the number of these. `total` has the
time in calls and the share of each op.
"""

import json
import sys

import numpy

PARTS = 16  # what is taken of a call is a whole number of these parts of a tick


def classes(document, raw):
    """What a bracket takes, by process and set of counters read: (in its duration, outside)."""
    found = {}
    scale = PARTS / document["profile"]["clock"]["ns_per_tick"]
    parts = lambda ns: int(numpy.floor(max(ns, 0.0) * scale + 0.5))
    for one in [] if raw else document["compensation"]:
        inside, whole = one["duration_ns"]["value"], one["whole_ns"]["value"]
        key = one["pid"], tuple(counter["name"] for counter in one["counters"])
        found[key] = parts(inside), parts(whole - inside)
    return found


def nested(calls):
    """For each call of a thread the call directly around it: the last one that began before it and
    has not ended. Calls are recorded when they end, so of equal calls the later one is outside; a
    profiler of the host names the outer one first."""
    outside = lambda i: i if calls[i]["foreign"] else -i
    order = sorted(range(len(calls)), key=lambda i: (calls[i]["begin"], -calls[i]["end"], outside(i)))
    around, open_ = [None] * len(calls), []
    for i in order:
        # A call that ended when this one begins is not around it.
        ended = lambda at: calls[at]["end"] < calls[i]["end"] or calls[at]["end"] <= calls[i]["begin"]
        while open_ and ended(open_[-1]):
            open_.pop()
        around[i] = open_[-1] if open_ else None
        open_.append(i)
    return order, around


def account(document, by, raw):
    prices = classes(document, raw)
    names = [counter["name"] for counter in document["profile"]["counters"]]
    threads = {}
    for row in document["calls"]:
        begin = row["start_ticks"]
        # What the host's own profiler saw of a thread is on the same thread.
        foreign = row["library"] == "python"
        call = dict(row, begin=begin, end=begin + row["duration_ticks"], foreign=foreign)
        threads.setdefault((row["pid"], row["tid"]), []).append(call)
    key = {
        "op": lambda call: call["op"],
        "thread": lambda call: str(call["tid"]),
        "cpu": lambda call: str(call["cpu"]),
        "process": lambda call: str(call["pid"]),
    }[by]
    rows = {}
    for calls in threads.values():
        order, around = nested(calls)
        for call in calls:
            read = tuple(name for name in names if call.get(name) is not None)
            call["price"] = (0, 0) if call["foreign"] else prices.get((call["pid"], read), (0, 0))
            call["own"] = PARTS * (call["end"] - call["begin"])
            call["wanted"], call["inside"] = call["price"][0], 0
        for i, outer in enumerate(around):
            if outer is not None:
                calls[outer]["own"] -= PARTS * (calls[i]["end"] - calls[i]["begin"])
                calls[outer]["wanted"] += calls[i]["price"][1]
        for i in reversed(order):  # what is inside comes first
            call = calls[i]
            taken = min(call["wanted"], call["own"])
            call["own"] -= taken
            call["taken"] = taken + call["inside"]
            if around[i] is not None:
                calls[around[i]]["inside"] += call["taken"]
        for i, call in enumerate(calls):
            new = {"times": [], "self": 0, "inner": 0, "first": 0, "counters": {}, "with": {}}
            row = rows.setdefault(key(call), new | {"threads": set(), "cpus": set()})
            row["self"] += call["own"]
            row["first"] += not (call["workgroup_x"] or call["workgroup_y"] or call["workgroup_z"])
            row["threads"].add((call["pid"], call["tid"]))
            row["cpus"].add(call["cpu"])
            outer = around[i]
            while outer is not None and key(calls[outer]) != key(call):
                outer = around[outer]
            if outer is not None:
                row["inner"] += 1
                continue
            row["times"].append(PARTS * (call["end"] - call["begin"]) - call["taken"])
            for name in names:
                if call.get(name) is not None:
                    row["counters"][name] = row["counters"].get(name, 0) + call[name]
                    row["with"][name] = row["with"].get(name, 0) + 1
    scale = document["profile"]["clock"]["ns_per_tick"] / PARTS
    out, whole = {}, sum(row["self"] for row in rows.values())
    for name, row in rows.items():
        times = numpy.array(row["times"], dtype=numpy.float64)
        quantile = lambda q: float(numpy.quantile(times, q)) * scale
        out[name] = {
            "calls": len(times),
            "inner_calls": row["inner"],
            "dispatches": row["first"],
            "share": row["self"] / whole if whole else 0,
            "threads": len(row["threads"]),
            "cpus": len(row["cpus"]),
            "total_ns": sum(row["times"]) * scale,
            "self_ns": row["self"] * scale,
            "mean_ns": sum(row["times"]) / len(times) * scale,
            "min_ns": float(times.min()) * scale,
            "p50_ns": quantile(0.5),
            "p99_ns": quantile(0.99),
            "max_ns": float(times.max()) * scale,
            "counters": row["counters"],
            "with": row["with"],
        }
    return out


if __name__ == "__main__":
    for name, arguments in zip(sys.argv[1:], sys.stdin):
        with open(name, encoding="utf-8") as file:
            document = json.load(file)
        raw = arguments.strip() == "raw"
        print(json.dumps({by: account(document, by, raw) for by in ("op", "thread", "cpu", "process")}))
