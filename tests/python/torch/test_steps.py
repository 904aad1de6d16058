"""Compares how often PyTorch calls each op, according to profiles with a budget, with the counts of torch.profiler.
With `run --budget`, the recorder sees the ops of only some training steps, unless `--exact-counts` is given or the
program has no steps."""

import csv
import io
import subprocess
from collections import Counter

import places
import pytest

PROGRAM = str(places.DIST / "bin/counterpoint")
STEPS = 400
OPS = ["aten::linear", "aten::addmm", "aten::t", "aten::mm"]


def recorded(torch, tmp_path, mode, *options, steps=STEPS):
    """Returns the number of calls of each op (an estimate if steps were left out), the number of
    calls that the recorder saw, and the text of the report."""
    profile = tmp_path / "p.cpt"
    words = [PROGRAM, "run", "-e", "none", "-o", profile, *options, "--", torch.python]
    script = places.ROOT / "tests/python/torch/scripts/steps.py"
    environment = torch.environment(OMP_NUM_THREADS="1")
    done = subprocess.run([*words, script, mode, str(steps)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    export = [PROGRAM, "export", "--what", "counts", "--format", "csv", profile]
    text = subprocess.run(export, capture_output=True, text=True, check=True).stdout
    calls, seen = Counter(), Counter()
    for row in csv.DictReader(io.StringIO(text)):
        calls[row["op"]] += int(row["calls"])
        seen[row["op"]] += int(row["seen_calls"])
    report = [PROGRAM, "report", "--width", "200", profile]
    return calls, seen, subprocess.run(report, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="session")
def truth(torch):
    return torch.run("steps.py", "count", STEPS).found


def test_estimates_are_what_pytorch_counts(any_torch, truth, tmp_path):
    calls, seen, report = recorded(any_torch, tmp_path, "plain", "--budget=1%")
    assert {name: calls[name] for name in OPS} == {name: truth[name] for name in OPS}
    assert all(seen[name] < calls[name] / 2 for name in OPS), seen
    assert f"of {STEPS - 1} steps" in report
    assert f"~{calls['aten::linear']:,}" in report


def test_exact_counts_cost_more(torch, truth, tmp_path):
    calls, seen, report = recorded(torch, tmp_path, "plain", "--budget=1%", "--exact-counts")
    assert calls == seen
    assert {name: calls[name] for name in OPS} == {name: truth[name] for name in OPS}
    assert "~" not in report
    assert "all ops were announced" in report and "the budget is 1" in report


def test_inference_without_ranges_is_seen_whole(torch, tmp_path):
    # The report has the advice about `record_function` only if recording took more than 1 % of the
    # run's time. Importing PyTorch takes long, so many steps are necessary for that.
    steps = 25 * STEPS
    calls, seen, report = recorded(torch, tmp_path, "inference", "--budget=1%", steps=steps)
    assert calls == seen
    assert calls["aten::linear"] == 20 * steps
    assert "record_function" in report
