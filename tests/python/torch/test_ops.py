"""Tests the counts of counters (mostly page faults) for each op of PyTorch. The expected values are those of PyTorch's
own profiler, or the number of fresh pages that an op writes to."""

import csv
import io
import json
import shutil
import subprocess

import places
import pytest
from conftest import QUICK

MODELS = ["mlp", "conv", "transformer"]
FAULTS = "page-faults:u"


@pytest.fixture(scope="session")
def counted():
    """Several tests use the output of the same process."""
    outcomes = {}

    def of(torch, threads):
        key = torch.python, threads
        if key not in outcomes:
            outcomes[key] = torch.run("counted.py", threads, *MODELS)
        return outcomes[key].found

    return of


@pytest.mark.parametrize("threads", [1, 2])
def test_ops_counts_and_nesting_are_torchs_own(any_torch, counted, threads):
    found = counted(any_torch, threads)
    for model in MODELS:
        of = found[model]
        theirs, ours = of["paths"]
        assert len(theirs) > 100, model
        assert ours == theirs, model
        averages, counts = of["counts"]
        assert counts == averages, model
        assert of["wrong_sums"] == [], model
        assert of["losses"] == [], model
        assert of["rows"][0] == of["rows"][1] >= len(ours)
        assert of["total"] == of["outer"] + of["workers"]


def test_counts_are_arguments_of_torchs_own_events(torch, counted):
    found = counted(torch, 2)
    for model in MODELS:
        theirs, ours = found[model]["slices"]
        assert found[model]["without"] == [], model
        assert theirs == ours, model


def test_calls_of_the_backward_pass_know_their_forward_op(torch, counted):
    found = counted(torch, 1)["mlp"]
    # The forward ops are those of derivatives.yaml of PyTorch.
    forward = dict(map(tuple, found["forward"]))
    assert forward["AddmmBackward0"] == "aten::addmm"
    assert forward["ReluBackward0"] == "aten::relu"
    assert forward["MeanBackward0"] == "aten::mean"
    assert forward["PowBackward0"] == "aten::pow"
    assert found["columns"] == sorted(
        ["Name", "Duration (us)", "Percent", "Device", "Count", "Argument Shapes", "Total Duration (us)"]
        + [FAULTS, f"Total {FAULTS}", "Kind", "Forward Op"]
    )


REMOVED = """
import json
import torch
import counterpoint.torch as cp
x = torch.ones(4)
def call(name):
    library = torch.library.Library("counterpoint_test", "FRAGMENT")
    library.define(name + "(Tensor x) -> Tensor")
    library.impl(name, lambda x: x.neg(), "CPU")
    for _ in range(4):
        getattr(torch.ops.counterpoint_test, name)(x)
    library._destroy()
with cp.profile([]) as prof:
    for i in range(20):
        call("op" + str(i))
counts = {}
for row in prof.report().calls:
    counts[row["Name"].string] = counts.get(row["Name"].string, 0) + row["Count"].value
print(json.dumps(counts))
"""


def test_ops_that_are_removed_do_not_give_their_names_to_others(any_torch):
    # The schema of a new op often gets the address of a removed op's schema.
    counts = any_torch.run(REMOVED).found
    for i in range(20):
        assert counts[f"counterpoint_test::op{i}"] == 4, counts
    assert counts["aten::neg"] == 80


EXACT = """
import json, mmap
import torch
import counterpoint.torch as cp
PAGES = 1024
def fresh():
    memory = mmap.mmap(-1, PAGES * 4096)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)
def row(threads):
    torch.set_num_threads(threads)
    fresh().fill_(1)
    x = fresh()
    with cp.profile(["page-faults:u", "task-clock:u"]) as prof:
        x.fill_(1)
    (row,) = prof.report().calls
    assert not prof.report().losses, prof.report().losses
    names = ("page-faults:u", "page-faults:u (workers)", "Total page-faults:u", "Tasks")
    clock = row["task-clock:u"].microseconds
    return [row["Name"].string] + [row[n].value if n in row else None for n in names] + [clock > 0]
print(json.dumps([row(1), row(2)]))
"""


def test_counts_are_exact_on_the_caller_and_on_a_worker(torch):
    alone, shared = torch.run(EXACT).found
    # PyTorch (at::parallel_for) splits the 1,024 pages into halves exactly at a page boundary.
    assert alone == ["aten::fill_", 1024, None, 1024, None, True]
    assert shared == ["aten::fill_", 1024, 512, 1024, 2, True]


