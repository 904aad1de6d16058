"""Profiles a training step of a small model, and prints torch's own events and how they nest.

    models.py mlp|conv|transformer
"""

import json
import sys

import quick  # noqa: F401
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

torch.manual_seed(1)
torch.set_num_threads(1)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)

    def forward(self, x):
        return self.block(x).sum(-1)


MODELS = {
    "mlp": (nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)), torch.ones(8, 16)),
    "conv": (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 1)),
        torch.ones(2, 3, 8, 8),
    ),
    "transformer": (Transformer(), torch.ones(2, 5, 32)),
}


def nested(name):
    model, x = MODELS[name]
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    step()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True) as prof:
        step()
    # The first list shows how torch.profiler nests the events, the second how their times nest.
    return [sorted(shown(prof), key=str), sorted(raw(prof))]


def is_a_plugins(name):
    return name in ("launch", "bandwidth") or name.startswith("kernel_")


def shown(prof):
    for event in prof.events():
        if is_a_plugins(event.name):
            continue
        path = []
        above = event
        while above is not None:
            path.append(above.name)
            above = above.cpu_parent
        shapes = [list(shape) for shape in event.input_shapes or []]
        yield [" / ".join(reversed(path)), shapes, event.sequence_nr >= 0, event.cpu_memory_usage]


def raw(prof):
    events = [e for e in prof.profiler.kineto_results.events() if not is_a_plugins(e.name())]
    events.sort(key=lambda e: (e.start_thread_id(), e.start_ns(), -e.end_ns()))
    stack = []
    for e in events:
        while stack and (stack[-1].start_thread_id() != e.start_thread_id() or stack[-1].end_ns() < e.end_ns()):
            stack.pop()
        stack.append(e)
        yield " / ".join(above.name() for above in stack)


print(json.dumps({name: nested(name) for name in sys.argv[1:]}))
