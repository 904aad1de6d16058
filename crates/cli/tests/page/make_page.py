"""Makes HTML pages like those of `report --html` from invented data, for the tests of their JavaScript.

`python3 make_page.py KIND OUT.html` writes a page in the format of `crates/cli/src/page`. KIND chooses the data:

    usual    what a profile of a model looks like
    hostile  names that are markup, scripts or very long, or that change the direction of the text
    missing  a profile without most of the values that a page may lack
    empty    a profile in which nothing was recorded
    compare  two series of runs; some names are hostile, and some values missing
    compared two series of runs, with ordinary names
    long     long names of C++ functions, and two ops with the same name
    million  a million calls in the timeline

All invented numbers are the same in every run.
"""

import base64
import bisect
import gzip
import hashlib
import html
import json
import math
import random
import sys
from pathlib import Path

APP = Path(__file__).parents[2] / "src/page/app"

HOSTILE = [
    "<img src=x onerror=\"document.title='ran'\">",
    "</script><script>document.title='ran'</script>",
    "abc\u202edef\u2066ghi",
    "x" * 5000,
    "javascript:alert(1)",
    "'; DROP TABLE ops; --",
    "=1+1",
    "\u0000\u0007\u001b[31mred",
    "a\u200bb\ufeffc",
    "<!--",
    "--><b>bold</b>",
    "{{script}}",
    "%00%0a",
    "\u05d0\u05d1\u05d2 name",
    "tab\tline\nbreak",
]


def time(ns):
    """Returns a duration as the report prints it."""
    for limit, size, unit in ((999.5e6, 1e9, "s"), (999.5e3, 1e6, "ms"), (999.5, 1e3, "µs"), (0, 1, "ns")):
        if ns >= limit:
            value = ns / size
            digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
            return f"{value:,.{digits}f} {unit}"


def digest(text):
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def script():
    lines = []
    is_comment = False
    for module in (APP / "modules.txt").read_text().split():
        for line in (APP / module).read_text().splitlines():
            code = line.strip()
            is_comment = is_comment or code.startswith("/*")
            if is_comment:
                is_comment = not code.endswith("*/")
                continue
            if line.startswith("import ") or line == "export {};":
                continue
            if not code or code.startswith("//"):
                continue
            lines.append(line.removeprefix("export "))
    return "\n".join(lines) + "\n"


def page(head, timeline):
    code, style = script(), (APP / "page.css").read_text()
    csp = (
        f"default-src 'none'; script-src '{digest(code)}'; style-src '{digest(style)}'; "
        "require-trusted-types-for 'script'; trusted-types 'none'; base-uri 'none'; form-action 'none'"
    )
    blocks = [("head", json.dumps(head).encode()), ("timeline", bytes(timeline))]
    values = {
        "csp": csp,
        "title": html.escape(head["program"]),
        "style": style,
        "blocks": "\n".join(
            f'<script type="application/gzip;base64" id="{name}">'
            f"{base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()}</script>"
            for name, data in blocks
        ),
        "script": code,
    }
    text, rest = [], (APP / "page.html").read_text()
    while "{{" in rest:
        before, _, rest = rest.partition("{{")
        name, _, rest = rest.partition("}}")
        text += [before, values[name]]
    return "".join(text) + rest


def leb(out, value):
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def lane(label, process, calls, block, tid="4711"):
    """Adds the calls of a lane (a row of the timeline) to `block`.

    Each call is (begin, duration, index of its name, depth). The times are multiples of the timeline's `grid`.
    """
    calls.sort(key=lambda call: (call[0], call[3]))
    offset, end = len(block), 0
    for begin, duration, _, _ in calls:
        gap = begin - end
        leb(block, gap * 2 if gap >= 0 else -gap * 2 - 1)
        end = begin + duration
    for part in (1, 2, 3):
        for call in calls:
            leb(block, call[part])
    return {
        "pid": "4711",
        "tid": tid,
        "label": label,
        "process": process,
        "calls": len(calls),
        "depth": max((call[3] + 1 for call in calls), default=0),
        "offset": offset,
        "bytes": len(block) - offset,
    }


def distribution(durations):
    if not durations:
        return None
    bins = [math.floor(16 * math.log2(max(ns, 1))) for ns in durations]
    first = min(bins)
    counts = [0] * (max(bins) - first + 1)
    for one in bins:
        counts[one - first] += 1
    return {"first": first, "counts": counts}