FORMATS = """
import json
import torch
import counterpoint.torch as cp
torch.set_num_threads(1)
x = torch.ones(64, 64, requires_grad=True)
(x @ x).relu().sum().backward()
with cp.profile(["page-faults:u"]) as prof:
    with torch.profiler.record_function("mine"):
        (x @ x).relu().sum().backward()
report = prof.report()
print(json.dumps([report.json(), report.csv(), report.table()]))
"""


def test_the_formats_of_a_report_agree(torch):
    from counterpoint.report import Report

    document, text, table = torch.run(FORMATS).found
    report = Report.from_json(document)
    names = [row["Name"].string for row in report.calls]
    assert names[0] == "mine" and {"aten::mm", "aten::relu", "MmBackward0"} <= set(names)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["Name"] for row in rows] == names
    for column in ("page-faults:u", "Total page-faults:u"):
        values = [row[column].value for row in report.calls]
        # The first column leaves out what was counted in the ops inside of a range; `Total`
        # includes it.
        assert [row[column] for row in rows] == ["" if value is None else str(value) for value in values]
    assert all(name in table for name in names)
    pytest.importorskip("pyarrow")
    arrow = report.to_arrow()
    assert arrow["Name"].to_pylist() == names
    assert arrow["Total page-faults:u"].to_pylist() == [
        row["Total page-faults:u"].value for row in report.calls
    ]


HARDWARE = """
import json
import torch
import counterpoint.torch as cp
from counterpoint.errors import CounterpointError
names = ["cycles", "instructions", "page-faults"]
x = torch.ones(8, 8)
x.sin()
try:
    with cp.profile(counters=names) as prof:
        x.sin()
    (row,) = prof.report().calls
    print(json.dumps({"counted": [row[name].value for name in names]}))
except CounterpointError as error:
    with cp.profile(counters=names[2:]) as prof:
        x.sin()
    print(json.dumps({"refused": str(error), "calls": len(prof.report().calls)}))
"""


def test_hardware_counters_are_counted_or_the_error_names_them(torch):
    found = torch.run(HARDWARE).found
    if "refused" in found:
        # The program can use other counters after some were refused.
        assert "cycles" in found["refused"] and found["calls"] == 1
    else:
        cycles, instructions, _ = found["counted"]
        assert cycles > 0 and instructions > 0


UNSEEN = """
import json
import torch
import counterpoint.torch as cp
from counterpoint.torch import _ops
x = torch.ones(8, 8)
_ops.Ops.watch_parallel = lambda self: _ops._WHY_NOT_PARALLEL[1]
with cp.profile([]) as prof:
    x.sin()
report = prof.report()
print(json.dumps([{loss.name: loss.count for loss in report.losses}, report.notes]))
"""


def test_parallel_regions_that_cannot_be_watched_are_a_loss(torch):
    # The script replaces `watch_parallel`, so that it reports a PyTorch that does not use
    # GOMP_parallel (of OpenMP).
    losses, notes = torch.run(UNSEEN).found
    assert losses == {"parallel_unseen": 1}
    assert len([note for note in notes if "GOMP_parallel" in note]) == 1


LOOPS = """
import ctypes, json, sys
import torch
import counterpoint.torch as cp
x = torch.ones(8, 8)
with cp.profile(["page-faults:u"], loops=True) as prof:
    library = ctypes.CDLL(sys.argv[1])
    for _ in range(5):
        library.run()
        x.sin()
print(json.dumps([sorted(row.hits for row in prof.loops() if row.hits),
                  [row["Name"].string for row in prof.report().calls], prof.path != ""]))
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_instrumented_loops_are_in_the_same_profile(torch, tmp_path):
    library = tmp_path / "library.so"
    source = places.ROOT / "tests/programs/loops_library.c"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    # `run` is a function with two nested loops. Each call enters the inner loop three times.
    assert torch.run(LOOPS, library).found == [[5, 5, 15], ["aten::sin"] * 5, True]


SHAPES = """
import json
import torch
import counterpoint.torch as cp
def shapes(wanted):
    x, y, z = torch.ones(2, 3), torch.ones(3, 5, dtype=torch.float64), torch.ones(0, dtype=torch.bool)
    with cp.profile([], shapes=wanted) as prof:
        x.double() @ y
        torch.cat([x, x])
        z.any()
    rows = prof.report().calls
    return {r["Name"].string: r["Argument Shapes"].string for r in rows if "Total Duration (us)" in r}
