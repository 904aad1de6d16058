"""Tests the events of plugins inside PyTorch's own results, in unchanged scripts."""

import collections
import json
import signal
import subprocess

import places
import pytest
from conftest import PLUGINS, compile_plugin


def traced(path):
    return json.loads(path.read_text())["traceEvents"]


def test_an_unchanged_script_has_the_plugins_events_in_torchs_results(any_torch, plugins, tmp_path):
    folder, kernel = plugins
    done = any_torch.run("profiled.py", tmp_path / "out.json", KINETO_PLUGIN_LIB_DIR_PATH=folder)
    found = done.found
    assert all(line.startswith("compiling the bridge") for line in done.lines), done.errors
    ops = {e["id"]: e for e in found["native"] if e["name"].startswith("aten::")}
    names = {e["name"] for e in ops.values()}
    assert {"aten::matmul", "aten::mm", "aten::relu", "aten::sum"} <= names

    # Before any export, kineto_results.events() returns one kernel and one launch for each op.
    kernels = [e for e in found["native"] if e["name"] == kernel]
    launches = [e for e in found["native"] if e["name"] == "launch"]
    assert sorted(e["linked"] for e in kernels) == sorted(ops)
    assert sorted(e["linked"] for e in launches) == sorted(ops)
    for e in kernels:
        assert (e["device"], e["resource"]) == (60 + e["linked"] % 2, 7)
        assert e["duration_ns"] == 4100
        # Torch converts its own clock with an error, so the times of the op and of the kernel may
        # differ by 1 ms.
        op = ops[e["linked"]]
        assert op["start_ns"] - 1e6 < e["start_ns"] < op["start_ns"] + op["duration_ns"] + 1e6
    assert all(e["resource"] == ops[e["linked"]]["resource"] for e in launches)

    # FunctionEvent.kernels contains a kernel only for the op that launched it.
    assert kernel in found["averages"]
    assert found["averages"][kernel] == len(ops)
    for e in found["events"]:
        if e["name"].startswith("aten::"):
            assert [k[0] for k in e["kernels"]] == [kernel], e
            assert e["kernels"][0][2] == pytest.approx(4.1)

    # The exported trace contains the same events.
    events = traced(tmp_path / "out.json")
    by_kind = collections.defaultdict(list)
    for e in events:
        by_kind[e.get("cat") if e["ph"] == "X" else e["ph"]].append(e)
    slices = {e["args"]["External id"]: e for e in by_kind["cpu_op"]}
    assert len(by_kind["kernel"]) == len(by_kind["privateuse1_runtime"]) == len(slices) == len(ops)
    for e in by_kind["kernel"]:
        args = e["args"]
        assert args["External id"] == args["correlation"]
        assert args["External id"] in slices
        assert (args["device"], args["stream"], args["grid"]) == (e["pid"], e["tid"], [1, 2, 3])
    for e in by_kind["privateuse1_runtime"]:
        op = slices[e["args"]["External id"]]
        assert (e["pid"], e["tid"]) == (op["pid"], op["tid"])
    starts = {e["id"]: e for e in by_kind["s"] if e["name"] == "ac2g"}
    ends = {e["id"]: e for e in by_kind["f"] if e["name"] == "ac2g"}
    assert starts.keys() == ends.keys()
    assert len(starts) == len(ops)
    launched = {(e["pid"], e["tid"], e["ts"]): e["args"]["correlation"] for e in by_kind["privateuse1_runtime"]}
    arrived = {(e["pid"], e["tid"], e["ts"]): e["args"]["correlation"] for e in by_kind["kernel"]}
    for flow, start in starts.items():
        end = ends[flow]
        assert (
            launched[start["pid"], start["tid"], start["ts"]] == arrived[end["pid"], end["tid"], end["ts"]]
        )
    rows = {(e["name"], e["pid"], e["tid"]): e["args"] for e in by_kind["M"]}
    for device in (60, 61):
        assert rows["process_name", device, 0] == {"name": f"accelerator {device}"}
        assert rows["process_labels", device, 0] == {"labels": "rev B"}
        assert rows["thread_name", device, 7] == {"name": f"queue of {device}"}
        assert rows["thread_sort_index", device, 7] == {"sort_index": 2}
    counters = {e["pid"]: e for e in by_kind["C"]}
    assert {pid: (e["name"], e["args"]) for pid, e in counters.items()} == {
        60: ("bandwidth", {"read GB/s": 10.5, "write GB/s": 1.25}),
        61: ("bandwidth", {"read GB/s": 12.25, "write GB/s": 1.25}),
    }


