"""Tests profiles with one version of TVM, that of the main test environment. test_versions.py tests the numbers in
reports, with every supported version."""

import gc
import json
import os
import signal
import sys
from pathlib import Path

import counterpoint.tvm as cp
import models
import numpy as np
import places
import pytest
import support
import tvm
from tvm import relax


class Told(cp.Collector):
    """A collector with metrics of every kind, whose values are known in advance."""

    metrics = {
        "n": cp.Count,
        "t": cp.Duration,
        "p": cp.Percent,
        "r": cp.Ratio,
        "words": cp.Text,
        "never": cp.Count,
    }

    def __init__(self):
        self.devices = None
        self.started = 0

    def init(self, devices):
        self.devices = [str(device) for device in devices]

    def start(self, device):
        assert device == tvm.cpu(0)
        self.started += 1
        return None if self.started == 2 else self.started

    def stop(self, state):
        return {
            "n": cp.Count(-state),
            "t": cp.Duration(state / 4),
            "p": cp.Percent(12.5),
            "r": cp.Ratio(0.5),
            "words": cp.Text(f"call {state} ü"),
        }


def test_collector_of_every_kind(mlp):
    vm, entry, args = mlp
    told = Told()
    with cp.profile(vm, counters=[], collectors=[told]) as prof:
        vm[entry](*args)
    calls = support.ops(prof.report(all=True))
    assert told.devices == ["cpu:0"] and told.started == len(calls)
    third = calls[2]
    assert third["n"] == cp.Count(-3) and third["t"] == cp.Duration(0.75)
    assert third["p"] == cp.Percent(12.5) and third["r"] == cp.Ratio(0.5)
    assert third["words"] == cp.Text("call 3 ü")
    assert "n" not in calls[1] and all("never" not in row for row in calls)
    # The first profile has ended, so the collector of another profile can use the same names for
    # its metrics.
    with cp.profile(vm, counters=[], collectors=[Told()]) as prof:
        vm[entry](*args)
    assert support.ops(prof.report(all=True))[0]["n"] == cp.Count(-1)


class Broken(cp.Collector):
    metrics = {"n": cp.Count}

    def start(self, device):
        return 1

    def stop(self, state):
        raise RuntimeError("a collector's own error")


def test_a_collector_that_fails_is_a_loss_and_no_error(mlp):
    vm, entry, args = mlp
    expected, result = support.independent(vm, entry, args)
    with pytest.warns(cp.CounterpointWarning, match="Broken.stop raised RuntimeError: a collector's own error"):
        with cp.profile(vm, counters=[], collectors=[Broken()]) as prof:
            assert support.flat(vm[entry](*args)) == result
    report = prof.report(all=True)
    assert support.counted(report) == expected
    assert [loss.name for loss in report.losses] == ["collector_failed"]
    assert report.losses[0].count == sum(expected.values())


class Interrupted(cp.Collector):
    """A collector whose method with the name `where` (`start` or `stop`) calls `raised` at the third op."""

    metrics = {"n": cp.Count}

    def __init__(self, where, raised):
        self.where, self.raised, self.started = where, raised, 0

    def start(self, device):
        self.started += 1
        return self.reached("start")

    def stop(self, state):
        self.reached("stop")
        return {"n": cp.Count(1)}

    def reached(self, where):
        if where == self.where and self.started == 3:
            self.raised()
        return 1


class Beside(Interrupted):
    metrics = {"m": cp.Count}

    def stop(self, state):
        return {"m": cp.Count(2)}


def ctrl_c():
    """Sends SIGINT to this process. Python handles the signal in the Python code that runs next."""
    signal.raise_signal(signal.SIGINT)


@pytest.fixture
def interruptible():
    """Sets Python's handler of Ctrl-C during a test. Python itself does not set it in programs that
    a shell started in the background, because SIGINT is ignored there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("where", ["start", "stop"])
@pytest.mark.parametrize("raised, error", [(ctrl_c, KeyboardInterrupt), (lambda: sys.exit(7), SystemExit)])
def test_what_ends_a_program_passes_a_collector(mlp, where, raised, error):
    vm, entry, args = mlp
    collector, beside = Interrupted(where, raised), Beside("", None)
    with pytest.raises(error) as caught:
        with cp.profile(vm, counters=[], collectors=[collector, beside]) as prof:
            vm[entry](*args)
    assert error is not SystemExit or caught.value.code == 7
    # The model stopped at the third op, and the two calls before it have their metrics.
    assert collector.started == 3
    report = prof.report(all=True)
    ops = support.ops(report)
    assert [row.get("n") for row in ops] == [cp.Count(1)] * 2 + [None] * (where == "stop")
    with cp.profile(vm, counters=[], collectors=[Interrupted("", None)]) as prof:
        vm[entry](*args)
    report = prof.report(all=True)
    assert report.losses == [] and len(support.ops(report)) > 3


PRESSED = """
import os, random, signal, threading, time
import counterpoint.tvm as cp, models
mod, entry, arrays = models.MODELS["mlp"]()
args = models.tensors(arrays)
vm = models.machine(mod)