print(json.dumps([shapes(False), shapes(True)]))
"""


def test_shapes_on_request(torch):
    without, shapes = torch.run(SHAPES).found
    assert set(without.values()) == {""}
    assert shapes["aten::mm"] == "float64[2, 3], float64[3, 5]"
    assert shapes["aten::cat"] == "float32[2, 3], float32[2, 3]"
    assert shapes["aten::any"] == "bool[0]"


INSIDE = """
import json
import torch
from torch.profiler import ProfilerActivity, profile, record_function
import counterpoint.torch as cp
torch.set_num_threads(1)
x = torch.ones(8, 8)
with cp.profile(["task-clock:u"]):
    x.exp()
with profile(activities=[ProfilerActivity.CPU]) as prof:
    x.sin()
    with record_function("outside"):
        with cp.profile(["page-faults:u"]):
            with record_function("inside"):
                x.tan()
            x.tanh()
    x.cos()
prof.export_chrome_trace("inside.json")
events = json.load(open("inside.json"))["traceEvents"]
print(json.dumps({e["name"]: sorted(k for k in e["args"] if k.endswith(":u")) for e in events
                  if e.get("cat") in ("cpu_op", "user_annotation")}))
"""


def test_a_profile_inside_a_recording_of_torch(torch, tmp_path):
    found = torch.run(f"import os; os.chdir({str(tmp_path)!r})\n" + INSIDE).found
    counted = ["page-faults:u", "self page-faults:u"]
    assert found == {
        "aten::sin": [],
        "outside": [],
        "inside": counted[:1],
        "aten::tan": counted,
        "aten::tanh": counted,
        "aten::cos": [],
    }


SCHEDULE = """
import json
import torch
from torch.profiler import ProfilerActivity, profile, schedule
import counterpoint.torch as cp
x = torch.ones(64, 64)
cycles = []
def ready(prof):
    prof.export_chrome_trace("cycle.json")
    events = json.load(open("cycle.json"))["traceEvents"]
    args = [e["args"] for e in events if e.get("cat") == "cpu_op" and e["name"] == "aten::mm"]
    cycles.append([len(args), all("page-faults:u" in a and "self page-faults:u" in a for a in args)])
with cp.profile(["page-faults:u"]) as mine:
    with profile(activities=[ProfilerActivity.CPU], on_trace_ready=ready,
                 schedule=schedule(wait=1, warmup=1, active=2, repeat=2)) as prof:
        for _ in range(9):
            x @ x
            prof.step()
names = [row["Name"].string for row in mine.report().calls]
print(json.dumps([cycles, names.count("aten::mm")]))
"""


def test_a_schedule_with_two_cycles(torch, tmp_path):
    cycles, ours = torch.run(f"import os; os.chdir({str(tmp_path)!r})\n" + SCHEDULE).found
    assert cycles == [[2, True], [2, True]]
    # Our profile does not follow the schedule of torch's profiler.
    assert ours == 9


ODD = """
import json, threading
import torch
from torch.profiler import record_function
import counterpoint.torch as cp
x, bad = torch.ones(8, 8), torch.ones(3, 3)

def names(prof):
    report = prof.report()
    rows = [(r["Name"].string, r["Kind"].string if "Kind" in r else "op") for r in report.calls]
    return rows, {loss.name: loss.count for loss in report.losses}

def an_op_that_throws():
    with cp.profile(["page-faults:u"]) as prof:
        try:
            x @ bad
        except RuntimeError:
            pass
        x.relu()
    from counterpoint import _session
    ops = _session.read(prof._session, prof._since, prof._until)["ops"]
    return [[op["name"], op["depth"]] for op in ops], names(prof)[1]

def a_block_that_throws():
    try:
        with cp.profile(["page-faults:u"]) as prof:
            x.relu()
            raise KeyError("mine")
    except KeyError:
        return names(prof)