def test_every_plugin_of_the_folder_has_its_events(torch, plugins, tmp_path):
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "first.so").symlink_to(plugins[0] / "launches.so")
    names = [plugins[1], compile_plugin(folder / "second.so")]
    found = torch.run("profiled.py", tmp_path / "out.json", KINETO_PLUGIN_LIB_DIR_PATH=folder).found
    ops = sorted(e["id"] for e in found["native"] if e["name"].startswith("aten::"))
    assert ops
    for name in names:
        assert sorted(e["linked"] for e in found["native"] if e["name"] == name) == ops
        assert found["averages"][name] == len(ops)
    for event in found["events"]:
        if event["name"].startswith("aten::"):
            assert sorted(kernel[0] for kernel in event["kernels"]) == sorted(names)
    assert {e["name"] for e in traced(tmp_path / "out.json") if e.get("cat") == "kernel"} == set(names)


def test_odd_texts_do_not_break_the_trace(any_torch, plugins, tmp_path):
    done = any_torch.run(
        "profiled.py", tmp_path / "out.json", KINETO_PLUGIN_LIB_DIR_PATH=plugins[0], LAUNCHES_TEXTS="1"
    )
    assert done.code == 0, done.errors
    events = traced(tmp_path / "out.json")
    name = "odd 'quoted' back/slash caf<U+00E9> <FF> "
    (odd,) = [e for e in events if e.get("name") == name]
    assert odd["cat"] == "gpu_memcpy"
    args = odd["args"]
    assert args["quoted 'key'"] == "a 'b' c/d "
    assert args["bytes"] == 18446744073709551615
    assert args["correlation"] == 0x123456789ABCDEF
    assert args["accents"] == "café é"
    assert args["broken"] == "{'a':"
    assert args["nested"] == {"list": [1, 2.5, None, True, "x"]}
    rows = {(e["name"], e["pid"], e["tid"]): e["args"] for e in events if e["ph"] == "M"}
    assert rows["process_name", 70, 0] == {"name": "odd 'device' /"}
    assert rows["process_labels", 70, 0] == {"labels": "'label'"}
    assert rows["thread_name", 70, 8] == {"name": "odd 'stream'"}
    (counter,) = [e for e in events if e["ph"] == "C" and e["pid"] == 70]
    assert counter["name"] == "odd 'track'"
    assert counter["args"] == {"odd 'series' <U+00B0>C": 0.1, "second <U+00B0>C": 1e300}
    (native,) = [e for e in done.found["native"] if e["name"] == name]
    assert 0 < native["id"] < 2**31
    assert len([line for line in done.lines if "broken = {\"a\":" in line]) == 1


def log(path):
    """Returns the calls in a plugin's log as [(process, call, detail)], without the calls that mark ranges."""
    lines = [line.split(" ", 2) for line in path.read_text().splitlines()]
    return [(int(p), call, *rest) for p, call, *rest in lines if not call.endswith("_user")]


SCHEDULE = """
import json, torch
from torch.profiler import ProfilerActivity, profile, schedule
kernels = []
def ready(prof):
    events = prof.profiler.kineto_results.events()
    kernels.append([[e.linked_correlation_id() for e in events if e.name().startswith("kernel_")],
                    [e.correlation_id() for e in events if e.name().startswith("aten::")]])
with profile(activities=[ProfilerActivity.CPU], on_trace_ready=ready,
             schedule=schedule(wait=1, warmup=1, active=2, repeat=2)) as prof:
    for _ in range(10):
        torch.ones(4) + 1
        prof.step()
print(json.dumps(kernels))
"""


