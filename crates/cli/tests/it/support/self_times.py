"""Computes the self time of each op of a Chrome trace by building the tree of each thread. Reads FILE and prints
{name: [calls, total ns, self ns]} as JSON. Calls and total leave out each slice that is inside of a slice
of the same name. Uses complete slices only, and requires that the slices of each thread are nested."""
import json, sys
from collections import defaultdict
from decimal import Decimal

with open(sys.argv[1]) as file:
    trace = json.load(file, parse_float=Decimal)
threads = defaultdict(list)
for place, event in enumerate(trace["traceEvents"]):
    if event.get("ph") == "X" and "dur" in event:
        # Times are rounded to whole nanoseconds, as in `counterpoint trace import`.
        begin = round(Decimal(event["ts"]) * 1000)
        end = begin + round(Decimal(event["dur"]) * 1000)
        threads[(event["pid"], event["tid"])].append((begin, -end, place, event["name"]))

own = defaultdict(lambda: [0, 0, 0])
for slices in threads.values():
    slices.sort()
    root = {"name": None, "end": None, "children": []}
    path = [root]
    for begin, end, _, name in slices:
        end = -end
        while path[-1]["end"] is not None and path[-1]["end"] <= begin:
            path.pop()
        if path[-1]["end"] is not None and path[-1]["end"] < end:
            sys.exit(f"{name} at {begin} ends after {path[-1]['name']}")
        node = {"name": name, "begin": begin, "end": end, "children": []}
        path[-1]["children"].append(node)
        path.append(node)
    work = [(node, frozenset()) for node in root["children"]]
    while work:
        node, around = work.pop()
        total = node["end"] - node["begin"]
        inside = sum(child["end"] - child["begin"] for child in node["children"])
        sums = own[node["name"]]
        if node["name"] not in around:
            sums[0] += 1
            sums[1] += total
        sums[2] += total - inside
        inner = around | {node["name"]}
        work.extend((child, inner) for child in node["children"])
json.dump(own, sys.stdout)
