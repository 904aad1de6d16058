"""Tests reports of sessions with a budget, in which only some calls were timed (docs/sampling.md)."""

from counterpoint import _ops
from counterpoint.report import Count, Duration


def op(number, duration_ns, weight, run):
    return {
        "op": number, "run": run, "parent": None, "depth": 0, "vm": 0, "process": 7, "thread": 7,
        "name": "matmul", "bookkeeping": False, "arguments": "float32[4, 4]", "device": "cpu0",
        "asynchronous": False, "start_ns": 0.0, "duration_ns": duration_ns, "self_ns": None,
        "storage_bytes": None, "workspace_bytes": None, "counters": {"page-faults": 3},
        "self_counters": None, "weight": weight, "skipped": weight - 1, "counter_weight": weight,
        "workers": {}, "values": {}, "regions": [],
    }  # fmt: skip


def test_rows_are_timed_calls_with_weights():
    run = {
        "run": 0, "vm": 0, "process": 7, "thread": 7, "function": "main", "parent": None,
        "failed": False, "failed_op": None, "start_ns": 0.0, "duration_ns": 9000.0,
        "first_op_ns": None, "between_ops_ns": None, "own_ns": None, "counters": {},
        "own_counters": None, "weight": 1, "skipped": 0, "counter_weight": None,
    }  # fmt: skip
    document = {
        "counters": [{"name": "page-faults", "unit": "count", "group": 0}],
        "values": [],
        "vms": [{"vm": 0, "name": "vm", "process": 7}],
        "runs": [run],
        "ops": [op(0, 2000.0, 1, 0), op(1, 3000.0, 8, None)],
        "losses": [],
    }
    report = _ops.report(document, lambda process, name: True, {}, fold=True)
    # There is no row for the time of the run outside of its ops, because this time is unknown
    # (`own_ns`).
    assert [row["Name"].string for row in report.calls] == ["matmul", "matmul"]
    assert [row["Weight"] for row in report.calls] == [Count(1), Count(8)]
    assert [row["Duration (us)"] for row in report.calls] == [Duration(2.0), Duration(3.0)]
    assert [row["page-faults"] for row in report.calls] == [Count(3), Count(3)]
    assert any("only some calls were timed" in note for note in report.notes)