class Quiet(cp.Collector):
    metrics = {"n": cp.Count}
    start = lambda self, device: 1
    stop = lambda self, state: {}

random.seed(1)
# Ignored from the start in what a shell started in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
with cp.profile(vm, counters=[], collectors=[Quiet()]):
    for _ in range(50):
        try:
            threading.Timer(random.random() / 100, os.kill, (os.getpid(), signal.SIGINT)).start()
            until = time.monotonic() + 60
            while time.monotonic() < until:
                vm[entry](*args)
            raise AssertionError("Ctrl-C was lost")
        except KeyboardInterrupt:
            pass
print("every one")
"""


def test_ctrl_c_at_any_time_is_not_lost():
    assert support.python(PRESSED) == "every one\n"


def test_functions_taken_before_are_measured_without_runs(mlp):
    vm, entry, args = mlp
    before = vm[entry]
    expected, _ = support.independent(vm, entry, args)
    with cp.profile(vm, counters=["page-faults"]) as prof:
        before(*args)
    report = prof.report(all=True)
    assert support.counted(report) == expected and report.calls == support.ops(report)
    assert any("outside of any run" in note for note in report.notes)
    support.assert_sums_to_the_wall_time(report)


def machine_with(middle):
    """Returns a virtual machine whose second op calls `middle`, and the argument of its function
    `main`."""
    tvm.register_global_func("test.around", lambda x: x, override=True)
    tvm.register_global_func("test.middle", middle, override=True)
    vm = models.machine(models.calls("test.around", "test.middle", "test.around"))
    return vm, tvm.runtime.tensor(np.ones((2, 2), "float32"))


def test_a_profile_may_begin_and_end_inside_of_an_op():
    """TVM calls the same instrument before and after an op, even if the op replaced it."""
    todo, open_now = [], []

    def middle(x):
        if todo:
            todo.pop(0)()
        return x

    def begin():
        open_now.append(cp.profile(vm, counters=[]))
        open_now[-1].__enter__()

    def end():
        open_now[-1].__exit__(None, None, None)

    vm, x = machine_with(middle)
    todo[:] = [begin, end]
    vm["main"](x)
    vm["main"](x)
    report = open_now[-1].report()
    names = [row["Name"].string for row in support.ops(report) if row["Name"].string != "vm.builtin.*"]
    assert names.count("test.middle") == 0 and sum(r["Count"].value for r in support.ops(report) if r["Name"].string == "test.around") == 2
    # The profile ended inside of a run and an op. Each of the two counts as a loss.
    assert [(loss.name, loss.count) for loss in report.losses] == [("call_cut_short", 2)]
    # The next call of the machine removes Counterpoint's instrument.
    vm["main"](x)
    with cp.profile(vm, counters=[]) as prof:
        vm["main"](x)
    assert prof.report().losses == []


SERVING = """
import threading, time
import counterpoint.tvm as cp, models, support
mod, entry, arrays = models.MODELS["mlp"]()
args = models.tensors(arrays)
vm = models.machine(mod)
over, between, runs = threading.Event(), threading.Lock(), 0

def serve():
    global runs
    while not over.is_set():
        with between:
            vm[entry](*args)
        runs += 1
        time.sleep(0.0001)

server = threading.Thread(target=serve)
server.start()
ops = 0
for _ in range(30):
    prof = cp.profile(vm, counters=[])
    with between:
        prof.__enter__()
    before = runs
    while runs < before + 3 and server.is_alive():
        time.sleep(0.0003)
    # Wherever the machine is now.
    prof.__exit__(None, None, None)
    assert server.is_alive()
    ops += len(support.ops(prof.report()))
