"""Converts the document of `counterpoint ops --format json` (docs/schema.md) to a report.

The rows of a report add up to the wall time of its runs:

| row | its duration |
|---|---|
| an op | its own time, without the ops that it calls |
| `(between ops)` | gaps between the first op and the last of a run |
| `(entry function)` | before the first op and after the last |

Counters of the last two rows are only known together. Their sum is in the row `(entry function)`.
This row also includes the counts of bookkeeping ops (`vm.builtin.*`), because the counters of such ops are
only read if the user asked for this. (The counts of a bookkeeping op inside another op are in the row of
that other op.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Optional

from counterpoint.metrics import Count, Duration, Metric, Percent, Ratio, Text
from counterpoint.report import Loss, Report, Row

HOST = "cpu0"
SAMPLED = (
    "only some calls were timed, and the rows are these: each stands for as many calls as its"
    " weight says. Durations include the ops inside"
)
FOLDED = "vm.builtin.*"
_MICROSECOND = 1000.0
_VALUES: dict[str, Callable[[Any], Metric]] = {
    "count": lambda value: Count(int(value)),
    "duration": lambda value: Duration(float(value)),
    "percent": lambda value: Percent(float(value)),
    "ratio": lambda value: Ratio(float(value)),
    "text": lambda value: Text(str(value)),
}


def report(
    document: Mapping[str, Any],
    wanted: Callable[[int, str], bool],
    configuration: Mapping[str, Metric],
    *,
    fold: bool,
) -> Report:
    """Returns the report of the virtual machines for which `wanted(process, name)` is true.

    `fold`: combine all bookkeeping calls of a device into one row, unless only some calls were timed."""
    vms = {vm["vm"] for vm in document["vms"] if wanted(vm["process"], vm["name"])}
    runs = [run for run in document["runs"] if run["vm"] in vms]
    ops = [op for op in document["ops"] if op["vm"] in vms]
    fold = fold and not is_sampled([*runs, *ops])
    columns = Columns(document, ops)
    rows = [columns.op(op) for op in ops if not (fold and op["bookkeeping"])]
    if fold:
        rows += columns.folded(op for op in ops if op["bookkeeping"])
    for run in runs:
        rows += columns.around(run)
    totals = columns.totals(runs, ops)
    longest = max((_us(row) for row in totals.values()), default=0.0)
    for row in rows:
        share = _us(row) / longest * 100 if longest else 0.0
        # Each row was made with this column, so the new value does not change the order of columns.
        row["Percent"] = Percent(share)
    probe = document.get("probe") or {}
    settings = dict(configuration)
    if probe.get("estimated_ns") is not None:
        settings["Estimated cost of the probes (us)"] = Duration(
            probe["estimated_ns"] / _MICROSECOND
        )
    return Report(
        calls=rows,
        device_metrics=totals,
        configuration=settings,
        losses=[
            Loss(loss["name"], loss["count"], loss["severity"], loss["help"])
            for loss in document["losses"]
        ],
        notes=_notes(runs, ops),
    )


class Columns:
    """Makes the rows of a report, all with the columns that the document and its ops need."""

    def __init__(self, document: Mapping[str, Any], ops: list[Any]) -> None:
        self.counters = [(c["name"], c.get("unit", "count")) for c in document["counters"]]
        self.kinds = {v["name"]: _VALUES[v["kind"]] for v in document["values"]}
        self.nests = any(op["parent"] is not None for op in ops)
        self.regions = any(op["regions"] for op in ops)
        self.bytes = any(_bytes(op) for op in ops)
        self.launches = any(op["asynchronous"] for op in ops)
        self.workers = any(_has_workers(op) for op in ops)

    def op(self, op: Mapping[str, Any]) -> Row:
        row = _row(op["name"], _self_ns(op), op["device"] or HOST, op["arguments"])
        if "weight" in op:
            row["Weight"] = Count(op["weight"])
        if self.nests:
            row["Total Duration (us)"] = Duration(op["duration_ns"] / _MICROSECOND)
        if self.launches:
            # The duration of a launch is the host's time for starting work on a device, not the device's
            # time.
            row["Timing"] = Text("launch" if op["asynchronous"] else "call")
        timed_only = _timed_only(op)
        for name, unit in self.counters:
            if timed_only and (op["run"] is not None or op["parent"] is not None):
                continue  # For example, the row of the time between ops.
            own = op["counters"] if op["self_counters"] is None else op["self_counters"]
            caller, workers = own.get(name), 0
            if op["workers"]:
                workers = op["workers"].get(name)
            both = None if caller is None or workers is None else caller + workers
            row[name] = counter(both, unit)
            if self.workers:
                row[f"{name} (workers)"] = counter(workers, unit)
        if self.bytes:
            row["Bytes Allocated"] = Count(_bytes(op))
        if self.regions:
            row["Tasks"] = Count(sum(len(region["tasks"]) for region in op["regions"]))
            worst = [r["imbalance"] for r in op["regions"] if r["imbalance"] is not None]
            if worst:
                row["Imbalance"] = Ratio(max(worst))
        for name, value in (op["values"] or {}).items():
            row[name] = None if value is None else self.kinds[name](value)
        return row

    def folded(self, ops: Iterable[Mapping[str, Any]]) -> list[Row]:
        """Returns one row for each device, with all of its bookkeeping calls."""
        devices: dict[str, Row] = {}
        for op in ops:
            row = self.op(op)
            row["Name"], row["Argument Shapes"] = Text(FOLDED), Text("")
            # The total duration would also include the other ops that bookkeeping ops call.
            row.pop("Total Duration (us)", None)
            device = op["device"] or HOST
            devices[device] = _added(devices[device], row) if device in devices else row
        return list(devices.values())

    def around(self, run: Mapping[str, Any]) -> list[Row]:
        """Returns the rows for the time of a run outside of its ops, if this time is known."""
        if run["own_ns"] is None:
            return []
        between = _row("(between ops)", run["between_ops_ns"], HOST, "")
        own = _row("(entry function)", run["own_ns"], HOST, "")
        workers = _workers(run)
        for name, unit in self.counters:
            caller, others = run["own_counters"].get(name), workers.get(name, 0)
            known = caller is not None and others is not None
            own[name] = counter(caller + others if known else None, unit)
        return [between, own]

    def totals(self, runs: list[Any], ops: list[Any]) -> dict[str, Row]:
        """Returns the totals for each device. The host's total is the wall time of runs, and of ops
        outside of runs. The total of another device is the time of its ops."""
        outer = [run for run in runs if run["parent"] is None]
        loose = [op for op in ops if op["run"] is None and op["parent"] is None]
        wall = sum(item["duration_ns"] for item in [*outer, *loose])
        sampled = is_sampled([*runs, *ops])
        host: Row = {
            "Name": Text("Total"),
            "Duration (us)": Duration(wall / _MICROSECOND),
            "Device": Text(HOST),
            "Count": Count(len(outer) or len(loose)),
        }
        if sampled:
            # With a budget, only some of the ops outside of runs were timed, and only some counts of pool
            # threads are known. All runs were timed, unless a weight or `skipped` shows that some were not.
            if loose or any(run["weight"] > 1 or run["skipped"] for run in runs):
                host["Duration (us)"] = host["Count"] = None
            host.update({name: None for name, _ in self.counters})
            return {HOST: host}
        for name, unit in self.counters:
            parts = [item["counters"].get(name) for item in [*outer, *loose]]
            parts += [op["workers"].get(name) for op in ops if op["workers"]]
            parts += [_workers(run).get(name, 0) for run in runs]
            known = [part for part in parts if part is not None]
            host[name] = counter(sum(known) if len(known) == len(parts) and parts else None, unit)
        totals = {HOST: host}
        for op in ops:
            device = op["device"] or HOST
            if device == HOST:
                continue
            row = _row("Total", _self_ns(op), device, "")
            del row["Argument Shapes"]
            totals[device] = _added(totals[device], row) if device in totals else row
        return totals


def is_sampled(calls: Iterable[Mapping[str, Any]]) -> bool:
    """Returns whether some calls may have been only counted, but not timed."""
    return any("weight" in call for call in calls)


def _timed_only(op: Mapping[str, Any]) -> bool:
    return bool(op["bookkeeping"]) and all(value is None for value in op["counters"].values())


def _self_ns(op: Mapping[str, Any]) -> float:
    """Returns the self time, or the duration if calls inside may not have been timed."""
    return float(op["duration_ns"] if op["self_ns"] is None else op["self_ns"])


def _row(name: str, ns: float, device: str, arguments: str) -> Row:
    return {
        "Name": Text(name),
        "Duration (us)": Duration(ns / _MICROSECOND),
        "Percent": Percent(0.0),
        "Device": Text(device),
        "Count": Count(1),
        "Argument Shapes": Text(arguments),
    }


def _added(sum_: Row, row: Row) -> Row:
    """Adds two rows. If a number is `None` in one of them, the sum is `None`. If one row lacks a column, the
    value comes from the other row."""
    result = dict(sum_)
    for name, value in row.items():
        there = sum_.get(name)
        if name not in sum_:
            result[name] = value
        elif isinstance(there, Count) and isinstance(value, Count):
            result[name] = Count(there.value + value.value)
        elif isinstance(there, Duration) and isinstance(value, Duration):
            result[name] = Duration(there.microseconds + value.microseconds)
        elif isinstance(there, Ratio) and isinstance(value, Ratio):
            result[name] = Ratio(max(there.ratio, value.ratio))
        elif there != value and not isinstance(value, Percent):
            result[name] = Text("") if isinstance(value, Text) else None
    return result


def counter(value: Optional[float], unit: str) -> Optional[Metric]:
    """Converts a counter's value. A time in ns becomes a `Duration`, like all times in a report."""
    if value is None:
        return None
    if unit == "ns":
        return Duration(value / _MICROSECOND)
    return Count(int(value))