def column(name, title, is_text=False, is_minor=False, meaning=None):
    return {"name": name, "title": title, "isText": is_text, "isMinor": is_minor, "meaning": meaning}


def table(id, group, title, columns, rows, **more):
    return {
        "id": id, "group": group, "title": title, "lead": [], "explained": [], "marks": [], "columns": columns,
        "rows": rows, "parents": None, "ops": None, "rest": [], "sort": "total_ns", "share": -1,
        "leftOut": 0, "plots": [], **more,
    }


def nothing():
    return {
        "schema": "counterpoint.page/1", "program": "model", "about": "nothing was recorded",
        "version": "0.1.0", "sentences": [], "warnings": [], "recording": [], "lengths": [], "price": "",
        "priceParts": "", "losses": [], "notes": [], "tables": [], "ops": [], "timeline": None,
        "listings": [], "listingsAbout": "", "roofline": None, "compare": None,
    }


# When the recording began (`BEGIN`), and which time is 0 in a `.json` file that is exported from it
# (`BASE`). Both are in ns since 1970.
BEGIN, BASE = 1763793844123456789, 1759300074000000000


# Texts that explain parts of the table of ops.
OWN = "time in the calls without the calls inside of them; loops are no calls, so theirs is in it"
HALF = "± half of the 95 % interval: what empty calls read is subtracted, and is not known better than this"
SOME = "* counted in only some of the calls"


