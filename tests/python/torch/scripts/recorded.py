"""Does the work that the first argument selects, in most cases with torch.profiler. Most traces are exported to the
path in the second argument. In some cases, prints torch's own sums as JSON: {"sums": {op: [calls, total µs, self µs]},
"shapes": [[op, shapes, calls, total, self]]}."""

import json
import os
import signal
import sys
import threading
import time

if sys.argv[1].startswith("unknown "):
    # PyTorch gets a version number that Counterpoint does not know.
    import types

    (folder,) = [path for path in sys.path if os.path.exists(f"{path}/torch/version.py")]
    version = types.ModuleType("torch.version")
    exec(open(f"{folder}/torch/version.py").read(), version.__dict__)
    version.__version__ = sys.argv[1].split()[1]
    sys.modules["torch.version"] = version

import quick  # noqa: F401
import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

torch.set_num_threads(1)
what, path = sys.argv[1], sys.argv[2]


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = torch.nn.Linear(width, 2 * width), torch.nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def steps(count=3):
    torch.manual_seed(1)
    model = torch.nn.Sequential(Block(16), Block(16), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(count):
        with record_function("step"):
            optimizer.zero_grad()
            model(torch.randn(8, 16)).sum().backward()
            optimizer.step()


def sums(recorded):
    # Torch has a row for each overload of an op, so the overloads are added up.
    found, shapes = {}, {}
    for averages, to, key_of in [
        (recorded.key_averages(), found, lambda op: op.key),
        (recorded.key_averages(group_by_input_shape=True), shapes, lambda op: (op.key, str(op.input_shapes))),
    ]:
        for op in averages:
            row = to.setdefault(key_of(op), [0, 0, 0])
            for i, value in enumerate((op.count, op.cpu_time_total, op.self_cpu_time_total)):
                row[i] += value
    shapes = [[*key, *row] for key, row in shapes.items()]
    print(json.dumps({"sums": found, "shapes": shapes}))


CPU = [ProfilerActivity.CPU]
if what == "steps":
    with profile(activities=CPU, record_shapes=True) as recorded:
        steps()
    sums(recorded)
    recorded.export_chrome_trace(path)
elif what == "stacks":
    with profile(activities=CPU, with_stack=True) as recorded:
        x = torch.randn(300, 300, requires_grad=True)
        for _ in range(10):
            (x @ x @ x).sum().backward()
            time.sleep(0.002)
    sums(recorded)
elif what == "everything":
    with profile(activities=CPU, record_shapes=True, with_stack=True, profile_memory=True) as recorded:
        steps()
    recorded.add_metadata("note", "text")
    recorded.export_chrome_trace(path)
    recorded_again = None
    try:
        recorded.export_chrome_trace(path)
    except RuntimeError as error:
        print(json.dumps({"again": str(error)}))
elif what == "names":
    with profile(activities=CPU) as recorded:
        for name in ['say "é"', "back\\slash", "two\nlines", "plain"]:
            with record_function(name):
                torch.ones(3)
    recorded.export_chrome_trace(path)
elif what == "cycles":
    count = [0]

    def ready(recorded):
        recorded.export_chrome_trace(f"{path}.{count[0]}")
        count[0] += 1

    plan = schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(activities=CPU, record_shapes=True, schedule=plan, on_trace_ready=ready) as recorded:
        for _ in range(8):
            steps(1)
            recorded.step()
elif what == "threads":
    config = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    with profile(activities=CPU, record_shapes=True, experimental_config=config) as recorded:
        workers = [threading.Thread(target=steps, name=f"worker {i}") for i in range(3)]
        [worker.start() for worker in workers]
        [worker.join() for worker in workers]
    recorded.export_chrome_trace(path)
elif what == "raises":
    try:
        with profile(activities=CPU) as recorded:
            steps(1)
            raise KeyError("on purpose")
    except KeyError:
        pass
    recorded.export_chrome_trace(path)
elif what == "many":
    x = torch.ones(4)
    with profile(activities=CPU, record_shapes=True) as recorded:
        for _ in range(10_000):
            x = torch.relu(x)
    recorded.export_chrome_trace(path)
elif what in ("fork", "spawn"):
    import torch.multiprocessing

    def work(path):
        with profile(activities=CPU) as recorded:
            steps(1)
        recorded.export_chrome_trace(path)

    if __name__ == "__main__":
        with profile(activities=CPU) as recorded:
            steps(2)
        recorded.export_chrome_trace(path)
        context = torch.multiprocessing.get_context(what)
        workers = [context.Process(target=work, args=(f"{path}.{i}",)) for i in range(2)]
        [worker.start() for worker in workers]
        [worker.join() for worker in workers]
        assert all(worker.exitcode == 0 for worker in workers)
elif what == "killed":
    with profile(activities=CPU) as recorded:
        steps(1)
    recorded.export_chrome_trace(path)
    os.kill(os.getpid(), signal.SIGKILL)
elif what == "cut":
    # This leaves the same files as a process that is killed while it hands over its recording.
    import glob

    with profile(activities=CPU) as recorded:
        steps(3)
    recorded.export_chrome_trace(path)
    (file,) = glob.glob(f"{sys.argv[3]}/processes/{os.getpid()}-*/plugins-*.events")
    os.truncate(file, os.path.getsize(file) * 2 // 3)
    os._exit(0)
elif what == "no profiler":
    steps(1)
    print(json.dumps({"exit": str(torch.autograd.profiler.profile.__exit__)}))
elif what.startswith("unknown "):
    for i in range(2):
        with profile(activities=CPU, record_shapes=True) as recorded:
            steps(1)
        sums(recorded)
        recorded.export_chrome_trace(f"{path}.{i}")
