"""Tests what Counterpoint must not change: PyTorch's own events, and programs that do not profile anything."""

import json
import subprocess

import places
import pytest

MODELS = ["mlp", "conv", "transformer"]


@pytest.fixture(scope="session")
def alone(torch):
    return torch.run("models.py", *MODELS, COUNTERPOINT_TORCH="0")


def test_torchs_own_events_are_the_same(torch, plugins, alone, tmp_path):
    calls = tmp_path / "calls"
    without = alone.found
    variables = {"KINETO_PLUGIN_LIB_DIR_PATH": plugins[0], "LAUNCHES_LOG": calls}
    kernels = torch.run("models.py", *MODELS, LAUNCHES_QUIET="1", **variables).found
    launches = torch.run("models.py", *MODELS, **variables).found
    assert calls.read_text().count("process") == 2 * len(MODELS)
    for model in MODELS:
        shown, raw = without[model]
        assert min(len(shown), len(raw)) > 100, model
        assert kernels[model] == [shown, raw], model
        # In torch's tree of events, a launch of the plugin's kernels is a child of its op, as a
        # launch of a CUDA kernel would be. Torch leaves out an op that is the only child of an op
        # with the same name. With launches in the tree, fewer ops are only children, so `shown`
        # differs and only `raw` is compared.
        assert launches[model][1] == raw, model


COUNTED = """
import sys
import counterpoint.torch as cp
with cp.profile(["page-faults:u"], shapes=True):
    exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), {"sys": sys, "__name__": "__main__"})
"""


def test_counters_change_no_event_of_torchs(torch, alone, tmp_path):
    without = alone.found
    models = places.ROOT / "tests/python/torch/scripts/models.py"
    script = COUNTED.replace("import sys\n", f"import sys\nsys.argv = ['', *{MODELS}]\n")
    counted = torch.run(script.replace("sys.argv[1]", repr(str(models))))
    assert counted.found == without
    run = [str(places.DIST / "bin/counterpoint"), "run", "-e", "page-faults:u", "--shapes"]
    run += ["-o", str(tmp_path / "run.cpt"), "--", torch.python, str(models), *MODELS]
    done = subprocess.run(
        run, capture_output=True, text=True, env=torch.environment(COUNTERPOINT_DIST=places.DIST), timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == without
    for model in MODELS:
        assert len(without[model][0]) > 100


COLLECTED = """
import gc, sys, types
import torch, torch._inductor.config, torch.profiler
import counterpoint.torch as cp
# Instead of that of scripts/, which turns the collector off.
sys.modules["quick"] = types.ModuleType("quick")
gc.freeze()  # Only what was imported: it would take minutes.
gc.set_threshold(1)
before = sum(generation["collections"] for generation in gc.get_stats())
with cp.profile(["page-faults:u"], shapes=True):
    exec(compile(open(MODELS).read(), MODELS, "exec"), {"sys": sys, "__name__": "__main__"})
assert gc.isenabled() and sum(generation["collections"] for generation in gc.get_stats()) > before + 1000
gc.unfreeze()
"""


def test_a_collector_that_runs_all_the_time_changes_nothing(torch, alone):
    """Other tests run without Python's garbage collector (`quick.py`)."""
    models = places.ROOT / "tests/python/torch/scripts/models.py"
    script = COLLECTED.replace("MODELS", repr(str(models)))
    done = torch.run(script, *MODELS, quick=False)
    assert done.found == alone.found
    assert "Traceback" not in done.errors and "Exception ignored" not in done.errors


IDLE = """
import json, sys, time
before = set(sys.modules)
import torch
maps = open("/proc/self/maps").read()
print(json.dumps([sorted(m for m in sys.modules if m.startswith("counterpoint")),
                  "libcounterpoint" in maps, "counterpoint/torch" in maps]))
"""


# `import torch` loads Counterpoint's entry point for PyTorch, and Counterpoint's module that prints
# messages.
LEAST = ["counterpoint", "counterpoint.torch", "counterpoint.torch._complaints", "counterpoint.torch._entry"]


def test_without_plugins_the_entry_point_loads_nothing(torch, tmp_path):
    cache = tmp_path / "cache"
    done = torch.run(IDLE, XDG_CACHE_HOME=cache)
    assert done.found == [LEAST, False, False]
    assert done.errors == ""
    assert not cache.exists()


def test_the_entry_point_can_be_turned_off(torch, plugins):
    variables = {"KINETO_PLUGIN_LIB_DIR_PATH": plugins[0]}
    for off in ("0", "off"):
        done = torch.run(IDLE, COUNTERPOINT_TORCH=off, **variables)
        assert done.found == [LEAST, False, False]
        assert done.errors == ""
    torchs_own = torch.run(IDLE, TORCH_DEVICE_BACKEND_AUTOLOAD="0", **variables)
    assert torchs_own.found == [[], False, False]
    on = torch.run(IDLE, **variables).found
    assert on[1:] == [True, True]


PARTS = """
import json, os, sys
import torch
from torch.utils.data import DataLoader, Dataset
from torch.profiler import ProfilerActivity, profile
class Numbers(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        return torch.full((4,), float(i)) + 1
def main():
    sums = []
    for context in ("fork", "spawn"):
        with profile(activities=[ProfilerActivity.CPU]) as prof:
            loader = DataLoader(Numbers(), batch_size=8, num_workers=2, multiprocessing_context=context)
            sums.append(sum(float(batch.sum()) for batch in loader))
        events = prof.profiler.kineto_results.events()
        kernels = [e.linked_correlation_id() for e in events if e.name().startswith("kernel_")]
        ops = [e.correlation_id() for e in events if e.name().startswith("aten::")]
        sums.append(len(kernels) == len(ops) > 0)
    print(json.dumps([sums, os.getpid()]))
if __name__ == "__main__":
    main()
"""


def test_workers_of_data_loaders(torch, plugins, tmp_path):
    script = tmp_path / "loaders.py"
    script.write_text(PARTS)
    calls = tmp_path / "calls"
    done = torch.run(str(script), KINETO_PLUGIN_LIB_DIR_PATH=plugins[0], LAUNCHES_LOG=calls)
    # 8320 is four times the sum of 1 to 64.
    sums, process = done.found
    assert sums == [8320.0, True, 8320.0, True]
    assert "Traceback" not in done.errors
    of = {}
    for line in calls.read_text().splitlines():
        number, call = line.split(" ", 2)[:2]
        if not call.endswith("_user"):
            of.setdefault(int(number), []).append(call)
    cycle = ["create", "configure", "start", "stop", "process", "destroy"]
    assert of.pop(process) == ["register", *cycle, *cycle]
    # Forked workers do not register the plugins. Spawned workers load the plugins, but torch's
    # profiler does not run there.
    assert list(of.values()) == [["register"]] * 2