def usual(names, calls_per_op, threads, grid=1):
    rng = random.Random(30)
    block, calls = bytearray(), [[] for _ in threads]
    durations = [[[] for _ in threads] for _ in names]
    begins = [[] for _ in names]
    weights = [math.exp(-0.35 * i) for i in range(len(names))]
    means = [7000 * math.exp(-0.3 * i) + 300 for i in range(len(names))]
    for thread, list_ in enumerate(calls):
        now = 1000 * (thread + 1)
        total = calls_per_op * len(names) // len(threads)
        picks = rng.choices(range(len(names)), weights, k=total)
        for n, op in enumerate(picks):
            if n % 50 == 0:
                inner = picks[n : n + 50]
                outer_begin, outer_at = now, len(list_)
            slow = 8 if rng.random() < 0.003 else 1
            long = max(20, int(means[op] * slow * math.exp(rng.gauss(0, 0.18)) * (1 + 0.15 * thread)))
            list_.append((now, long, op, 1))
            durations[op][thread].append(long * grid)
            begins[op].append((now * grid, long * grid, thread))
            now += long + int(rng.expovariate(1 / 800)) + 40
            if n % 50 == 49 or n == total - 1:
                list_.append((outer_begin, now - outer_begin, len(names), 0))
                now += int(rng.expovariate(1 / 20000))
    span = max(call[0] + call[1] for list_ in calls for call in list_) * grid
    lanes = [lane(label, "model (4711)", list_, block, str(4711 + i)) for i, (label, list_) in enumerate(zip(threads, calls))]
    totals = [sum(map(sum, durations[op])) for op in range(len(names))]
    whole = sum(totals)
    ops, rows = [], []
    order = sorted(range(len(names)), key=lambda op: -totals[op])
    for place, op in enumerate(order):
        all_ = sorted(ns for lane_ in durations[op] for ns in lane_)
        count, total = len(all_), totals[op]
        p50, p99 = all_[count // 2], all_[int(count * 0.99)]
        mean = total / count
        rows.append([
            names[op], [f"{count:,}", count], [time(total), total], [time(total * 0.9), total * 0.9],
            [f"{100 * total / whole:.1f} %", total / whole],
            None if op % 3 else [time(total * 2), total * 2],
            [f"{time(mean)} ±2 %", mean], [time(p50), p50], [time(p99), p99], [time(all_[-1]), all_[-1]],
            [f"{count * 12:,}*", count * 12, f"in {count // 2:,} of {count:,} calls"], [f"{time(mean * 0.98)}", mean * 0.98], [f"{len(threads)}", len(threads)],
            f"model.mlir:{op + 12}",
        ])
        parts, width = [], span / 80
        buckets = [[] for _ in range(80)]
        for begin, duration, _ in begins[op]:
            buckets[min(79, int(begin / width))].append(duration)
        for inside in map(sorted, buckets):
            parts.append([inside[len(inside) // 10], inside[len(inside) // 2],
                          inside[len(inside) * 9 // 10], inside[-1]] if inside else None)
        edges = [all_[min(count - 1, count * i // 24)] for i in range(25)]
        joint = [0] * (24 * 24)
        for ns in all_:
            x = min(23, max(0, bisect.bisect_right(edges, ns) - 1))
            joint[min(23, max(0, x + round(rng.gauss(0, 2)))) * 24 + x] += 1
        ops.append({
            "label": names[op], "name": "model_linked$async_" + names[op], "where": f"model.mlir:{op + 12}",
            "facts": [["calls", f"{count:,}"], ["page-faults", f"{count * 12:,}* (in {count // 2:,} of {count:,} calls)"], ["total", time(total)], ["share", f"{100 * total / whole:.1f} %"],
                      ["mean", f"{time(mean)} ±2 %"], ["p50", time(p50)], ["p99", time(p99)]],
            "times": distribution(all_),
            "lanes": [{"label": label, "times": distribution(lane_)}
                      for label, lane_ in zip(threads, durations[op]) if lane_],
            "drift": {"from": 0, "width": width, "parts": parts},
            "longest": {
                "titles": ["at", "duration", "thread", "task-clock"],
                "rows": [{"cells": [time(b), time(d), threads[t], None], "at": b, "thread": t}
                         for b, d, t in sorted(begins[op], key=lambda c: -c[1])[:12]],
            },
            "joints": [
                {"counter": counter, "text": "correlation 0.96 (rank), over all calls", "x": edges,
                 "y": [edge * 0.9 for edge in edges],
                 "xText": [time(e) if i % 6 == 0 else "" for i, e in enumerate(edges)],
                 "yText": [time(e * 0.9) if i % 6 == 0 else "" for i, e in enumerate(edges)],
                 "counts": joint}
                for counter in ("task-clock", "page-faults")
            ],
            "explained": ["calls of workgroup 0 take 1.3 times as long as the others", "nothing else stands out of first calls"] if op % 2 == 0 else [],
            "goesWith": table("goes_with", "ops", "What goes with slow calls", [
                column("counter", "counter", True), column("spearman", "Spearman (ranks)"), column("pearson", "Pearson (values)"),
                column("calls", "calls"), column("note", "", True),
            ], [["task-clock", ["0.96", 0.96], ["0.88", 0.88], [f"{count:,}", count], ""],
                ["page-faults", ["-0.31", -0.31], None, [f"{count:,}", count], "mostly noise of the probe"]],
                sort="", plots=[{"title": "with long calls", "after": 0, "ticks": [[0, "−1"], [0.5, "0"], [1, "1"]], "zero": 0.5,
                                 "band": None, "isBars": True, "rows": [{"at": 0.98, "ends": None, "kind": "related", "text": ""},
                                                                       {"at": 0.345, "ends": None, "kind": "unknown", "text": ""}]}]),
        })
    columns = [
        column("op", "op", True), column("calls", "calls"), column("total_ns", "total"),
        column("self_ns", "self", meaning=OWN),
        column("share", "share"), column("self_all_arguments_ns", "self, all arguments"),
        column("mean_ns", "mean"), column("p50_ns", "p50"), column("p99_ns", "p99"), column("max_ns", "max", is_minor=True),
        column("page-faults", "page-faults"), column("task-clock_per_call", "task-clock /call"),
        column("threads", "threads", is_minor=True), column("source", "source", True, True),
    ]
    tree_rows, parents, tree_ops = [], [], []
    for block_ in range(3):
        top = len(tree_rows)
        tree_rows.append([f"block {block_}", ["1", 1], [time(whole / 3), whole / 3], ["0.5 %", 0.005]])
        parents.append(-1)
        tree_ops.append(None)
        for place, op in enumerate(order):
            tree_rows.append([names[op], ["1", 1], [time(totals[op] / 3), totals[op] / 3],
                              [f"{100 * totals[op] / whole / 3:.1f} %", totals[op] / whole / 3]])
            parents.append(top if place % 3 != 2 else len(tree_rows) - 2)
            tree_ops.append(place)
    wall = span
    thread_rows = []
    for i, label in enumerate(threads):
        inside = sum(call[1] for call in calls[i] if call[3] == 1) * grid
        thread_rows.append([f"{label} ({4711 + i})", [time(inside), inside], [time(wall), wall],
                            [time(wall - inside), wall - inside], [time((wall - inside) / 3), (wall - inside) / 3],
                            [time(wall * 0.8), wall * 0.8]])
    # The tables and sentences below use the same sums, so that the page does not contradict itself.
    number = sum(map(len, calls))
    lives = wall * len(threads)
    idle = sum(row[3][1] for row in thread_rows)
    probes = number * 350
    by_op = table("op", "ops", "Ops", columns, rows, ops=list(range(len(ops))), share=4,
                  rest=[["(between)", None, [time(idle), idle], [time(idle), idle]] + [None] * 10],
                  explained=[f"self: {OWN}", HALF, SOME], marks=[{"mark": "±", "text": HALF}, {"mark": "*", "text": SOME}])
    tree = table("tree", "ops", "Tree", [columns[0], columns[1], column("total_ns", "total"), column("share", "own share")],
                 tree_rows, parents=parents, ops=tree_ops, share=3)
    by_thread = table("thread", "ops", "Threads", [
        column("thread", "thread", True), column("total_ns", "total"), column("wall_ns", "wall"),
        column("between_ns", "between"), column("off_cpu_ns", "off-CPU between"), column("thread_cpu_ns", "on a CPU"),
    ], thread_rows, rest=[["python3 (4710)", None, None, None, None, [time(2e6), 2e6]]])
    most = idle * 0.6
    between = table("between", "ops", "Between calls", [
        column("after", "after", True, meaning="the op whose call ended last on the thread"),
        column("before", "before", True, meaning="the op that began next"), column("thread", "thread", True), column("gaps", "gaps"),
        column("total_ns", "total"), column("share", "share"),
    ], [[names[0], names[min(1, len(names) - 1)], f"{threads[0]} (4711)", ["1,200", 1200], [time(most), most], ["60.0 %", 0.6]],
        [names[0], "(end)", f"{threads[-1]} (4712)", ["1", 1], [time(idle - most), idle - most], ["40.0 %", 0.4]]],
        ops=[0, 0], share=5, explained=["after: the op whose call ended last on the thread", "before: the op that began next"],
        lead=[f"the threads were in no recorded call for {time(idle)} of {time(wall * len(threads))}",
              f"{threads[0]} (4711): {time(most)}, of which {time(most)} (100 %) in 1,200 gaps after {names[0]} and before {names[-1]}"])
    sites = table("site", "ops", "Dispatch sites", [
        column("op", "dispatch", True), column("site", "site"), column("share", "share"), column("efficiency", "efficiency"),
    ], [[names[0], ["1", 1], ["100 %", 1], ["71.0 %", 0.71]]], ops=[0], share=2,
        lead=[f"of {time(wall)} from the first dispatch to the end of the last one, no dispatch runs for {time(wall / 4)} (25.0 %), and "
              f"only one workgroup can run for {time(wall / 10)} (10.0 %): more threads cannot shorten these",
              "in dispatches, the 2 workers ran workgroups for 71.0 % of the time"])
    of_loops = [column("loop", "loop", True), column("hits", "hits"), column("total_ns", "self"), column("source", "source", True)]
    loops = table("loop0", "loops", "matmul", of_loops, [["matmul", ["2", 2], ["200 µs ±28.8 ns", 2e5], "/src/matmul.c:3"],
        ["i", ["20", 20], ["2.40 ms ±395 ns", 2.4e6], "/src/matmul.c:4"],
        ["j", ["200", 200], None, "/src/matmul.c:5"]], parents=[-1, 0, 1], lead=["mode timed; 3 of 5 ids entered by 2 threads"])
    others = table("loop1", "loops", "softmax", of_loops, [["softmax", ["2", 2], ["100 µs", 1e5], "/src/softmax.c:3"]], parents=[-1])
    kinds = table("kind", "activities", "Kinds", [column("kind", "kind", True), column("calls", "number"), column("total_ns", "total")],
                  [["kernel", ["1,200", 1200], ["3.20 ms", 3.2e6]], ["gpu_memcpy", ["10", 10], ["20.0 µs", 2e4]]])
    lines = [{"number": f"{0x1140 + 6 * i:x}", "text": f"  vmovapd -{64 * i}(%rdx,%rax,4), %zmm{i % 32}", "margin": "1.20 ms ±212 ns, 98.2 %" if i == 20 else "",
              "loop": 0 if 20 <= i < 60 else 1 if 90 <= i < 110 else -1} for i in range(160)]
    source = [{"number": str(i + 1), "text": f"\tfor (int {c} = 0; {c} < n; {c}++)" if i % 9 == 3 else f"\t\tc[{i}] += a[{i}] * b[{i}];", "margin": "",
               "loop": 0 if 3 <= i < 8 else 1 if 12 <= i < 20 else -1} for i in range(40) for c in "i"]
    # This line is wider than any column of the listings, but its end, `exp(y)`, must be readable.
    source[5]["text"] += " " + "x + " * 60 + "exp(y)"
    few = [{"number": str(i + 1), "text": f"for i{i} in range(64):", "margin": "6.74 s ±66.5 ms, 100.0 %" if i == 1 else "", "loop": -1} for i in range(9)]
    head = nothing()
    under, chart = roofline(names)
    head.update({
        "program": "iree-benchmark-module", "about": f"{sum(map(len, calls)):,} calls in {time(span)}",
        "sentences": [f"{time(whole)} in {sum(map(len, calls)):,} calls ({len(threads)} threads), 80 % in 5 of {len(names)} ops",
                      f"the threads spent {100 * idle / lives:.1f} % of {time(lives)} (from the start of their first calls) outside of calls"],
        "warnings": [f"The probes took about {100 * probes / lives:.1f} % of the threads' wall time (350 ns a call). Times within calls "
                     "hold 20.0 ns of that each; gaps between calls hold the rest."],
        "recording": [["command", "./iree-benchmark-module --module=tblock.vmfb --function=main --input=128x64xf32"],
                      ["exit", "0"], ["when", "2026-11-22 06:04:04 UTC"], ["machine", "vm, AMD EPYC, 2 logical CPUs"],
                      ["kernel", "6.18.44"], ["clock", "tsc, 0.385 ns a tick"], ["counters", "page-faults | task-clock"]],
        "lengths": [["the run", time(span * 2), "from before the program was started to after its end, as `counterpoint run` saw it"],
                    ["all calls", time(span), "from the start of the first call to the end of the last one"],
                    [f"{threads[0]} (4711)", time(wall), "from the start of the first call of this thread to its last known moment"],
                    ["in calls", time(whole), "when each of these threads was in a call, added up"]],
        "price": f"price: about {time(probes)} of processor time, {100 * probes / lives:.1f} % of the threads' time",
        "priceParts": f"{number:,} calls at 350 ns each, context switches with counters not measured, flushing 0 ns",
        "losses": [["multiplexed_call", "1", "calls during which the counters ran for only part of the time"],
                   ["counter_open_failed", "2", "threads whose counters could not be opened; their calls have times but no counts"]],
        "notes": ["cycles is left out: this machine has no such counter", "in a container (/.dockerenv exists)"],
        "tables": [by_op, tree, by_thread, between, sites, loops, others, kinds, under], "ops": ops, "roofline": chart,
        "timeline": {
            "begin": str(BEGIN), "base": str(BASE), "trace": None, "span": span, "grid": grid, "about": f"All {sum(map(len, calls)):,} calls.",
            "names": [names[op] for op in range(len(names))] + ["run"],
            "ops": [order.index(op) for op in range(len(names))] + [None],
            "lanes": lanes,
            "series": [{"lane": -1, "label": "task-clock", "about": "at most 324 µs in 254 µs",
                        "at": [span * i / 200 for i in range(200)],
                        "values": [None if i % 37 == 5 else 200 + 100 * math.sin(i / 9) for i in range(200)]},
                       {"lane": 0, "label": "page-faults in calls", "about": "up to 1.31 per ms",
                        "at": [span * i / 50 for i in range(51)],
                        "values": [None if i in (7, 50) else 1 + 0.3 * math.cos(i / 3) for i in range(51)]}],
        },
        "listings": [{"table": "loop0", "label": "matmul", "words": ["2 loops, 213 instructions, 512 bit vectors"], "loops": ["i", "j"],
                      "columns": [{"title": "TIR", "lines": few}, {"title": "C", "lines": source}, {"title": "assembly", "lines": lines}]},
                     {"table": "loop1", "label": "softmax", "words": [], "loops": [],
                      "columns": [{"title": "C", "lines": few}, {"title": "assembly", "lines": few}]}],
    })
    return head, block


def replaced(value, change):
    """Returns the same data with the texts changed by `change`, except those under some keys that the page interprets."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [replaced(one, change) for one in value]
    if isinstance(value, dict):
        keep = ("schema", "id", "table", "group", "sort", "holds")
        return {key: one if key in keep else replaced(one, change) for key, one in value.items()}
    return value


def hostile():
    names = [f"{name}{i}" for i, name in enumerate(HOSTILE)]
    head, block = usual(names, 400, [HOSTILE[0], HOSTILE[2] + " worker", "w" * 300])
    n = iter(range(10**9))
    for key in ("sentences", "warnings", "notes", "recording", "losses", "price", "priceParts", "program", "about", "listings", "lengths"):
        head[key] = replaced(head[key], lambda text: f"{text} {HOSTILE[next(n) % len(HOSTILE)]}")
    for one in head["tables"]:
        for key in ("title", "lead", "explained"):
            one[key] = replaced(one[key], lambda text: f"{text} {HOSTILE[next(n) % 3]}")
    head["timeline"]["trace"] = {"name": HOSTILE[0] + ".json", "url": "javascript:document.title='ran'", "isJson": True}
    head["roofline"] = replaced(head["roofline"], lambda text: f"{text} {HOSTILE[next(n) % 3]}")
    for op in head["ops"]:
        for key in ("where", "facts", "longest", "joints", "goesWith", "explained"):
            op[key] = replaced(op[key], lambda text: f"{text} {HOSTILE[next(n) % 3]}"[:90])
    return head, block


def missing():
    names = ["softmax", "matmul", ""]
    head, block = usual(names, 40, ["main", "worker"])
    for one in head["tables"]:
        for row in one["rows"]:
            row[1:] = [None] * (len(row) - 1)
        one["rest"] = [[rest[0]] + [None] * (len(rest) - 1) for rest in one["rest"]]
    head["roofline"].update({"x": [], "y": [], "roofs": [], "points": []})
    for i, op in enumerate(head["ops"]):
        op.update({"facts": [[label, ""] for label, _ in op["facts"]], "where": "", "lanes": [], "joints": [], "goesWith": None, "explained": []})
        op["drift"] = {"from": 0, "width": 0, "parts": [None, None]} if i else None
        op["times"] = {"first": 0, "counts": []} if i else None
        op["longest"]["rows"] = [{"cells": [None] * 4, "at": 0, "thread": -1}]
    head["timeline"]["series"] = [
        {"lane": -1, "label": "nothing", "about": "", "at": [], "values": []},
        {"lane": 0, "label": "never", "about": "", "at": [0, 1000], "values": [None, None]},
    ]
    head["timeline"]["lanes"].append({"pid": "a", "tid": "b", "label": "idle", "process": "", "calls": 0, "depth": 0,
                                      "offset": len(block), "bytes": 0})
    head["price"] = ""
    return head, block


def long():
    """Makes data with long names of C++ functions.

    The two ops with the most time have the same `name`, but different labels.
    """
    names = [f"void at::native::(anonymous namespace)::vectorized_{name}_kernel<float, {i}>(at::TensorIteratorBase&, std::array<char*, {i}>)"
             for i, name in enumerate(["add", "mul", "exp", "sum", "layer_norm", "softmax", "gelu", "copy"])]
    head, block = usual(names, 200, ["python3", "pool"])
    head["ops"][1]["name"] = head["ops"][0]["name"]
    return head, block


def compare(is_hostile=True):
    """Makes a comparison of two series of runs.

    For 10 of 12 ops, it says by which factor the op's time changed (drawn on an axis from 1/4 to 4), and how
    much time the op adds to a run. Each of the other two ops is in only one of the series.
    """
    rng = random.Random(31)
    bad = HOSTILE if is_hostile else ["conv_3x3_f32", "--fuse", "pool_2x2_f32"]
    names = OPS[:8] + ([bad[0], bad[2], "x" * 300, ""] if is_hostile else [bad[0], bad[2], *OPS[8:10]])
    changes = [2.4, 1.3, 1.08, 1.02, 1.0, 0.97, 0.8, 0.45, 1.6, 30.0, None, None]
    kinds = ["slower", "slower", "slower", "same", "same", "unknown", "faster", "faster", "unknown", "slower", "new", "gone"]
    place = lambda ratio: math.log(ratio) / math.log(4) / 2 + 0.5
    words = {"same": "same within 3 %", "unknown": "cannot be told (±9.3 %): 40 pairs would tell", "new": "new", "gone": "gone"}
    rows, marks, bars = [], [], []
    for i, (name, ratio, kind) in enumerate(zip(names, changes, kinds)):
        ns = 3e5 * math.exp(-0.4 * i)
        text = words.get(kind)
        if text is None:
            by = abs(ratio - 1) * 100
            text = f"{kind} {by:.1f} % [{by * 0.9:.1f}, {by * 1.1:.1f}]" + (", floor unchanged" if i == 2 else "")
        added = None if ratio is None else ns * (ratio - 1)
        sign = "" if added is None else "−" if added < 0 else "+"
        rows.append([
            name, text if ratio is None else [text, ratio - 1], None if kind == "new" else [time(ns), ns],
            None if kind == "gone" or ratio is None else [time(ns * ratio), ns * ratio], "renamed from " + bad[0] if i == 8 else None,
            None if added is None else [sign + time(abs(added)), added], ["1,200", 1200], [time(ns * 1200), ns * 1200], None,
        ])
        spread = 0.01 + 0.2 * rng.random() * (kind == "unknown") + 0.02
        marks.append(None if ratio is None else {
            "at": place(min(ratio, 16)), "kind": kind, "text": f"{(ratio - 1) * 100:+.1f} % [invented]",
            "ends": [place(ratio * (1 - spread)), place(min(ratio * (1 + spread), 16))] if i != 3 else None})
        low, high = -2e5, 5e5
        bars.append(None if added is None else {
            "at": min(1, (added - low) / (high - low)), "kind": kind, "text": "" if i == 1 else "+1.00 ms",
            "ends": [min(1, max(0, (added * k - low) / (high - low))) for k in (0.9, 1.1)]})
    ticks = [[place(1 / 2), "÷ 2"], [0.5, "="], [place(2), "× 2"]]
    forest = {"title": "B as a part of A, log", "after": 0, "ticks": ticks, "zero": 0.5, "band": [place(1 / 1.03), place(1.03)],
              "isBars": False, "rows": marks}
    adds = {"title": "adds to a run", "after": 4, "ticks": [[2 / 7, "0"]], "zero": 2 / 7, "band": None, "isBars": True, "rows": bars}
    columns = [column("op", "op", True), column("verdict", "B is", True), column("a_ns", "A"), column("b_ns", "B"),
               column("relation", "was", True), column("in_run", "in a run"), column("calls_a", "calls", is_minor=True),
               column("total_a_ns", "total A", is_minor=True), column("total_b_ns", "total B", is_minor=True)]
    whole = table("whole", "ops", "The whole", [column("of", "of a run", True), *columns[1:4], columns[5]], [
        ["all calls", "slower 14.6 % [13.9, 15.2]", "12.3 ms", "14.1 ms", None],
        ["typical calls of all ops", None, None, None, "+1.72 ms [+1.64 ms, +1.80 ms]"],
        ["remainder: slow calls and first calls, which are not typical", None, None, None, "+78.0 µs [−12.0 µs, +168 µs]"],
        ["outside of calls", "not tested", "3.10 ms", "3.21 ms", None],
    ], sort="", plots=[{**forest, "rows": [{"at": place(1.146), "ends": [place(1.139), place(1.152)], "kind": "slower", "text": "+14.6 %"}, None, None, None]},
                       {**adds, "after": 3, "rows": [None, bars[0], None, None]}])
    head = nothing()
    runs = [["A", "10 runs of ./model --tiled (commit=c1)"], ["B", f"10 runs of ./model {bad[1]} (commit=c2)"],
            ["runs", "10 pairs in random order"]]
    head.update({
        "program": "model", "about": "10 pairs", "recording": runs,
        "compare": {
            "answer": f"B is slower: 14.6 % [13.9, 15.2], from {OPS[0]} and {bad[0]}, although 2 rows got faster.",
            "runs": runs, "whole": whole,
            "rows": table("diff", "ops", "Rows", columns, rows, sort="", plots=[forest, adds]),
            "counters": [[name, ["page-faults 3 → 515 per call (exact)", "task-clock 11.2 % [10.9, 11.6] more"][: 1 + i % 2]]
                         for i, name in enumerate(names * 2)],
            "notes": [["read", "faster 5 % [4, 6]: it takes 5 % less time, and between 4 and 6 % with 95 % confidence."],
                      ["note", "x.series: 10 of 12 rounds are complete; the others are left out"]],
        },
    })
    return head, bytearray()


def roofline(names):
    """Makes the table and the chart of a roofline with two bandwidths. The table's last row is not in the chart."""
    columns = [column("op", "op", True), column("gflop_per_s", "GFLOP/s"), column("flop_per_byte", "FLOP/byte"),
               column("roof", "of roof"), column("bound", "bound", True)]
    across = lambda intensity: 0.1 + 0.3 * math.log10(intensity / 0.1)
    up = lambda gflops: 0.4 * math.log10(gflops)
    peak, near, far = 236, 222, 26.3
    rows, points = [], []
    for i, name in enumerate(names):
        # Intensities begin at 0.25 FLOP per byte. The data of every third op does not fit into a cache.
        intensity = 0.25 * 1.6 ** (i * 7 % len(names))
        width = far if i % 3 == 0 else near
        holds = "unknown" if i % 5 == 4 else "memory" if intensity * width < peak else "compute"
        part = 0.9 - 0.6 * i / len(names)
        gflops = min(peak, intensity * width) * part
        known = holds != "unknown"
        rows.append([name, [f"{gflops:.1f}", gflops], [f"{intensity:.2f}", intensity],
                     [f"{100 * part:.1f} %", part] if known else None, holds if known else None])
        points.append({"name": name, "at": [across(intensity), up(gflops)], "holds": holds,
                       "text": f"{name}: {gflops:.1f} GFLOP/s"})
    rows.append([names[0], ["1.00", 1.0], None, None, None])
    chart = {
        "about": f"{len(names)} ops under the roofs of 2 cores.",
        "x": [[0.1, "0.1"], [0.4, "1"], [0.7, "10"], [1.0, "100"]],
        "y": [[0.0, "1"], [0.4, "10"], [0.8, "100"]],
        "roofs": [{"text": "236 GFLOP/s, 32-bit", "ends": [across(peak / near), up(peak), 1.0, up(peak)]},
                  {"text": "L2, 222 GB/s", "ends": [0.0, up(near * 10 ** (-4 / 3)), across(peak / near), up(peak)]},
                  {"text": "memory, 26.3 GB/s", "ends": [0.0, up(far * 10 ** (-4 / 3)), across(peak / far), up(peak)]}],
        "points": points,
    }
    return table("roofline", "roofline", "Roofline", columns, rows, explained=["of roof: the least time / the time"]), chart


OPS = ["softmax_4x128x128xf32_dispatch_tensor_store", "matmul_128x256x64_f32", "matmul_128x64x256_f32",
       "matmul_128x192x64_f32", "batch_matmul_4x128x128x16_f32", "batch_matmul_4x128x16x128_f32",
       "matmul_128x64x64_f32", "transpose_128x4x16_f32", "reduction_128x64_f32", "slow_memcpy",
       "elementwise_128x64_f32", "elementwise_a_name_that_is_really_very_long_because_compilers_make_such_names_f32"]

KINDS = {
    "usual": lambda: usual(OPS, 1500, ["iree-worker-0", "iree-worker-1"]),
    "hostile": hostile,
    "missing": missing,
    "empty": lambda: (nothing(), bytearray()),
    "compare": compare,
    "long": long,
    "compared": lambda: compare(is_hostile=False),
    "million": lambda: usual(OPS, 85000, ["iree-worker-0", "iree-worker-1"]),
}

if __name__ == "__main__":
    kind, out = sys.argv[1:]
    Path(out).write_text(page(*KINDS[kind]()))
