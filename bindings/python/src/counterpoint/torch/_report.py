"""Converts the document of `counterpoint ops --format json` (docs/schema.md) to a report about PyTorch.

The columns are the same as in reports about TVM. Durations and counters without "Total" in their names are
those of the op itself, without the ops that it calls. (If only some calls were timed, durations include these
ops.) Counters include the counts of OpenMP's threads that worked for the op; these counts also have columns
of their own.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from typing import Any, Optional

from counterpoint import _ops
from counterpoint.metrics import Count, Duration, Metric, Percent, Text
from counterpoint.report import Loss, Report, Row

MACHINE = "torch"
"""The name that PyTorch has in the list `vms` of the document."""


def report(document: Mapping[str, Any], process: int, configuration: Mapping[str, Metric]) -> Report:
    """Returns the report of the ops that PyTorch called in the process with the number `process`."""
    machines = {
        vm["vm"] for vm in document["vms"] if vm["process"] == process and vm["name"] == MACHINE
    }
    ops = [op for op in document["ops"] if op["vm"] in machines]
    columns = _Columns(document, ops)
    rows = [columns.op(op) for op in ops]
    total = columns.total()
    wall = total["Duration (us)"]
    longest = wall.microseconds if isinstance(wall, Duration) else 0.0
    for row in rows:
        own = row["Duration (us)"]
        share = own.microseconds / longest * 100 if isinstance(own, Duration) and longest else 0.0
        row["Percent"] = Percent(share)
    settings = dict(configuration)
    probe = document.get("probe") or {}
    if probe.get("estimated_ns") is not None:
        settings["Estimated cost of the probes (us)"] = Duration(probe["estimated_ns"] / 1000.0)
    return Report(
        calls=rows,
        device_metrics={_ops.HOST: total},
        configuration=settings,
        losses=[
            Loss(loss["name"], loss["count"], loss["severity"], loss["help"])
            for loss in document["losses"]
        ],
        notes=[_ops.SAMPLED] if columns.sampled else [],
    )


class _Columns(_ops.Columns):
    """The columns of a report, and the functions that fill them."""

    def __init__(self, document: Mapping[str, Any], ops: list[Any]) -> None:
        super().__init__(document, ops)
        self.nests = True
        self.sampled = _ops.is_sampled(ops)
        self.all = ops
        self.threads = len({op["thread"] for op in ops}) > 1
        self.ranges = any(op.get("range") for op in ops)
        self.forward = any(op.get("forward") for op in ops)
        self.below = self._below()

    def _below(self) -> dict[int, dict[str, Optional[float]]]:
        """Returns, for each op, the sums of the counts of the other threads that worked for the op or for ops
        inside it. A sum is `None` if one of its terms is not known."""
        sums: dict[int, dict[str, Optional[float]]] = {}
        for op in self.all:
            sums[op["op"]] = {name: op["workers"].get(name, 0) for name, _ in self.counters}
            if op["workers"]:
                sums[op["op"]] = {name: op["workers"].get(name) for name, _ in self.counters}
        # An op has a higher number than the op that contains it, so inner ops come first.
        for op in sorted(self.all, key=lambda op: -int(op["op"])):
            parent = sums.get(op["parent"])
            if parent is None:
                continue
            for name, value in sums[op["op"]].items():
                there = parent[name]
                parent[name] = None if value is None or there is None else there + value
        return sums

    def op(self, op: Mapping[str, Any]) -> Row:
        row = super().op(op)
        for name, unit in self.counters:
            caller, workers = op["counters"].get(name), self.below[op["op"]][name]
            both = None if caller is None or workers is None else caller + workers
            if self.sampled:
                both = None  # What workers counted for inner ops without a record is not known.
            row[f"Total {name}"] = _ops.counter(both, unit)
        if self.ranges:
            row["Kind"] = Text("range" if op.get("range") else "op")
        if self.forward:
            row["Forward Op"] = Text(op.get("forward") or "")
        if self.threads:
            row["Thread"] = Text(str(op["thread"]))
        return row

    def _in_tasks(self) -> set[int]:
        """Returns the numbers of the outermost ops that OpenMP threads ran inside tasks. `total` leaves these
        ops out, because the counts of a task include those of its ops."""
        tasks: dict[int, list[tuple[float, float]]] = {}
        for op in self.all:
            for region in op["regions"]:
                for task in region["tasks"]:
                    begin = task["start_ns"]
                    tasks.setdefault(task["thread"], []).append((begin, begin + task["duration_ns"]))
        found = set()
        outer = [op for op in self.all if op["parent"] is None and op["thread"] in tasks]
        for thread, spans in tasks.items():
            spans.sort()
            begins = [begin for begin, _ in spans]
            for op in outer:
                if op["thread"] != thread:
                    continue
                at = bisect.bisect_right(begins, op["start_ns"]) - 1
                if at >= 0 and op["start_ns"] + op["duration_ns"] <= spans[at][1]:
                    found.add(op["op"])
        return found

    def total(self) -> Row:
        """Returns the sums over the outermost ops and ranges of all threads, without ops inside tasks."""
        nested = self._in_tasks()
        outer = [op for op in self.all if op["parent"] is None and op["op"] not in nested]
        total: Row = {
            "Name": Text("Total"),
            "Duration (us)": Duration(sum(op["duration_ns"] for op in outer) / 1000.0),
            "Device": Text(_ops.HOST),
            "Count": Count(len(outer)),
        }
        if self.sampled:
            # Not all outermost ops are known: an op that contains a timed op may not have been timed itself.
            total["Duration (us)"] = total["Count"] = None
            total.update({name: None for name, _ in self.counters})
            return total
        for name, unit in self.counters:
            parts: list[Optional[float]] = []
            for op in outer:
                caller, workers = op["counters"].get(name), self.below[op["op"]][name]
                parts.append(None if caller is None or workers is None else caller + workers)
            known = [part for part in parts if part is not None]
            complete = bool(parts) and len(known) == len(parts)
            total[name] = _ops.counter(sum(known) if complete else None, unit)
        return total
