"""Tests recordings of torch.profiler in unchanged scripts under `counterpoint run`."""

import collections
import json
import os
import re
import subprocess

import places
import pytest

SCRIPT = places.ROOT / "tests/python/torch/scripts/recorded.py"
PROGRAM = str(places.DIST / "bin/counterpoint")


class Recorded:

    def __init__(self, torch, folder, what, code=0, script=SCRIPT, **variables):
        self.torch, self.profile, self.trace = torch, folder / "run.cpt", folder / "torch.json"
        # The program runs as for a user who copied dist/ and installed nothing.
        self.environment = torch.environment(**{"PYTHONPATH": None, **variables})
        words = [PROGRAM, "run", "-o", self.profile, "--", torch.python, script, what, self.trace, self.profile]
        self.done = subprocess.run(
            [str(word) for word in words],
            capture_output=True,
            timeout=600,
            env=self.environment,
            stdin=subprocess.DEVNULL,
        )
        self.errors = self.done.stderr.decode(errors="replace")
        assert self.done.returncode == code, self.errors
        lines = [line for line in self.errors.splitlines() if line.startswith("counterpoint: ")]
        self.lines = [
            line.removeprefix("counterpoint: ")
            for line in lines
            if "compiling the bridge" not in line and "run.cpt" not in line
        ]

    @property
    def found(self):
        return [json.loads(line) for line in self.done.stdout.decode().splitlines() if line.startswith("{")]

    def program(self, *words):
        done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, env=self.environment)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def report(self, profile=None, *words):
        return json.loads(self.program("report", profile or self.profile, "--format", "json", *words))

    def exported(self):
        """Returns torch.profiler's events from the exported trace. The ops that the recorder itself saw are left out:
        their process numbers are below 7,000,000."""
        path = self.profile.parent / "exported.json"
        self.program("trace", "export", self.profile, "-o", path)
        return [e for e in json.loads(path.read_text())["traceEvents"] if e["pid"] >= 7_000_000]

    def traced(self, suffix=""):
        return json.loads((self.trace.parent / (self.trace.name + suffix)).read_text())["traceEvents"]

    def recordings(self):
        (document,) = self.profile.glob("activities/*/document.json")
        return json.loads(document.read_text())["recordings"]


@pytest.fixture(scope="session")
def everything(tmp_path_factory):
    """Several tests read this recording."""
    kept = {}

    def of(torch):
        if torch.python not in kept:
            kept[torch.python] = Recorded(torch, tmp_path_factory.mktemp("everything"), "everything")
        return kept[torch.python]

    return of


def as_multiset(events):
    """Returns how often each slice and each instant event of a thread occurs. Ignores the process ids, which differ
    between the two traces, and the thread ids that are no numbers or belong to Kineto's `Trace` events."""
    kept = collections.Counter()
    for e in events:
        if e["ph"] == "X" or (e["ph"] == "i" and e["s"] == "t" and e.get("cat")):
            row = e["tid"] if isinstance(e["tid"], int) and e.get("cat") != "Trace" else 0
            args = json.dumps(e.get("args"), sort_keys=True)
            duration = e.get("dur")
            kept[(e["ph"], e.get("cat"), e["name"], row, duration and round(duration * 1000), args)] += 1
    return kept


def relative_times(events):
    """Returns torch's number (`Ev Idx`) of each slice, and its start in ns after the start of the first slice."""
    slices = [e for e in events if e["ph"] == "X" and e.get("cat") != "Trace"]
    first = min(round(e["ts"] * 1000) for e in slices)
    return sorted((e["args"].get("Ev Idx", -1), round(e["ts"] * 1000) - first) for e in slices)


def arrows(events):
    """For each arrow, returns the names of the innermost slices that begin where the arrow starts and ends."""
    at = collections.defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            at[(e["pid"], e["tid"], e["ts"])].append((e["dur"], e["name"]))
    ends = collections.defaultdict(dict)
    for e in events:
        if e["ph"] in "sf":
            ends[e["id"]][e["ph"]] = min(at[(e["pid"], e["tid"], e["ts"])])[1]
    return sorted((end["s"], end["f"]) for end in ends.values())


