"""Runs a small model in STEPS steps. In mode `count`, prints how often each op was called, as torch.profiler counts.

    steps.py MODE STEPS

The model has short ops, so that announcing all ops to the recorder would cost more than any small budget. MODE is
`plain`, or `count` (the same with torch.profiler, which counts the ops), or `inference` (no optimizer, no ranges).
"""

import collections
import json
import sys

import torch

LAYERS = 20


def main():
    mode, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(LAYERS)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    given = torch.randn(2, 4)

    def train():
        for _ in range(steps):
            optimizer.zero_grad()
            model(given).sum().backward()
            optimizer.step()

    def infer():
        with torch.inference_mode():
            for _ in range(steps):
                model(given)

    calls = collections.Counter()
    if mode == "count":
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            train()
        # The profiler's table (`key_averages`) would take ten times as long, and leaves out some
        # ops inside of ops of the same name.
        calls.update(event.name() for event in profiler.profiler.kineto_results.events())
    elif mode == "inference":
        infer()
    else:
        train()
    print(json.dumps(calls))


main()