def test_each_cycle_of_a_schedule_is_a_recording(any_torch, plugins, tmp_path):
    calls = tmp_path / "calls"
    done = any_torch.run(SCHEDULE, KINETO_PLUGIN_LIB_DIR_PATH=plugins[0], LAUNCHES_LOG=calls)
    first, second = done.found
    for kernels, ops in (first, second):
        assert len(ops) >= 4
        assert sorted(kernels) == sorted(ops)
    assert [call for _, call, *_ in log(calls)] == [
        "register",
        *["create", "configure", "start", "stop", "process", "destroy"] * 2,
    ]


THREADS = """
import json, threading, torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.autograd.profiler import KinetoStepTracker
x = torch.ones(64, 64, requires_grad=True)
def work():
    for _ in range(50):
        with record_function("range"):
            (x @ x).relu().sum().backward()
# Callbacks of torch.profiler are for the thread that profiles, so that threads of Python are not
# recorded; backward passes run on threads of autograd, which are.
with profile(activities=[ProfilerActivity.CPU]) as prof:
    others = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in others]
    work()
    [t.join() for t in others]
events = prof.profiler.kineto_results.events()
print(json.dumps({
    "kernels": [[e.linked_correlation_id(), e.device_resource_id()] for e in events if e.name() == "launch"],
    "ops": [[e.correlation_id(), e.device_resource_id()] for e in events
            if e.correlation_id() and e.name() != "launch" and not e.name().startswith("kernel_")],
    "user": [e.correlation_id() for e in events if e.name() == "range"]}))
"""


def test_ids_are_pushed_from_any_thread(any_torch, plugins):
    found = any_torch.run(THREADS, KINETO_PLUGIN_LIB_DIR_PATH=plugins[0]).found
    ops = dict(found["ops"])
    ranges = set(found["user"])
    launches = dict(found["kernels"])
    assert launches.keys() == ops.keys() - ranges
    assert len(launches) > 500
    assert all(ops[at] == thread for at, thread in launches.items())


FAILING = """
import json, os, sys, torch
from torch.profiler import ProfilerActivity, profile, record_function
def once(call):
    os.environ["LAUNCHES_FAIL"] = call
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        with record_function("range"):
            torch.ones(4) + 1
    names = [e.name() for e in prof.profiler.kineto_results.events()]
    prof.export_chrome_trace(sys.argv[1])
    with open(sys.argv[1]) as file:
        json.load(file)
    return [sorted({n for n in names if n[:4] in ("aten", "rang")}), sum(n[:7] == "kernel_" for n in names)]
print(json.dumps([once(call) for call in sys.argv[2:]]))
"""


def test_a_plugin_that_fails_in_each_call_changes_nothing_else(torch, plugins, tmp_path):
    own = ["aten::add", "aten::empty", "aten::fill_", "aten::ones", "range"]
    variables = {"KINETO_PLUGIN_LIB_DIR_PATH": plugins[0]}
    names = {"push": "profilerPushCorrelationId", "pop": "profilerPopCorrelationId"}
    names |= {"push_user": "profilerPushUserCorrelationId", "pop_user": "profilerPopUserCorrelationId"}
    names |= {"process": "profilerProcessEvents", "configure": "configure"}
    names |= {call: f"profiler{call.title()}" for call in ("create", "start", "stop", "destroy")}
    done = torch.run(FAILING, tmp_path / "out.json", *names, "none", **variables)
    for call, (found, kernels) in zip([*names, "none"], done.found):
        assert set(own) <= set(found), call
        # If a call after `create` fails, the events that the plugin hands over are kept.
        assert (kernels > 0) == (call != "create"), call
    for function in names.values():
        assert len([line for line in done.lines if f"launches.so: {function} returned 7" in line]) == 1, function


def test_a_plugin_that_fails_at_its_start_is_left_out(torch, plugins, tmp_path):
    functions = {"register": "KinetoPlugin_register", "query": "profilerQuery"}
    for call, function in functions.items():
        out = tmp_path / f"{call}.json"
        done = torch.run("profiled.py", out, KINETO_PLUGIN_LIB_DIR_PATH=plugins[0], LAUNCHES_FAIL=call)
        assert "aten::mm" in done.found["averages"]
        assert plugins[1] not in done.found["averages"]
        traced(out)
        assert len([line for line in done.lines if f"launches.so: {function} returned 7" in line]) == 1


