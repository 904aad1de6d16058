"""Tests profiles with a budget: every call of an op is counted, and only some calls are timed (docs/sampling.md)."""

import csv
import io
from collections import Counter

import counterpoint.tvm as cp
import models
import pytest
import support
from counterpoint.errors import ConflictError

RUNS = 400


def counts(profile):
    """Returns the exact number of calls of each op, by name."""
    text = support.run([support.PROGRAM, "export", "--what", "counts", "--format", "csv", str(profile)])
    found = Counter()
    for row in csv.DictReader(io.StringIO(text)):
        found[row["op"]] += int(row["calls"])
    return found


def a_model():
    mod, entry, arrays = models.MODELS["mlp"]()
    return models.machine(mod), entry, models.tensors(arrays)


@pytest.mark.parametrize("budget", ["1%", 0])
def test_every_op_is_counted(budget, tmp_path):
    vm, entry, args = a_model()
    seen, expected = support.independent(vm, entry, args)
    with cp.profile(vm, counters=[], budget=budget, output=tmp_path / "p.cpt") as prof:
        for _ in range(RUNS):
            result = vm[entry](*args)
    assert support.flat(result) == expected
    names = Counter()
    for (name, _), calls in seen.items():
        names[name] += calls * RUNS
    found = counts(tmp_path / "p.cpt")
    assert {name: found[name] for name in names} == names
    assert found[entry] == RUNS
    report = prof.report(all=True)
    rows = support.ops(report)
    if budget == 0:
        assert rows == []
        return
    # A row's weight is the number of calls that the row represents.
    assert 0 < len(rows) < sum(names.values())
    assert all(row["Weight"].value >= 1 for row in rows)
    assert any(row["Weight"].value > 1 for row in rows)
    assert any("only some calls were timed" in note for note in report.notes)
    # If some runs were not watched, the report does not state the number of runs.
    assert report.device_metrics["cpu0"]["Count"] in (cp.Count(RUNS), None)


def test_collectors_are_called_for_each_op():
    class Calls(cp.Collector):
        name = "calls"
        metrics = {"Seen": cp.Count}

        def __init__(self):
            self.calls = 0

        def start(self, device):
            self.calls += 1

        def stop(self, state):
            return {"Seen": cp.Count(1)}

    vm, entry, args = a_model()
    seen, _ = support.independent(vm, entry, args)
    collector = Calls()
    with cp.profile(vm, counters=[], budget="1%", collectors=[collector]) as prof:
        for _ in range(RUNS):
            vm[entry](*args)
    assert collector.calls == sum(seen.values()) * RUNS
    rows = support.ops(prof.report(all=True))
    assert len(rows) == collector.calls
    assert all(row["Weight"].value == 1 for row in rows)


def test_profiles_with_different_budgets_are_not_open_together():
    vm, entry, args = a_model()
    with cp.profile(vm, counters=[], budget="2%"):
        with pytest.raises(ConflictError, match="budget=0.02"):
            with cp.profile(models.machine(models.MODELS["mlp"]()[0]), counters=[]):
                pass
        with cp.profile(models.machine(models.MODELS["mlp"]()[0]), counters=[], budget=0.02):
            pass


@pytest.mark.parametrize("wrong", ["2", "-1%", "101%", "", "two", -0.1, 1, 2, True, float("nan"), [1]])
def test_a_wrong_budget(wrong):
    vm, _, _ = a_model()
    with pytest.raises(cp.ArgumentError, match="budget= must be a percentage"):
        cp.profile(vm, budget=wrong)


def test_a_budget_and_loops():
    vm, _, _ = a_model()
    with pytest.raises(cp.ArgumentError, match="budget= cannot be combined with loops"):
        cp.profile(vm, budget="2%", loops=True)
