"""Profiles some training steps with torch. Writes the trace to the first argument, and torch's own
sums of every op to the second, as JSON: {name: [calls, total time in µs, self time in µs]}."""

import json
import sys

import torch
from torch.profiler import ProfilerActivity, profile, record_function

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
inputs, classes = torch.randn(32, 64), torch.randint(0, 10, (32,))
loss, optimizer = torch.nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters())
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
    for _ in range(20):
        with record_function("step"):
            optimizer.zero_grad()
            loss(model(inputs), classes).backward()
            optimizer.step()
recorded.export_chrome_trace(sys.argv[1])
sums = {op.key: [op.count, op.cpu_time_total, op.self_cpu_time_total] for op in recorded.key_averages()}
with open(sys.argv[2], "w") as file:
    json.dump(sums, file)