over.set()
server.join()
print("served", ops > 0)
"""


def test_a_profile_may_end_while_another_thread_runs_the_machine():
    assert support.python(SERVING) == "served True\n"


def test_other_ways_to_call(mlp):
    vm, entry, args = mlp
    vm.save_function(entry, "saved", *args)
    with cp.profile(vm, counters=[]) as prof:
        vm["saved"]()
        vm.set_input(entry, *args)
        vm.invoke_stateful(entry)
        vm.get_outputs(entry)
    assert prof.report().device_metrics["cpu0"]["Count"] == cp.Count(2)
    # A function that was looked up inside of a profile can be used afterwards.
    with cp.profile(vm, counters=[]) as prof:
        inside = vm[entry]
    assert support.flat(inside(*args)) == support.flat(vm[entry](*args))
    assert prof.report().calls == []
    assert any("nothing ran" in note for note in prof.report().notes)


def test_two_profiles_at_once(mlp):
    vm, entry, args = mlp
    once, _ = support.independent(vm, entry, args)
    with cp.profile(vm, counters=["page-faults"]) as outer:
        vm[entry](*args)
        with cp.profile(vm, counters=["page-faults"]) as inner:
            vm[entry](*args)
        # The recording that both profiles share continues while the report of the inner profile is
        # made.
        assert support.counted(inner.report(all=True)) == once
        with pytest.raises(cp.ConflictError, match="page-faults.*task-clock"):
            cp.profile(vm, counters=["task-clock"]).__enter__()
        vm[entry](*args)
    assert support.counted(outer.report(all=True)) == {key: 3 * n for key, n in once.items()}
    assert support.counted(inner.report(all=True)) == once


def test_a_report_while_the_profile_is_open(mlp):
    vm, entry, args = mlp
    with cp.profile(vm, counters=[]) as prof:
        vm[entry](*args)
        first = support.counted(prof.report(all=True))
        vm[entry](*args)
    assert support.counted(prof.report(all=True)) == {key: 2 * n for key, n in first.items()}


def test_a_counter_that_cannot_be_had_is_an_error(mlp):
    vm, entry, args = mlp
    with pytest.raises(cp.CounterpointError, match="page-fautls"):
        cp.profile(vm, counters=["page-fautls"]).__enter__()
    with cp.profile(vm, counters=["page-faults"]) as prof:
        vm[entry](*args)
    assert prof.report().calls


def test_a_device_without_a_source_is_left_out_with_one_warning(mlp, monkeypatch):
    # A process gives this warning only once, and another test may have caused it already.
    monkeypatch.setattr(sys.modules["counterpoint._session"], "_told", set())
    vm, entry, args = mlp
    names = {tvm.cpu(): ["page-faults"], tvm.cuda(): ["cuda:::event:elapsed_cycles_sm:device=0"]}
    with pytest.warns(cp.CounterpointWarning) as told:
        for _ in range(2):
            with cp.profile(vm, collectors=[cp.CounterCollector(names)]) as prof:
                vm[entry](*args)
    about = [w for w in told if "cuda" in str(w.message)]
    # The machine has no CUDA driver, so more rights would not help, and the warning must not advise
    # them.
    assert len(about) == 1 and "libcuda.so" in str(about[0].message)
    assert "NVreg_RestrictProfilingToAdminUsers" not in str(about[0].message)
    # The warning names the file that opened the profile.
    assert about[0].filename == __file__
    rows = [row for row in support.ops(prof.report()) if not row["Name"].string.startswith("vm.builtin.")]
    assert rows and all("page-faults" in row for row in rows)


def test_the_profile_is_kept_where_asked_and_else_removed(mlp, tmp_path):
    vm, entry, args = mlp
    with cp.profile(vm, counters=[], output=tmp_path / "kept.cpt") as prof:
        vm[entry](*args)
    assert prof.path == str(tmp_path / "kept.cpt")
    assert "matmul" in support.run([support.PROGRAM, "report", prof.path])
    with cp.profile(vm, counters=[]) as prof:
        vm[entry](*args)
    path = Path(prof.path)
    prof.report()
    assert path.is_dir()
    del prof
    gc.collect()
    assert not path.parent.exists()


def test_a_place_where_no_profile_can_be(mlp, tmp_path):
    vm, entry, args = mlp
    (tmp_path / "file").write_text("")
    for place, why in [("file", "already exists and is not a Counterpoint profile"), ("file/x", "Not a directory"), ("no/x", "No such file")]:
        with pytest.raises(cp.CounterpointError, match=f"(?s){place}.*{why}.*with output=$"):
            cp.profile(vm, counters=[], output=tmp_path / place).__enter__()
    with cp.profile(vm, counters=[]) as prof:
        vm[entry](*args)
    assert prof.report().calls


def test_what_is_no_virtual_machine():
    with pytest.raises(TypeError, match="profile a relax.VirtualMachine, .*, not 1$"):
        cp.profile([1])


BEFORE = """
import sys
import models, tvm, support
from tvm import relax
executable = models.executable(models.touching(3))
executable.export_library(sys.argv[1])
old = relax.VirtualMachine(executable, tvm.cpu())
loaded = tvm.runtime.load_module(sys.argv[1])
fresh = models.executable(models.touching(3))
fresh.jit()
import counterpoint.tvm as cp
machines = {"older": old, "same kernels": relax.VirtualMachine(executable, tvm.cpu()),
    "loaded": relax.VirtualMachine(loaded, tvm.cpu()), "in time": relax.VirtualMachine(fresh, tvm.cpu())}