def compare(recorded):
    ours, theirs = recorded.exported(), recorded.traced()
    assert as_multiset(ours) == as_multiset(theirs)
    for (index, our_ns), (their_index, their_ns) in zip(relative_times(ours), relative_times(theirs)):
        # The profile's clock and UTC may drift apart by at most 500 ppm.
        assert index == their_index and abs(our_ns - their_ns) <= 2 + their_ns // 2000, (index, our_ns, their_ns)
    assert arrows(ours) == arrows(theirs) != []


def test_functions_around_ops_that_were_seen_live(torch, tmp_path):
    """Ops are recorded with counters while the program runs. The Python functions around them are
    only in torch's recording. Both are on the same thread, and a function's own time does not
    contain the time of its ops."""
    recorded = Recorded(torch, tmp_path, "stacks")
    (found,) = recorded.found
    report = recorded.report()
    rows = {row["op"]: row for row in report["rows"]}
    compared, ops_us = collections.Counter(), found["sums"]["aten::mm"][2]
    for name, (calls, _, own_us) in found["sums"].items():
        row = rows.get(name)
        if row is None or calls < 10 or row["calls"] + row.get("inner_calls", 0) != calls:
            continue
        kind = "op" if name.startswith("aten::") else "function"
        compared[kind] += 1
        # Counterpoint and torch begin and end their measurements of a call at different moments.
        # The difference of the self times may be a tenth of the function's self time, plus half of
        # the self time of `aten::mm`.
        assert abs(row["self_ns"] / 1e3 - own_us) < 0.1 * own_us + 0.5 * ops_us, (name, row, own_us)
    assert compared["op"] > 3 and compared["function"] > 1, compared
    (backward,) = [row for name, row in rows.items() if name.startswith("<built-in method run_backward")]
    # The function `run_backward` only starts the ops inside of it, which multiply matrices.
    assert backward["calls"] == 10 and backward["self_ns"] < 0.5 * backward["total_ns"], backward
    shares = sum(row["share"] or 0 for row in rows.values())
    assert shares == pytest.approx(1, abs=1e-9)

    # The main thread's calls take no longer than the thread exists.
    for by in ("thread", "process"):
        (row,) = recorded.report(None, "--by", by)["rows"]
        assert row["self_ns"] == pytest.approx(report["total"]["self_ns"], rel=1e-9)
    (thread,) = report["threads"]
    assert 0 < thread["dispatch_ns"] <= thread["wall_ns"]