@pytest.fixture(params=["REGISTER_HANGS", "REGISTER_LINGERS"])
def never_loaded(request, plugins, tmp_path):
    """Returns a folder with two plugins. The thread that loads the second plugin never ends."""
    return with_mistake(request.param, plugins, tmp_path)


@pytest.fixture
def hanging(plugins, tmp_path):
    """Returns a folder with two plugins. The second plugin hangs while it is loaded."""
    return with_mistake("REGISTER_HANGS", plugins, tmp_path)


def with_mistake(mistake, plugins, tmp_path):
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "launches.so").symlink_to(plugins[0] / "launches.so")
    include, hangs = places.ROOT / "include", folder / "hangs.so"
    flags = ["-std=gnu11", "-shared", "-fPIC", f"-DMISTAKE={mistake}", "-I", include]
    subprocess.run(["cc", *flags, PLUGINS / "plugin.c", "-o", hangs], check=True)
    return folder


def test_a_plugin_that_hangs_while_it_is_loaded_is_left_out(torch, plugins, never_loaded, tmp_path):
    variables = {"KINETO_PLUGIN_LIB_DIR_PATH": never_loaded, "COUNTERPOINT_PLUGIN_TIMEOUT": "1"}
    done = torch.run("profiled.py", tmp_path / "out.json", **variables)
    assert plugins[1] in done.found["averages"]
    assert len([line for line in done.lines if "hangs.so: loading it took longer than 1 s" in line]) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_program_whose_plugin_hangs_while_it_is_loaded(torch, hanging, number):
    # This run puts the compiled bridge between Counterpoint and PyTorch into the cache, so that the
    # program below waits only for the plugin.
    torch.run("\nimport torch\n", KINETO_PLUGIN_LIB_DIR_PATH=hanging, COUNTERPOINT_PLUGIN_TIMEOUT="1")
    variables = torch.environment(KINETO_PLUGIN_LIB_DIR_PATH=hanging, COUNTERPOINT_PLUGIN_TIMEOUT="3600")
    command = [torch.python, "-c", "import torch; print('imported')"]
    pipe = subprocess.PIPE
    # If a shell started these tests in the background, the program would otherwise ignore SIGINT.
    heeds = lambda: signal.signal(number, signal.SIG_DFL)
    with subprocess.Popen(command, env=variables, stdout=pipe, stderr=pipe, preexec_fn=heeds) as process:
        try:
            assert any(line == b"hangs\n" for line in process.stderr)
            process.send_signal(number)
            output, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == -number, errors
    assert output == b""


def test_files_that_are_not_plugins_are_said_and_left_out(torch, plugins, tmp_path):
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "broken.so").write_text("not a library")
    (folder / "launches.so").symlink_to(plugins[0] / "launches.so")
    done = torch.run("profiled.py", tmp_path / "out.json", KINETO_PLUGIN_LIB_DIR_PATH=folder)
    assert plugins[1] in done.found["averages"]
    assert len([line for line in done.lines if "broken.so: cannot be loaded" in line]) == 1
    missing = torch.run("profiled.py", tmp_path / "out.json", KINETO_PLUGIN_LIB_DIR_PATH=tmp_path / "none")
    assert missing.code == 0
    assert len([line for line in missing.lines if "read plugins from" in line]) == 1


NARROW = """
import json, torch
from torch.profiler import ProfilerActivity, profile, _ExperimentalConfig
config = _ExperimentalConfig(custom_profiler_config='{"depth": 3}')
with profile(activities=[ProfilerActivity.CPU], experimental_config=config) as prof:
    torch.ones(4) + 1
print(json.dumps(sorted({e.name() for e in prof.profiler.kineto_results.events()})))
"""