def _bytes(op: Mapping[str, Any]) -> int:
    return (op.get("storage_bytes") or 0) + (op.get("workspace_bytes") or 0)


def _workers(run: Mapping[str, Any]) -> dict[str, Optional[float]]:
    """Returns the counts of a run's parallel launches that are outside of any op. The counts of the run's own
    thread are left out. With exec_mode="compiled", all launches are outside of ops."""
    sums: dict[str, Optional[float]] = {}
    for region in run.get("regions", ()):
        for task in region["tasks"]:
            if task["thread"] == run["thread"]:
                continue
            for name, value in task["counters"].items():
                there = sums.get(name, 0)
                sums[name] = None if value is None or there is None else there + value
    return sums


def _has_workers(op: Mapping[str, Any]) -> bool:
    return any(
        task["thread"] != op["thread"] for region in op["regions"] for task in region["tasks"]
    )


def _us(row: Row) -> float:
    value = row["Duration (us)"]
    return value.microseconds if isinstance(value, Duration) else 0.0


def _notes(runs: list[Any], ops: list[Any]) -> list[str]:
    notes = []
    sampled = is_sampled([*runs, *ops])
    if sampled:
        notes.append(SAMPLED)
    failed = [run for run in runs if run["failed"]]
    if failed:
        threw = sorted({run["failed_op"] for run in failed if run["failed_op"] is not None})
        which = f": {', '.join(threw)} threw" if threw else ""
        notes.append(f"{len(failed)} of {len(runs)} runs ended with an error{which}")
    loose = sum(1 for op in ops if op["run"] is None)
    # With a budget, an op may have no run because its run was counted and not recorded.
    if loose and not sampled:
        notes.append(
            f"{loose} op calls were outside of any run: their function was taken from the virtual"
            " machine before it was profiled, or by another way than vm[name]"
        )
    if any(op["asynchronous"] for op in ops):
        notes.append(
            'rows with Timing "launch" show the host\'s time for starting work on an asynchronous'
            " device, not the device's time"
        )
    serial: dict[tuple[str, str], int] = {}
    for op in ops:
        for where in {region["serial"] for region in op["regions"] if region["shared_cpu"]}:
            key = (op["name"], "by one thread" if where == "thread" else "on one CPU")
            serial[key] = serial.get(key, 0) + 1
    for (name, where), count in serial.items():
        notes.append(
            f"{name}: in {count} calls, tasks of one parallel launch ran one after the other {where},"
            " although there are more CPUs"
        )
    return notes
