"""Tests profiles with a budget: every op is counted, and only some are timed (docs/sampling.md)."""

import csv
import io
import subprocess
from collections import Counter

import places
import pytest

PROGRAM = str(places.DIST / "bin/counterpoint")
RUNS = 300


@pytest.mark.parametrize("budget", ["1%", "0%"])
def test_every_op_is_counted(torch, budget, tmp_path):
    found = torch.run("budget.py", budget, tmp_path / "p.cpt", RUNS).found
    words = [PROGRAM, "export", "--what", "counts", "--format", "csv", str(tmp_path / "p.cpt")]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    calls, timed = Counter(), 0
    for row in csv.DictReader(io.StringIO(text)):
        calls[row["op"]] += int(row["calls"])
        timed += int(row["timed_calls"])
    expected = {name: count * RUNS for name, count in found["of_a_call"].items()}
    assert len(expected) > 3
    assert {name: calls[name] for name in expected} == expected
    assert len(found["weights"]) == timed < sum(calls.values())
    if budget == "0%":
        assert timed == 0
        return
    assert max(found["weights"]) > 1
    assert any("only some calls were timed" in note for note in found["notes"])
    assert not found["total"]