def test_a_recording_is_the_same_as_torchs_trace(any_torch, everything):
    recorded = everything(any_torch)
    assert recorded.lines == []
    compare(recorded)
    threads = lambda events: {
        (e["tid"], e["args"]["name"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"
    }
    named = {(tid, name) for tid, name in threads(recorded.traced()) if isinstance(tid, int) and tid}
    ours = {(tid, name) for tid, name in threads(recorded.exported()) if tid}
    # Torch names a thread several times. The last name is valid.
    assert ours and ours <= named and {tid for tid, _ in ours} == {tid for tid, _ in named}
    theirs = json.loads(recorded.trace.read_text())
    (ours,) = recorded.recordings()
    for key in ("trace_id", "with_stack", "record_shapes", "profile_memory", "host_name", "schemaVersion"):
        assert ours[key] == theirs[key], key


def test_the_report_is_that_of_the_imported_trace(torch, everything, tmp_path):
    recorded = everything(torch)
    imported = tmp_path / "imported.cpt"
    recorded.program("trace", "import", recorded.trace, "-o", imported)
    rows = lambda profile: {
        (row["op"], row["library"]): (row["calls"], row["total_ns"], row["self_ns"])
        # Without --raw, the recorder's time for ops is also subtracted from the functions around
        # them.
        for row in recorded.report(profile, "--raw")["rows"]
        if row.get("role") != "bookkeeping"
    }
    ours, theirs = rows(recorded.profile), rows(imported)
    assert {library for _, library in theirs} == {"cpu_op", "user_annotation", "python_function"}
    # This run itself records PyTorch's ops and ranges, so those in the recording of PyTorch's
    # profiler are left out.
    assert {library for _, library in ours} == {"torch", "python_function"}
    for (name, library), (calls, total, _) in theirs.items():
        if library == "python_function":
            assert ours[(name, library)][0] == calls, name
            # Each begin and end is rounded to a tick of the run's clock.
            assert ours[(name, library)][1] == pytest.approx(total, abs=2 * calls, rel=1e-3), name
        else:
            # Our numbers of calls include the calls outside of the block that torch.profiler
            # records.
            assert calls <= ours[(name, "torch")][0] <= 2 * calls + 40, name
    for by in ("module", "shape"):
        table = lambda profile: recorded.report(profile, "--by", by)["rows"]
        assert sorted(map(str, table(recorded.profile))) == sorted(map(str, table(imported)))


def repeated(events):
    """Torch's tables leave out an op that is the only op inside of an op with the same name. For
    example, aten::sum calls itself."""
    ops = [e for e in events if e["ph"] == "X" and e["cat"] in ("cpu_op", "user_annotation")]
    ns = lambda e: (round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000))
    inside = collections.defaultdict(list)
    open_ops = []
    for e in sorted(ops, key=lambda e: (e["tid"], ns(e)[0], -ns(e)[1])):
        while open_ops and (open_ops[-1]["tid"] != e["tid"] or ns(open_ops[-1])[1] <= ns(e)[0]):
            open_ops.pop()
        if open_ops:
            inside[id(open_ops[-1])].append(e)
        open_ops.append(e)
    found = collections.defaultdict(lambda: [0, 0])
    for outer in ops:
        inner = inside[id(outer)]
        if len(inner) == 1 and inner[0]["name"] == outer["name"]:
            row = found[(outer["name"], str(inner[0]["args"].get("Input Dims", [])))]
            row[0] += 1
            row[1] += round(inner[0]["dur"] * 1000)
    return found


def test_sums_by_op_and_by_shape_are_torchs(any_torch, tmp_path):
    recorded = Recorded(any_torch, tmp_path, "steps")
    (found,) = recorded.found
    # Under `counterpoint run`, a profile's report shows the ops that the recorder itself saw, with
    # their counters. So the sums of PyTorch's own events are read from the imported trace.
    imported = tmp_path / "imported.cpt"
    recorded.program("trace", "import", recorded.trace, "-o", imported)
    by_op = collections.defaultdict(lambda: [0, 0.0, 0.0, 0])
    for row in recorded.report(imported)["rows"]:
        if row.get("role") != "bookkeeping":
            for i, key in enumerate(("calls", "total_ns", "self_ns", "inner_calls")):
                by_op[row["op"]][i] += row.get(key) or 0
    left_out = repeated(recorded.traced())
    assert left_out
    assert by_op.keys() == found["sums"].keys()
    for op, (calls, total_us, self_us) in found["sums"].items():
        # PyTorch's table leaves out a call of an op directly inside of the same op, and the report
        # counts such a call separately.
        inner = sum(row[0] for (name, _), row in left_out.items() if name == op)
        assert (by_op[op][0], by_op[op][3]) == (calls, inner), op
        # Torch adds up fractions of µs, and the profile adds up whole ticks of its clock.
        assert by_op[op][1] == pytest.approx(total_us * 1000, abs=3 * calls, rel=1e-3), op
        assert by_op[op][2] == pytest.approx(self_us * 1000, abs=9 * calls, rel=1e-3), op

    ours = {}
    for row in recorded.report(None, "--by", "shape")["rows"]:
        ours[(row["op"], str(row["shapes"] or []))] = (row["calls"], row["total_ns"], row["self_ns"])
    theirs = {(op, shapes): rest for op, shapes, *rest in found["shapes"]}
    assert len(theirs) > len(found["sums"]) and ours.keys() == theirs.keys() | left_out.keys()
    for key, (calls, total_ns, self_ns) in ours.items():
        their_calls, total_us, self_us = theirs.get(key, [0, 0, 0])
        more = left_out.get(key, [0, 0])
        assert calls == their_calls + more[0], key
        assert total_ns - more[1] == pytest.approx(total_us * 1000, abs=calls), key
        if key[0] not in {name for name, _ in left_out}:
            # Torch adds the self time of a left-out op to the op around it, and the two ops may
            # have different shapes.
            assert self_ns == pytest.approx(self_us * 1000, abs=4 * calls), key


def test_modules_have_their_forward_and_backward_ops(torch, everything):
    recorded = everything(torch)
    report = recorded.report(None, "--by", "module")
    rows = {row["module"]: row for row in report["rows"]}
    blocks = [f"Sequential_0/Block_{i}" for i in range(2)]
    linears = [f"{block}/Linear_{2 * i + j}" for i, block in enumerate(blocks) for j in range(2)]
    assert rows.keys() == {"Sequential_0", *blocks, *linears, "Sequential_0/Linear_4", None}
    assert all(rows[name]["calls"] == 3 for name in rows if name is not None)
    # A `Block` itself calls only relu and add. The two linear modules inside of it call the other
    # ops. All of these modules also have backward ops.
    backward = {name: row["backward_ops"] for name, row in rows.items()}
    assert all(backward[name] > 0 and rows[name]["ops"] > 0 for name in [*blocks, *linears])
    # The time of a module contains everything inside of it.
    of = lambda name: sum(row["self_ns"] for module, row in rows.items() if module and module.startswith(name))
    assert of("Sequential_0") == rows["Sequential_0"]["total_ns"]
    ops = [e for e in recorded.traced() if e["ph"] == "X" and e["cat"] in ("cpu_op", "user_annotation")]
    assert sum(row["ops"] + row["backward_ops"] for row in rows.values()) == len(ops)
    assert sum(row["ops_ns"] + row["backward_ns"] for row in rows.values()) == report["ops_ns"]
    # The ops of the step itself and of the optimizer are outside of all modules.
    assert "step" in {op["name"] for op in ops} and rows[None]["ops"] > 0


def test_lines_and_steps_and_flops_are_torchs(any_torch, tmp_path):
    recorded = Recorded(any_torch, tmp_path, "stacks", script=SCRIPT.parent / "stacked.py")
    (found,) = recorded.found
    imported = tmp_path / "imported.cpt"
    recorded.program("trace", "import", recorded.trace, "-o", imported)
    # PyTorch gives each step its own name, but its table has one row for all steps.
    assert found["steps"] == [["ProfilerStep*", 4]]
    for profile in (recorded.profile, imported):
        rows = [row for row in recorded.report(profile)["rows"] if "ProfilerStep" in row["op"]]
        assert {row["op"] for row in rows} == {"ProfilerStep*"}
    assert sum(row["calls"] for row in rows if row["library"] == "user_annotation") == 4
    stats = json.loads(recorded.program("stats", imported, "--op", "ProfilerStep#*", "--format", "json"))
    assert [op["all"]["calls"] for op in stats["ops"]] == [4]

    def function_of(line):
        place = re.fullmatch(r"stacked\.py(?::(\d+)|\(\d+\): (.*))", line.rsplit("/")[-1])
        if place is None or place[2]:
            return place and place[2]
        number = int(place[1])
        inside = [name for name, (first, end) in found["places"].items() if first <= number < end]
        return inside[0] if inside else "<module>"

    for profile in (recorded.profile, imported):
        ours = collections.defaultdict(lambda: [0, 0])
        for row in recorded.report(profile, "--by", "line")["rows"]:
            if row["line"] is not None:
                of = ours[function_of(row["line"])]
                of[0] += row["ops"]
                of[1] += row["ops_ns"]
        more = 0
        for function, (ops, self_us) in found["lines"].items():
            if function == "<module>":
                # In our report, the ops `ProfilerStep#…` belong to `<module>`, too, so its numbers
                # differ.
                continue
            more += ours[function][0] - ops
            assert ours[function][0] >= ops, function
            assert ours[function][1] == pytest.approx(self_us * 1000, abs=4 * ops), function
        # PyTorch does not list an op that is the only op inside of an op with the same name. It
        # adds the inner op's self time to the outer op.
        assert more == sum(calls for calls, _ in repeated(recorded.traced()).values())
        assert {"forward", "loss_of"} <= ours.keys() & found["lines"].keys()

        flops = collections.Counter()
        for row in recorded.report(profile, "--by", "shape")["rows"]:
            flops[row["op"]] += row["flops"] or 0
        assert {op: count for op, count in flops.items() if count} == found["flops"]
        assert {"aten::conv2d", "aten::addmm", "aten::bmm", "aten::mul", "aten::add"} <= found["flops"].keys()

        # The expected values of these metrics are computed from PyTorch's own numbers.
        metrics = ("--metric", "rate = flops / duration in G/s", "--metric", "each = flops / calls")
        report = recorded.report(profile, "--by", "shape", *metrics)
        assert [metric["name"] for metric in report["metrics"]] == ["rate", "each"]
        values = {
            (row["op"], json.dumps(row["shapes"])): [metric["value"] for metric in row["metrics"]]
            for row in report["rows"]
        }
        assert all((row["metrics"][0]["value"] is None) == (row["flops"] is None) for row in report["rows"])
        for op, shapes, calls, flops, total_us in found["shaped"]:
            rate, each = values[op, json.dumps(shapes)]
            assert rate == pytest.approx(flops / (total_us * 1000), rel=0.01), op
            assert each == flops / calls, op
        assert {op for op, *_ in found["shaped"]} == found["flops"].keys()


def test_names_that_torchs_file_cannot_hold_arrive(torch, tmp_path):
    recorded = Recorded(torch, tmp_path, "names")
    names = {e["name"] for e in recorded.exported()}
    # PyTorch's record_function itself replaces double quotation marks.
    assert {"say 'é'", "back\\slash", "two\nlines", "plain"} <= names
    assert "unknown" in {e["name"] for e in recorded.traced()}


def test_each_cycle_of_a_schedule_is_a_recording(any_torch, tmp_path):
    recorded = Recorded(any_torch, tmp_path, "cycles")
    theirs = [recorded.traced(f".{i}") for i in range(2)]
    assert as_multiset(recorded.exported()) == as_multiset(theirs[0]) + as_multiset(theirs[1])
    first, second = recorded.recordings()
    assert first["trace_id"] != second["trace_id"]
    assert arrows(recorded.exported()) == sorted(arrows(theirs[0]) + arrows(theirs[1]))


def test_threads_are_kept_apart(torch, tmp_path):
    recorded = Recorded(torch, tmp_path, "threads")
    compare(recorded)
    threads = {e["tid"] for e in recorded.exported() if e.get("cat") == "cpu_op"}
    assert len(threads) >= 3


def test_an_exception_does_not_lose_the_recording(torch, tmp_path):
    recorded = Recorded(torch, tmp_path, "raises")
    compare(recorded)


def test_a_recording_of_several_megabytes(torch, tmp_path):
    recorded = Recorded(torch, tmp_path, "many")
    assert recorded.trace.stat().st_size > 5e6
    ours, theirs = as_multiset(recorded.exported()), as_multiset(recorded.traced())
    assert ours == theirs and sum(theirs.values()) > 20_000


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_each_process_has_its_own_recording(torch, tmp_path, how):
    recorded = Recorded(torch, tmp_path, how)
    theirs = recorded.traced() + recorded.traced(".0") + recorded.traced(".1")
    assert as_multiset(recorded.exported()) == as_multiset(theirs)
    assert len({recording["process"] for recording in recorded.recordings()}) == 3


def test_a_killed_program_keeps_what_it_has_handed_over(torch, tmp_path):
    recorded = Recorded(torch, tmp_path, "killed", code=-9)
    compare(recorded)


def test_a_recording_that_was_cut_is_counted(torch, tmp_path):
    recorded = Recorded(torch, tmp_path, "cut")
    (line,) = recorded.lines
    assert line.startswith("torch.profiler in python") and "a part of a recording is missing" in line
    ours, theirs = as_multiset(recorded.exported()), as_multiset(recorded.traced())
    assert 10 < sum(ours.values()) < sum(theirs.values()) and ours <= theirs
    losses = {loss["name"]: loss["count"] for loss in recorded.report()["losses"]}
    assert losses["recording_incomplete"] == 1


@pytest.mark.parametrize("version", ["2.99.1", "2.11.0"])
def test_an_unknown_version_is_named_once_and_its_files_are_taken_over(torch, tmp_path, version):
    recorded = Recorded(torch, tmp_path, f"unknown {version}")
    (line,) = recorded.lines
    assert f"PyTorch {version}" in line and "2.15" in line
    assert len(recorded.found) == 2
    ours = as_multiset(recorded.exported())
    assert ours == as_multiset(recorded.traced(".0")) + as_multiset(recorded.traced(".1"))
    # In a file that torch writes, `traceName` is the path of the file.
    for i in range(2):
        path = f"{recorded.trace}.{i}"
        assert json.loads(open(path).read())["traceName"] == path
    assert not list(recorded.profile.glob("processes/*/trace-*"))


def test_without_a_compiler_files_are_taken_over(torch, tmp_path):
    nothing = tmp_path / "cache"
    nothing.mkdir(mode=0o700)
    recorded = Recorded(torch, tmp_path, "steps", CXX="/nonexistent/c++", XDG_CACHE_HOME=nothing)
    (line,) = recorded.lines
    assert "compiler" in line
    compare(recorded)


@pytest.mark.parametrize("variable", ["COUNTERPOINT_TORCH", "TORCH_DEVICE_BACKEND_AUTOLOAD"])
def test_the_bridge_can_be_switched_off(torch, tmp_path, variable):
    recorded = Recorded(torch, tmp_path, "steps", **{variable: "0"})
    assert recorded.lines == [] and not (recorded.profile / "activities").exists()
    assert len(recorded.found) == 1


def test_nothing_is_replaced_in_a_program_that_is_not_recorded(torch, tmp_path):
    found = torch.run("recorded.py", "no profiler", tmp_path / "x").found
    assert "_log" not in found["exit"] and "_wrapped" not in found["exit"]


def test_events_of_plugins_come_with_the_recording_and_hta_finds_their_kernels(torch, plugins, tmp_path):
    folder, kernel = plugins
    recorded = Recorded(torch, tmp_path, "steps", KINETO_PLUGIN_LIB_DIR_PATH=folder)
    compare(recorded)
    counters = lambda events: collections.Counter(
        (e["name"], json.dumps(e["args"], sort_keys=True)) for e in events if e["ph"] == "C"
    )
    theirs = counters(recorded.traced())
    assert theirs, "the plugin has a counter"
    venv = os.environ.get("COUNTERPOINT_VENV_HTA")
    if not venv:
        pytest.skip("COUNTERPOINT_VENV_HTA is not set")
    recorded.exported()
    look = (
        "import json, sys\n"
        "from hta.trace_analysis import TraceAnalysis\n"
        "found = []\n"
        "for path in sys.argv[1:]:\n"
        "    analysis = TraceAnalysis(trace_files={0: path})\n"
        "    kinds, kernels = analysis.get_gpu_kernel_breakdown(visualize=False)\n"
        "    temporal = analysis.get_temporal_breakdown(visualize=False).iloc[0]\n"
        "    idle, _ = analysis.get_idle_time_breakdown(visualize=False)\n"
        "    found.append([sorted([r['name'], float(r['sum (us)'])] for _, r in kernels.iterrows()),\n"
        "                  float(temporal['kernel_time(us)']), float(temporal['idle_time(us)']), len(idle)])\n"
        "print(json.dumps(found))\n"
    )
    paths = [tmp_path / "exported.json", recorded.trace]
    done = subprocess.run([f"{venv}/bin/python", "-c", look, *map(str, paths)], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    ours, theirs = json.loads(done.stdout.decode().splitlines()[-1])
    # Holistic Trace Analysis (HTA) rounds the begin and the end of each compute kernel to µs.
    kernels = sum(e.get("cat") == "kernel" for e in recorded.traced())
    names = lambda found: [name for name, _ in found[0]]
    assert names(ours) == names(theirs) == [kernel] and ours[3] == theirs[3] and ours[1] > 0
    assert [ours[0][0][1], *ours[1:3]] == pytest.approx([theirs[0][0][1], *theirs[1:3]], abs=2 * kernels)
    assert 2 * kernels < theirs[0][0][1]
