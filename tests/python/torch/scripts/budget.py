"""Profiles a model of short ops with a budget: budget.py BUDGET OUTPUT RUNS."""

import json
import sys

import quick  # noqa: F401
import counterpoint.torch as ct
import torch
from torch.profiler import ProfilerActivity

budget, output, runs = sys.argv[1], sys.argv[2], int(sys.argv[3])
layers = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(4)])
values = torch.randn(2, 16)


def call():
    with torch.no_grad():
        layers(values)


call()
# PyTorch's own profiler finds out which ops one call consists of.
with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as theirs:
    call()
with ct.profile([], budget=budget, output=output) as prof:
    for _ in range(runs):
        call()
report = prof.report()
averages = theirs.key_averages()
print(
    json.dumps(
        {
            "of_a_call": {e.key: e.count for e in averages if e.key.startswith("aten::")},
            "weights": [row["Weight"].value for row in report.calls],
            "notes": report.notes,
            "total": report.device_metrics["cpu0"]["Duration (us)"] is not None,
        }
    )
)