for name, vm in machines.items():
    with cp.profile(vm, counters=[]) as prof:
        vm["main"](support.fresh(6 * 4096))
    (op,) = [row for row in support.ops(prof.report()) if row["Name"].string == "touch"]
    seen = op.get("Tasks")
    print(name, "|", seen, "|", *[f"{loss.name} {loss.count} {loss.explanation}" for loss in prof.report().losses])
"""


def test_what_is_older_than_the_import_is_a_named_loss(tmp_path):
    lines = [line.split("|") for line in support.python(BEFORE, tmp_path / "kernels.so").splitlines()]
    assert [(name.strip(), seen.strip()) for name, seen, _ in lines] == [
        ("older", "None"), ("same kernels", "None"), ("loaded", "None"), ("in time", "2"),
    ]
    older, same, loaded, in_time = (loss for _, _, loss in lines)
    assert all(loss.startswith(" parallel_unseen 1 ") for loss in (older, same, loaded))
    assert "made before counterpoint.tvm" in older and "has its kernels" in same
    assert "kernels.so was loaded before" in loaded
    assert in_time.strip() == ""


RPC = """
import counterpoint.tvm as cp, models, tvm, tempfile, os
from tvm import relax, rpc
mod, entry, arrays = models.MODELS["mlp"]()
path = os.path.join(tempfile.mkdtemp(), "m.so")
models.executable(mod).export_library(path)
remote = rpc.LocalSession()
remote.upload(path)
vm = relax.VirtualMachine(remote.load_module("m.so"), remote.cpu())
try:
    with cp.profile(vm, counters=[]):
        pass
except cp.UnsupportedError as error:
    print(error)
"""


def test_rpc_is_a_clear_error():
    assert "runs over RPC" in support.python(RPC)


UNSUPPORTED = """
import tvm
tvm.__version__ = "0.28.0"
import counterpoint.tvm as cp, models
mod, entry, arrays = models.MODELS["mlp"]()
vm = models.machine(mod)
vm[entry](*models.tensors(arrays))
try:
    cp.profile(vm).__enter__()
except cp.UnsupportedError as error:
    print(error)
"""


def test_an_unsupported_tvm_is_named():
    assert support.python(UNSUPPORTED) == (
        "apache-tvm 0.28.0 is not supported: 0.25.*, 0.26.*, 0.27.* are\n"
    )


WITHOUT = """
import counterpoint.tvm as cp, models
mod, entry, arrays = models.MODELS["mlp"]()
vm = models.machine(mod)
vm[entry](*models.tensors(arrays))
try:
    cp.profile(vm).__enter__()
except cp.NotInstalledError as error:
    print(error)
"""


def test_without_the_library_the_error_says_how_to_get_it():
    said = support.python(WITHOUT, COUNTERPOINT_DIST="/nowhere")
    assert "/nowhere/lib/libcounterpoint.so" in said and "pip install ./bindings/python" in said


JOINED = """
import sys, warnings
import counterpoint.tvm as cp, models, support
mod, entry, arrays = models.MODELS["mlp"]()
args = models.tensors(arrays)
vm = models.machine(mod)
vm[entry](*args)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    for _ in range(2):
        with cp.profile(vm, counters=["page-faults", "task-clock"]) as prof:
            vm[entry](*args)
