"""Compares the metrics of a random profile with exact arithmetic in fractions.

Arguments: the program, the profile, and a file of metrics. Python can evaluate the expressions, because they only
use counters with names of one letter, `duration`, `calls`, numbers, + - * / ( ) min max. A number that is added to a
sum over calls is added once for each call."""

import json
import math
import subprocess
import sys
from fractions import Fraction

program, profile, metrics = sys.argv[1:]


def run(*args):
    text = subprocess.run([program, *args], check=True, capture_output=True, text=True).stdout
    return json.loads(text)


defined = {}
for line in open(metrics):
    if line.strip() and not line.startswith("#"):
        name, expression = line.split("=", 1)
        defined[name.strip()] = expression.strip()

options = [profile, "--metrics-file", metrics, "--format", "json"]
report = run("report", *options)
by_thread = run("report", "--by", "thread", *options)
export = run("export", *options)
stats = run("stats", "--no-table", *options)
counters = [c["name"] for c in report["profile"]["counters"]]
groups = {c["name"]: c["group"] for c in report["profile"]["counters"]}
assert list(defined) == [m["name"] for m in export["metrics"]], export["metrics"]


def names(expression):
    return [c for c in counters if c in expression.replace("duration", "").replace("calls", "").replace("max", "").replace("min", "")]


def whole(call, name):
    group = groups[name]
    enabled, running = call[f"group{group}_enabled_ns"], call[f"group{group}_running_ns"]
    return call[name] is not None and enabled == running


class Sum:
    """A sum over calls (`degree` 1), or a number that does not grow with the number of calls (`degree` 0)."""

    def __init__(self, value, degree, calls):
        self.value, self.degree, self.calls = value, degree, calls

    def of(self, other):
        return other if isinstance(other, Sum) else Sum(Fraction(other), 0, self.calls)

    def alike(self, other):
        other = self.of(other)
        degree = max(self.degree, other.degree)
        up = lambda one: one.value * (self.calls if one.degree < degree else 1)
        return up(self), up(other), degree

    def combined(self, other, how):
        a, b, degree = self.alike(other)
        return Sum(how(a, b), degree, self.calls)

    def __add__(self, other):
        return self.combined(other, lambda a, b: a + b)

    def __sub__(self, other):
        return self.combined(other, lambda a, b: a - b)

    def __rsub__(self, other):
        return self.of(other) - self

    def __mul__(self, other):
        other = self.of(other)
        return Sum(self.value * other.value, max(self.degree, other.degree), self.calls)

    def __truediv__(self, other):
        other = self.of(other)
        a = self.value * (self.calls if self.degree < other.degree else 1)
        return Sum(a / other.value, max(0, self.degree - other.degree), self.calls)

    def __rtruediv__(self, other):
        return self.of(other) / self

    def __neg__(self):
        return Sum(-self.value, self.degree, self.calls)

    __radd__, __rmul__ = __add__, __mul__


def extreme(how):
    def call(*all):
        found = all[0]
        for one in all[1:]:
            sums = found if isinstance(found, Sum) else one
            found = sums.of(found).combined(one, how) if isinstance(sums, Sum) else how(found, one)
        return found

    return call


def exact(expression, values, calls):
    values = {name: Sum(value, 1, calls) for name, value in values.items()}
    try:
        found = eval(expression, {"__builtins__": {}, "min": extreme(min), "max": extreme(max)}, values)
    except ZeroDivisionError:
        return None
    return found.value if isinstance(found, Sum) else found


compared = missing = undefined = 0


def same(ours, theirs, what):
    global compared, undefined
    if theirs is None:
        undefined += 1
        assert ours is None, (what, ours, theirs)
        return
    compared += 1
    assert ours is not None, (what, float(theirs))
    # The results differ in the last digits because of rounding. An absolute error is allowed, too:
    # if terms cancel each other, the result is near 0, and its relative error is large.
    assert math.isclose(ours, float(theirs), rel_tol=1e-9, abs_tol=1e-6), (what, ours, float(theirs))


def value(expression, calls):
    """Evaluates an expression with sums over the calls in which all counters of the expression were read and none was
    multiplexed. Returns the value, and the number of these calls."""
    used = names(expression)
    some = [call for call in calls if all(whole(call, name) for name in used)]
    values = {name: Fraction(sum(call[name] for call in some)) for name in used}
    # One tick is one nanosecond here.
    values["duration"] = Fraction(sum(call["duration_ticks"] for call in some))
    values["calls"] = Fraction(len(some))
    return (exact(expression, values, len(some)) if some else None), len(some)


for call in export["calls"]:
    for name, expression in defined.items():
        theirs, counted = value(expression, [call])
        same(call[name], theirs, (name, expression, call))
        missing += counted == 0

for document, of_row in [
    (report, lambda row: lambda call: call["op_id"] == row["op_id"]),
    (by_thread, lambda row: lambda call: (call["process"], call["thread"]) == (row["process"], row["thread"])),
]:
    for row in document["rows"]:
        calls = list(filter(of_row(row), export["calls"]))
        assert row["calls"] == len(calls)
        ours = {metric["name"]: metric for metric in row["metrics"]}
        for name, expression in defined.items():
            theirs, counted = value(expression, calls)
            assert ours[name]["calls"] == counted, (name, expression, ours[name], counted)
            same(ours[name]["value"], theirs, (name, expression))

for op in stats["ops"]:
    calls = [call for call in export["calls"] if call["op_id"] == op["op_id"]]
    for variable in op["all"]["variables"]:
        if variable["name"] not in defined:
            continue
        values = [call[variable["name"]] for call in calls]
        values = [v for v in values if v is not None]
        assert variable["calls"] == len(values), (variable, len(values))
        if not values:
            assert variable["mean"] is variable["min"] is variable["max"] is None
            continue
        size = max(abs(v) for v in values)
        close = lambda a, b: math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9 * size)
        mean = math.fsum(values) / len(values)
        assert close(variable["mean"], mean), (variable, mean)
        assert (variable["min"], variable["max"]) == (min(values), max(values)), variable
        if len(values) > 1:
            squares = math.fsum((v - mean) ** 2 for v in values)
            sd = math.sqrt(squares / (len(values) - 1))
            assert close(variable["standard_deviation"], sd), (variable, sd)
        values.sort()
        count, buckets = len(values), len(variable["bucket_means"])
        for b, ours in enumerate(variable["bucket_means"]):
            part = values[count * b // buckets : count * (b + 1) // buckets]
            assert (ours is None) == (not part), (variable, b)
            assert not part or close(ours, math.fsum(part) / len(part)), (variable, b)

assert compared > 1000 and missing > 100 and undefined > 100, (compared, missing, undefined)
print(compared, missing, undefined)
