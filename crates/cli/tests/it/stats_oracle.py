"""Compares `counterpoint stats --format json` with numpy, scipy and exact fractions.

Arguments: any number of triples of a name, an exported CSV, and a JSON document. Means and variances
are computed exactly with fractions; numpy confirms the standard deviation with ddof=1. The smallest
value is subtracted from all values before they become floats, so that large values keep their
differences.
"""

import csv
import json
import math
import sys
from fractions import Fraction

import numpy
import scipy.stats

counts = {"scopes": 0, "variables": 0, "pairs": 0, "cells": 0}


def close(found, expected, what, tolerance=1e-9):
    if expected is None or found is None:
        assert found is None and expected is None, (what, found, expected)
        return
    limit = tolerance * max(1.0, abs(expected))
    assert abs(found - expected) <= limit, (what, found, expected)


def read(path, stats):
    """Returns a dictionary for each call: op, thread, cpu, and the value of each variable.

    The value is None if a counter was not read, or did not count during the whole call.
    """
    counters = stats["profile"]["counters"]
    calls = []
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            call = {"op": row["op"], "thread": int(row["thread"]), "cpu": int(row["cpu"])}
            call["duration_ns"] = int(float(row["duration_ns"]))
            for counter in counters:
                value = row[counter["name"]]
                enabled = row[f"group{counter['group']}_enabled_ns"]
                running = row[f"group{counter['group']}_running_ns"]
                whole = value != "" and int(running) >= int(enabled)
                call[counter["name"]] = int(value) if whole else None
            calls.append(call)
    return calls


def cut(values, buckets):
    """Returns the sorted values of each bucket. The buckets have nearly the same number of values."""
    ordered, n = sorted(values), len(values)
    return [ordered[n * b // buckets : n * (b + 1) // buckets] for b in range(buckets)]


def check_variable(found, values, buckets, what):
    counts["variables"] += 1
    n = len(values)
    assert found["calls"] == n, what
    mean = Fraction(sum(values), n) if n else None
    close(found["mean"], float(mean) if n else None, (what, "mean"), 1e-14)
    assert found["min"] == (min(values) if n else None), what
    assert found["max"] == (max(values) if n else None), what
    deviation = None
    if n > 1:
        variance = sum((v - mean) ** 2 for v in values) / (n - 1)
        deviation = math.sqrt(variance)
        relative = numpy.array([v - min(values) for v in values], dtype=numpy.float64)
        close(numpy.std(relative, ddof=1), deviation, (what, "numpy"), 1e-9)
    close(found["standard_deviation"], deviation, (what, "standard deviation"), 1e-12)
    for mean, part in zip(found["bucket_means"], cut(values, buckets), strict=True):
        expected = float(Fraction(sum(part), len(part))) if part else None
        close(mean, expected, (what, "bucket"), 1e-14)


def lowest_bucket(values, buckets):
    places = {}
    for bucket, part in enumerate(cut(values, buckets)):
        for value in part:
            places.setdefault(value, bucket)
    return places


def check_pair(found, calls, buckets, what):
    counts["pairs"] += 1
    of, given = found["of"], found["given"]
    places = [
        lowest_bucket([c[name] for c in calls if c[name] is not None], buckets)
        for name in (of, given)
    ]
    both = [(c[of], c[given]) for c in calls if c[of] is not None and c[given] is not None]
    assert found["calls"] == len(both), what
    x, y = [v for v, _ in both], [v for _, v in both]
    pearson = spearman = None
    if len(set(x)) > 1 and len(set(y)) > 1:
        relative = [[float(v - min(side)) for v in side] for side in (x, y)]
        pearson = float(scipy.stats.pearsonr(*relative).statistic)
        exact = [numpy.array(side, dtype=numpy.uint64) for side in (x, y)]
        spearman = float(scipy.stats.spearmanr(*exact).statistic)
    close(found["pearson"], pearson, (what, "pearson"))
    close(found["spearman"], spearman, (what, "spearman"))
    expected = [[0] * buckets for _ in range(buckets)]
    columns = [0] * buckets
    for a, b in both:
        expected[places[0][a]][places[1][b]] += 1
        columns[places[1][b]] += 1
    for r, row in enumerate(found["probability"]):
        assert len(row) == buckets
        for c, p in enumerate(row):
            counts["cells"] += 1
            close(p, expected[r][c] / columns[c] if columns[c] else None, (what, r, c), 1e-14)
    assert len(found["probability"]) == buckets
    for c, calls_of_column in enumerate(columns):
        if calls_of_column:
            total = sum(row[c] for row in found["probability"])
            assert abs(total - 1) < 1e-12, (what, c, total)


def check_scope(found, calls, buckets, what):
    counts["scopes"] += 1
    assert found["calls"] == len(calls), what
    cpus = {c["cpu"]: c["calls"] for c in found["cpus"]}
    assert cpus == {cpu: sum(c["cpu"] == cpu for c in calls) for cpu in cpus}, what
    assert sum(cpus.values()) == len(calls), what
    for variable in found["variables"]:
        name = variable["name"]
        values = [c[name] for c in calls if c[name] is not None]
        check_variable(variable, values, buckets, (what, name))
    for pair in found["pairs"]:
        check_pair(pair, calls, buckets, (what, pair["of"], pair["given"]))
    variables = len(found["variables"])
    assert len(found["pairs"]) == variables * (variables - 1) // 2


arguments = iter(sys.argv[1:])
for name, rows, document in zip(arguments, arguments, arguments):
    with open(document) as file:
        stats = json.load(file, parse_constant=lambda text: sys.exit(f"{name}: {text}"))
    calls = read(rows, stats)
    buckets = stats["asked"]["buckets"]
    assert {op["op"] for op in stats["ops"]} == {call["op"] for call in calls}, name
    for op in stats["ops"]:
        mine = [call for call in calls if call["op"] == op["op"]]
        check_scope(op["all"], mine, buckets, (name, op["op"], buckets))
        threads = {call["thread"] for call in mine}
        assert [t["thread"] for t in op["threads"]] == sorted(threads), name
        for thread in op["threads"]:
            of_thread = [call for call in mine if call["thread"] == thread["thread"]]
            what = (name, op["op"], thread["name"], buckets)
            check_scope(thread, of_thread, buckets, what)
print(", ".join(f"{count} {what}" for what, count in counts.items()))
