"""The report's numbers of a run without a budget, computed slowly from an export (docs/account.md).

    python account.py CALLS.json [--raw]

CALLS.json is `counterpoint export PROFILE --format json`. Prints a JSON object: by op, thread, cpu and
process, for each row its calls, inner_calls, total, self, mean, min, p50, p99 and max in ns, and the
recorded sum of each counter over outermost calls.
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
    has not ended. Calls are recorded when they end, so of equal calls the later one is outside."""
    order = sorted(range(len(calls)), key=lambda i: (calls[i]["begin"], -calls[i]["end"], -i))
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
        call = dict(row, begin=begin, end=begin + row["duration_ticks"])
        threads.setdefault((row["pid"], row["thread"]), []).append(call)
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
            call["price"] = prices.get((call["pid"], read), (0, 0))
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
            row = rows.setdefault(key(call), {"times": [], "self": 0, "inner": 0, "counters": {}})
            row["self"] += call["own"]
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
    scale = document["profile"]["clock"]["ns_per_tick"] / PARTS
    out = {}
    for name, row in rows.items():
        times = numpy.array(row["times"], dtype=numpy.float64)
        quantile = lambda q: float(numpy.quantile(times, q)) * scale
        out[name] = {
            "calls": len(times),
            "inner_calls": row["inner"],
            "total_ns": sum(row["times"]) * scale,
            "self_ns": row["self"] * scale,
            "mean_ns": sum(row["times"]) / len(times) * scale,
            "min_ns": float(times.min()) * scale,
            "p50_ns": quantile(0.5),
            "p99_ns": quantile(0.99),
            "max_ns": float(times.max()) * scale,
            "counters": row["counters"],
        }
    return out


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        document = json.load(file)
    raw = "--raw" in sys.argv[2:]
    print(json.dumps({by: account(document, by, raw) for by in ("op", "thread", "cpu", "process")}))