def a_generator():
    def values():
        with record_function("generator"):
            yield x.relu()
            yield x.exp()
    with cp.profile(["page-faults:u"]) as prof:
        v = values()
        next(v)
        with record_function("around"):
            next(v)
        v.close()
        x.sin()
    return names(prof)

def a_future():
    with cp.profile(["page-faults:u"]) as prof:
        future = torch.futures.Future()
        with record_function("future") as range:
            x.relu()
            done = range._call_end_callbacks_on_future(future)
        thread = threading.Thread(target=future.set_result, args=(1,))
        thread.start()
        thread.join()
        done.wait()
        x.exp()
    return names(prof)

def a_range_that_stays_open():
    with cp.profile(["page-faults:u"]) as prof:
        range = record_function("open")
        range.__enter__()
        x.relu()
    range.__exit__(None, None, None)
    return names(prof)

def threads():
    with cp.profile(["page-faults:u"]) as prof:
        def work():
            with record_function("thread"):
                x.relu()
        all_ = [threading.Thread(target=work) for _ in range(3)]
        [t.start() for t in all_]
        [t.join() for t in all_]
        x.exp()
    rows = prof.report().calls
    return sorted((r["Name"].string, r["Thread"].string) for r in rows), names(prof)[1]

def twice():
    counts = []
    for _ in range(2):
        with cp.profile(["page-faults:u"]) as outer:
            x.relu()
            with cp.profile(["page-faults:u"], shapes=True) as inner:
                x.exp()
            x.sin()
        counts.append([[r["Name"].string for r in p.report().calls] for p in (outer, inner)])
    x.relu()
    return counts

print(json.dumps({f.__name__: f() for f in (an_op_that_throws, a_block_that_throws, a_generator, a_future,
                                            a_range_that_stays_open, threads, twice)}))
"""


def test_odd_programs(torch):
    found = torch.run(ODD).found
    ops, losses = found["an_op_that_throws"]
    # The op that throws has ended, so the next op is not inside it.
    assert ops[0] == ["aten::matmul", 0]
    assert ["aten::relu", 0] in ops
    assert losses == {}
    rows, losses = found["a_block_that_throws"]
    assert ["aten::relu", "op"] in rows and losses == {}
    rows, losses = found["a_generator"]
    assert sorted(name for name, kind in rows if kind == "range") == ["around", "generator"]
    assert ["aten::sin", "op"] in rows and losses == {}
    rows, losses = found["a_future"]
    assert [name for name, kind in rows if kind == "range"] == []
    assert ["aten::exp", "op"] in rows and losses == {"range_ended_elsewhere": 1}
    rows, losses = found["a_range_that_stays_open"]
    assert ["aten::relu", "op"] in rows and losses == {"call_cut_short": 1}
    rows, losses = found["threads"]
    ranges = [thread for name, thread in rows if name == "thread"]
    assert len(set(ranges)) == 3 and losses == {}
    assert sorted(ranges) == sorted(t for name, t in rows if name == "aten::relu")
    for outer, inner in found["twice"]:
        assert inner == ["aten::exp"]
        assert [name for name in outer if name in ("aten::relu", "aten::exp", "aten::sin")] == [
            "aten::relu",
            "aten::exp",
            "aten::sin",
        ]


def run(torch, tmp_path, script, *options, events=FAULTS, **variables):
    """Runs the script under `counterpoint run`. Returns the ended process, and the document of its ops."""
    path = tmp_path / "script.py"
    path.write_text(QUICK + script)
    program = str(places.DIST / "bin/counterpoint")
    profile = str(tmp_path / "run.cpt")
    # The package is not installed, so `counterpoint run` must add the package's folder to Python's
    # path.
    environment = torch.environment(PYTHONPATH=None, COUNTERPOINT_DIST=places.DIST, **variables)
    done = subprocess.run(
        [program, "run", "-e", events, *options, "-o", profile, "--", torch.python, path],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    shown = subprocess.run([program, "ops", profile, "--format", "json"], capture_output=True, text=True)
    return done, json.loads(shown.stdout) if shown.returncode == 0 else None


PLAIN = """
import torch
x = torch.ones(4, 4, requires_grad=True)
with torch.autograd.profiler.record_function("mine"):
    y = (x @ x).relu()