def test_the_user_narrows_the_kinds_and_configures_the_plugin(torch, plugins, tmp_path):
    calls = tmp_path / "calls"
    variables = {"KINETO_PLUGIN_LIB_DIR_PATH": plugins[0], "LAUNCHES_LOG": calls}
    everything = torch.run(NARROW, **variables).found
    assert {"bandwidth", "launch", plugins[1]} <= set(everything)
    narrowed = torch.run(NARROW, COUNTERPOINT_TORCH_KINDS="counter", **variables).found
    assert "bandwidth" in narrowed
    assert not {"launch", plugins[1]} & set(narrowed)
    wrong = torch.run(NARROW, COUNTERPOINT_TORCH_KINDS="kernels", **variables)
    assert wrong.found == everything
    assert len([line for line in wrong.lines if "kernels" in line]) == 1
    created = [rest for _, call, *rest in log(calls) if call in ("create", "configure")]
    # The numbers of the kinds, in the plugin's order: 6 is kernel, 23 privateuse1_runtime, 22
    # gpu_pm_counter, and 4 gpu_memcpy.
    all_kinds, text = ["6,23,22,4"], ['{"depth": 3}']
    assert created == [all_kinds, text, ["22"], text, all_kinds, text]


def test_the_environment_configures_plugins(torch, plugins, tmp_path):
    calls = tmp_path / "calls"
    torch.run(
        "profiled.py",
        tmp_path / "out.json",
        KINETO_PLUGIN_LIB_DIR_PATH=plugins[0],
        LAUNCHES_LOG=calls,
        COUNTERPOINT_PLUGIN_CONFIG="depth=4",
    )
    assert [rest for _, call, *rest in log(calls) if call == "configure"] == [["depth=4"]]


EXTENSION = """
import json, torch
from torch.profiler import ProfilerActivity, profile
from torch.profiler.profiler import ProfilerActivityConfig, _ProfilerExtensionConfig
class Plugins(_ProfilerExtensionConfig):
    def _to_config_entries(self):
        return {"COUNTERPOINT_KINDS": "counter", "COUNTERPOINT_PLUGIN_CONFIG": "depth 5"}
activities = [{ProfilerActivity.CPU: ProfilerActivityConfig(profiler_configs=[Plugins()])}]
with profile(activities=activities) as prof:
    torch.ones(4) + 1
print(json.dumps(sorted({e.name() for e in prof.profiler.kineto_results.events()})))
"""


def test_torchs_extension_configuration_reaches_plugins(torch, plugins, tmp_path):
    calls = tmp_path / "calls"
    found = torch.run(EXTENSION, KINETO_PLUGIN_LIB_DIR_PATH=plugins[0], LAUNCHES_LOG=calls).found
    assert "bandwidth" in found
    assert not {"launch", plugins[1]} & set(found)
    assert [rest for _, call, *rest in log(calls) if call in ("create", "configure")] == [["22"], ["depth 5"]]


FORKED = """
import json, os, sys, torch
from torch.profiler import ProfilerActivity, profile
def once():
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        torch.ones(4) + 1
    return [e.name()[:7] for e in prof.profiler.kineto_results.events()]
if not os.fork():
    names = once()
    os._exit(0 if "aten::a" in names and "kernel_" not in names else 9)
status = os.wait()[1]
print(json.dumps([status, "kernel_" in once()]))
"""


def test_a_forked_child_says_that_it_has_no_plugins(torch, plugins):
    done = torch.run(FORKED, KINETO_PLUGIN_LIB_DIR_PATH=plugins[0])
    assert done.found == [0, True]
    assert len([line for line in done.lines if "forked" in line]) == 1


RAISING = """
import json, torch
from torch.profiler import ProfilerActivity, profile
def once(fail):
    try:
        with profile(activities=[ProfilerActivity.CPU]) as prof:
            torch.ones(4) + 1
            if fail:
                raise ValueError("the program's own")
    except ValueError as error:
        assert str(error) == "the program's own"
    return sum(e.name().startswith("kernel_") for e in prof.profiler.kineto_results.events())
print(json.dumps([once(True), once(False), once(True)]))
"""


def test_an_exception_inside_of_the_profiled_block(torch, plugins, tmp_path):
    calls = tmp_path / "calls"
    done = torch.run(RAISING, KINETO_PLUGIN_LIB_DIR_PATH=plugins[0], LAUNCHES_LOG=calls)
    assert len(set(done.found)) == 1
    assert done.found[0] > 0
    assert [call for _, call, *_ in log(calls)] == [
        "register",
        *["create", "configure", "start", "stop", "process", "destroy"] * 3,
    ]
