"""Records steps of a model with Python's stacks. argv: what, where to write torch's trace, the profile (unused).

Prints what PyTorch itself reports, as JSON:
- `steps`: the rows of steps in PyTorch's table, with their counts;
- `lines`: for each function, the number and the self time of its ops (an op counts for the innermost function on its
  stack that is not PyTorch's);
- `places`: for three functions of this file, the first line and the line after the last one;
- `flops`: the floating-point operations of each op;
- `shaped`: for each op and each set of input shapes, the calls, their floating-point operations and their time."""

import collections
import inspect
import json
import re
import sys

import quick  # noqa: F401
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(16, 32), torch.nn.Linear(32, 4)
        self.filters = torch.nn.Conv2d(2, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2)

    def forward(self, x):
        seen = self.filters(x.reshape(4, 2, 4, 4))
        pairs = torch.bmm(x.reshape(2, 4, 16), x.reshape(2, 16, 4))
        return self.outer(torch.relu(self.inner(x))) + seen.mean() + pairs.mean()


def loss_of(y):
    return (y * y).sum()


def step(net, x):
    y = net(x)
    return loss_of(y)


def ready(profiler):
    profiler.export_chrome_trace(sys.argv[2])
    lines = collections.defaultdict(lambda: [0, 0.0])
    for event in profiler.events():
        if not event.name.startswith("aten::"):
            continue
        frames = [re.fullmatch(r"(?!torch/|<)(.*)\(\d+\): (.*)", frame) for frame in event.stack]
        frame = next((frame for frame in frames if frame), None)
        if frame:
            row = lines[frame[2]]
            row[0] += 1
            row[1] += event.self_cpu_time_total
    averages = profiler.key_averages()
    steps = [(row.key, row.count) for row in averages if "ProfilerStep" in row.key]
    flops = {row.key: row.flops for row in averages if row.flops}
    shaped = [
        (row.key, row.input_shapes, row.count, row.flops, row.cpu_time_total)
        for row in profiler.key_averages(group_by_input_shape=True)
        if row.flops
    ]
    places = {}
    for function in (Net.forward, loss_of, step):
        source, first = inspect.getsourcelines(function)
        places[function.__name__] = [first, first + len(source)]
    print(json.dumps({"steps": steps, "lines": lines, "places": places, "flops": flops, "shaped": shaped}))


net = Net()
step(net, torch.ones(8, 16))
with torch.profiler.profile(
    activities=[torch.profiler.ProfilerActivity.CPU],
    schedule=torch.profiler.schedule(wait=0, warmup=1, active=4, repeat=1),
    on_trace_ready=ready,
    with_stack=True,
    record_shapes=True,
    with_flops=True,
    experimental_config=torch._C._profiler._ExperimentalConfig(verbose=True),
) as profiler:
    for _ in range(5):
        step(net, torch.ones(8, 16))
        profiler.step()