y.sum().backward()
print(float(y.detach().sum()))
"""


def test_an_unchanged_program_under_run(torch, tmp_path):
    done, document = run(torch, tmp_path, PLAIN, "--shapes")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "64.0\n"
    ops = document["ops"]
    mm = next(op for op in ops if op["name"] == "aten::mm")
    assert mm["arguments"] == "float32[4, 4], float32[4, 4]"
    assert mm["counters"][FAULTS] is not None
    (mine,) = [op for op in ops if op.get("range")]
    assert mine["name"] == "mine"
    assert {"aten::matmul", "aten::relu"} <= {op["name"] for op in ops if op["parent"] == mine["op"]}
    assert any(op.get("forward") == "aten::relu" for op in ops)
    assert [loss for loss in document["losses"] if loss["severity"] != "note"] == []


TRACED = """
import json
import torch
from torch.profiler import ProfilerActivity, profile
x = torch.ones(8, 8)
with profile(activities=[ProfilerActivity.CPU]) as prof:
    x.sin()
prof.export_chrome_trace("traced.json")
(event,) = [e for e in json.load(open("traced.json"))["traceEvents"] if e.get("cat") == "cpu_op"]
print(sorted(k for k in event["args"] if k.endswith(":u")))
"""


def test_a_program_that_uses_torchs_profiler_under_run(torch, tmp_path):
    done, _ = run(torch, tmp_path, f"import os; os.chdir({str(tmp_path)!r})\n" + TRACED)
    assert (done.returncode, done.stdout) == (0, "['page-faults:u', 'self page-faults:u']\n"), done.stderr


def test_run_can_leave_torch_alone(torch, tmp_path):
    for variables in ({"COUNTERPOINT_TORCH": "0"}, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}):
        done, document = run(torch, tmp_path, PLAIN, **variables)
        assert (done.returncode, done.stdout) == (0, "64.0\n"), done.stderr
        assert document["ops"] == []


def test_a_program_runs_where_the_bridge_cannot_be_built(torch, tmp_path):
    done, document = run(torch, tmp_path, PLAIN, CXX="/nonexistent/c++", XDG_CACHE_HOME=tmp_path / "empty")
    assert (done.returncode, done.stdout) == (0, "64.0\n"), done.stderr
    said = [line for line in done.stderr.splitlines() if "PyTorch" in line and "C++" in line]
    assert len(said) == 1, done.stderr
    assert document["ops"] == []


LOADERS = """
import os, sys
import torch
from torch.utils.data import DataLoader, Dataset
class Numbers(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.full((4,), float(i)).sinh()
if __name__ == "__main__":
    for context in ("fork", "spawn"):
        loader = DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context=context)
        print(len([batch.cosh() for batch in loader]), flush=True)
"""


def test_each_data_loader_worker_has_its_own_part(torch, tmp_path):
    done, document = run(torch, tmp_path, LOADERS)
    assert (done.returncode, done.stdout) == (0, "4\n4\n"), done.stderr
    sinh, cosh = ({op["process"] for op in document["ops"] if op["name"] == f"aten::{n}"} for n in ("sinh", "cosh"))
    assert len(cosh) == 1 and len(sinh) == 4 and not cosh & sinh
    assert sum(op["name"] == "aten::sinh" for op in document["ops"]) == 16
    assert all(op["counters"][FAULTS] is not None for op in document["ops"])
    assert "Traceback" not in done.stderr


COMPILED = """
import json
import torch
import counterpoint.torch as cp
torch.set_num_threads(2)
@torch.compile
def f(x):
    return (x.sin() + x.cos()).exp() * 2
x = torch.ones(4_000_000)
f(x)
f(x)
with cp.profile(["task-clock:u"]) as prof:
    f(x)
from counterpoint import _session
ops = _session.read(prof._session, prof._since, prof._until)["ops"]
print(json.dumps([[op["name"], op.get("range", False), len(op["regions"]), op["workers"].get("task-clock:u")]
                  for op in ops]))
"""


def test_a_compiled_model(torch, tmp_path):
    path = tmp_path / "compiled.py"
    path.write_text(COMPILED)
    done = torch.run(str(path), TORCHINDUCTOR_CACHE_DIR=tmp_path / "inductor")
    found = done.found
    # The compute kernel is in a library that torch.compile loaded after PyTorch's own libraries.
    with_regions = [row for row in found if row[2]]
    assert len(with_regions) == 1, found
    assert with_regions[0][3] > 0, found
