"""Computes the rows of `counterpoint ops` from single calls. Reads the CSV of `counterpoint export` on stdin. Prints
{op | arguments | device | in_run: [calls, self ns, page faults of the calling thread, page faults of tasks on other
threads, storage]} as JSON, and a row "run" for the runs. The entry "wall" has the total time of the outermost runs."""
import csv, json, sys
from collections import defaultdict

calls = list(csv.DictReader(sys.stdin))
for place, call in enumerate(calls):
    call["place"] = place
    call["begin"] = int(call["start_ns"])
    call["end"] = call["begin"] + round(float(call["duration_ns"]))
    call["faults"] = int(call["page-faults"]) if call["page-faults"] else None

threads = defaultdict(list)
for call in calls:
    threads[(call["process"], call["thread"])].append(call)

def around(outer, inner):
    return (outer["place"] > inner["place"] and outer["begin"] <= inner["begin"]
            and inner["end"] <= outer["end"])

# For each call, this makes a list of all calls that contain it, the innermost one first, by
# comparing all pairs of calls of a thread.
for of_thread in threads.values():
    for call in of_thread:
        call["outer"] = [other for other in of_thread if around(other, call)]
tasks = defaultdict(list)
for call in calls:
    if call["role"] == "task":
        tasks[(call["process"], call["region"])].append(call)

def known(values):
    values = list(values)
    return None if None in values else sum(values)

rows = defaultdict(list)
wall = 0
for call in calls:
    timed = [o for o in call["outer"] if o["role"] in ("op", "run")]
    call["owner"] = timed[0] if timed else None
for call in calls:
    inside = [c for c in calls if c["owner"] is call and c["role"] in ("op", "run")]
    own = call["end"] - call["begin"] - sum(c["end"] - c["begin"] for c in inside)
    faults = known([call["faults"]] + [None if c["faults"] is None else -c["faults"] for c in inside])
    if call["role"] == "run":
        if not any(o["role"] == "run" for o in call["outer"]):
            wall += call["end"] - call["begin"]
        rows["run"].append([own, faults, 0, 0])
    elif call["role"] == "op":
        regions = [c for c in calls if c["role"] == "region" and c["owner"] is call]
        workers = []
        for region in regions:
            found = tasks[(region["process"], region["region"])]
            if not found or len(found) < int(found[0]["count_x"]):
                workers.append(None)
            workers += [t["faults"] for t in found if t["thread"] != call["thread"]]
        in_run = "yes" if any(o["role"] == "run" for o in call["outer"]) else "no"
        key = " | ".join([call["op"], call["arguments"], call["device"], in_run])
        storage = int(call["storage_bytes"] or 0)
        rows[key].append([own, faults, known(workers), storage])

def total(values):
    values = [v for v in values if v is not None]
    return sum(values)

result = {
    key: [len(some), sum(row[0] for row in some)] + [total(row[i] for row in some) for i in (1, 2, 3)]
    for key, some in rows.items()
}
result["wall"] = wall
json.dump(result, sys.stdout)