assert len(told) == 1, told
assert "task-clock" in str(told[0].message) and "page-faults" not in str(told[0].message)
here = sys._getframe().f_code
assert told[0].filename == here.co_filename and told[0].lineno == 11, told[0]
report = prof.report(all=True)
support.assert_sums_to_the_wall_time(report)
assert all("page-faults" in row for row in support.ops(report) if not row["Name"].string.startswith("vm.builtin."))
print(prof.path, len(support.ops(report)))
"""


def test_a_profile_inside_of_a_run_is_part_of_it(tmp_path):
    profile = str(tmp_path / "run.cpt")
    words = [support.PROGRAM, "run", "-e", "page-faults", "-o", profile, "--", sys.executable, "-c", JOINED]
    path = os.pathsep.join([str(places.DIST / "lib/python"), str(support.HERE), str(places.HERE)])
    where, ops = support.run(words, PYTHONPATH=path).split()
    assert where == profile
    document = json.loads(support.run([support.PROGRAM, "ops", profile, "--format", "json", "--all"]))
    # The model ran three times: once before the two profiles, and once in each of them.
    assert len(document["runs"]) == 3 and len(document["ops"]) == 3 * int(ops)
    # The losses do not include programs that Counterpoint's Python package starts.
    assert document["losses"] == []


CHILDREN = """
import multiprocessing, sys, os
import models, support

def work(name):
    mod, entry, arrays = models.MODELS[name]()
    vm = models.machine(mod)
    vm[entry](*models.tensors(arrays))

if __name__ == "__main__":
    work("mlp")
    child = multiprocessing.get_context(sys.argv[1]).Process(target=work, args=("cnn",))
    child.start()
    child.join()
    sys.exit(child.exitcode)
"""


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_processes_of_a_run(tmp_path, how):
    program = tmp_path / "program.py"
    program.write_text(CHILDREN)
    profile = str(tmp_path / "run.cpt")
    path = os.pathsep.join([str(support.HERE), str(places.HERE)])
    words = [support.PROGRAM, "run", "-e", "none", "-o", profile, "--", sys.executable, program, how]
    support.run(words, PYTHONPATH=path)
    document = json.loads(support.run([support.PROGRAM, "ops", profile, "--format", "json", "--all"]))
    names = {}
    for op in document["ops"]:
        names.setdefault(op["process"], set()).add(op["name"])
    parent, child = sorted(names.values(), key=lambda ops: "conv2d" in ops)
    assert "matmul2" in parent and "conv2d2" in child and "conv2d" not in parent


@pytest.fixture(scope="module")
def cnn():
    mod, entry, arrays = models.MODELS["cnn"]()
    return models.machine(mod), entry, models.tensors(arrays)


def test_a_report_has_the_calls_of_its_own_machines_whatever_they_are_called_later(mlp, cnn):
    (vm, entry, args), (other, other_entry, other_args) = mlp, cnn
    expected, _ = support.independent(vm, entry, args)
    with cp.profile({"first": vm}, counters=[], output=None) as prof:
        vm[entry](*args)
    with cp.profile({"second": vm}, counters=[]) as later:
        vm[entry](*args)
    assert support.counted(prof.report(all=True)) == expected
    assert support.counted(later.report(all=True)) == expected
    theirs, _ = support.independent(other, other_entry, other_args)
    with cp.profile({"model": vm}, counters=[]) as outer:
        with cp.profile({"model": other}, counters=[]) as inner:
            vm[entry](*args)
            other[other_entry](*other_args)
        with cp.profile(other, counters=[]) as nameless:
            other[other_entry](*other_args)
            vm[entry](*args)
    assert support.counted(outer.report(all=True)) == {key: 2 * n for key, n in expected.items()}
    assert support.counted(inner.report(all=True)) == theirs
    assert support.counted(nameless.report(all=True)) == theirs
    assert not any("nothing ran" in note for prof in (outer, inner, nameless) for note in prof.report().notes)
    # The profile's file has different names for the two machines.
    document = json.loads(support.run([support.PROGRAM, "ops", outer.path, "--format", "json", "--all"]))
    assert [vm["name"] for vm in document["vms"]] == ["model", "model (2)"]


def test_a_name_is_free_again_when_its_machine_is_gone():
    mod, entry, arrays = models.MODELS["mlp"]()
    args = models.tensors(arrays)
    for _ in range(2):
        vm = models.machine(mod)
        with cp.profile({"passing": vm}, counters=[]) as prof:
            vm[entry](*args)
        document = json.loads(support.run([support.PROGRAM, "ops", prof.path, "--format", "json", "--all"]))
        assert [vm["name"] for vm in document["vms"]] == ["passing"]
        del vm, prof
        gc.collect()
