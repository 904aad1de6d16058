"""Checks on a device of NVIDIA's. Counterpoint must not change what programs with CUDA do. Recordings of
torch.profiler, of the plugin `cuda` and of telemetry must agree with other tools on the same device."""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import machine
import traces
from result import Absent, Result, expect

if TYPE_CHECKING:
    from run import Place

PROGRAMS = Path(__file__).resolve().parent / "programs"
COMMAND = "cargo xtask hardware --only nvidia, on a machine where `nvidia-smi` lists a device"
ROUNDS = 10
ON = ["--plugin", "cuda", "--plugin-config", "cuda.torch=on"]
# The activities of a round of programs/plain.cu: name, kind, number. The three kernels
# `link_in_chain` are those of a replayed graph.
PLAIN = [
    ("saxpy(float, float const*, float*)", "kernel", 4),
    ("void scale<float>(float, float*)", "kernel", 1),
    ("link_in_chain(float*)", "kernel", 3),
    ("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy", 2),
    ("Memcpy DtoD (Device -> Device)", "gpu_memcpy", 1),
    ("Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", 2),
    ("Memset (Device)", "gpu_memset", 2),
    ("cudaGraphLaunch", "cuda_runtime", 1),
    ("cudaMemcpyAsync", "cuda_runtime", 5),
    ("cudaMemsetAsync", "cuda_runtime", 2),
    ("cudaStreamSynchronize", "cuda_runtime", 2),
    ("Stream Sync", "cuda_sync", 2),
]
STATUS = {"plain": 7, "nvtx": 8, "torch": 3, "cupy": 4, "jax": 5, "triton": 6}
# The bytes of one copy or fill of plain.cu.
BYTES = 1 << 20


def check(place: Place, result: Result) -> None:
    """Makes all checks that need a device."""
    with result.check("a device of NVIDIA's") as said:
        devices = machine.nvidia()
        if not devices:
            raise Absent(f"nvidia-smi lists none. What shows it: {COMMAND}")
        said.append("; ".join(devices))
    if result.rows[-1][0] != "ok":
        return
    programs = available(place, result)
    unharmed(place, result, programs)
    if "plain" in programs:
        plugin(place, result, programs["plain"])
        counters(place, result, programs["plain"])
        of_kernels(place, result, programs["plain"])
    if "torch" in programs:
        kineto(place, result, programs["torch"])
        judged = beside_kineto(place, result, programs["torch"])
        left_to_torch(place, result, programs["torch"], judged)
        ranges(place, result, programs["torch"][0])
    named(place, result, programs)
    of_ops(place, result)
    telemetry(place, result)
    if not place.quick:
        price(place, result, programs)


def available(place: Place, result: Result) -> dict[str, list[str]]:
    programs = {}
    with result.check("programs with CUDA") as said:
        binary = place.work / "plain"
        if place.tools["nvcc"]:
            command = ["nvcc", "-O2", "-o", str(binary), str(PROGRAMS / "plain.cu")]
            subprocess.run(command, check=True, capture_output=True)
            programs["plain"] = [str(binary), str(ROUNDS)]
        for name, module in [("torch", "torch"), ("triton", "triton"), ("cupy", "cupy"), ("jax", "jax")]:
            if importlib.util.find_spec(module):
                file = "train_torch.py" if name == "torch" else f"with_{name}.py"
                programs[name] = [sys.executable, str(PROGRAMS / file)]
        versions = machine.said([sys.executable, "-c", VERSIONS]).splitlines()
        said.append(", ".join(["nvcc"] * ("plain" in programs) + versions))
        expect(bool(programs), "there is neither nvcc nor a Python with CUDA")
    return programs


VERSIONS = """
from importlib import metadata
for name in ("torch", "triton", "cupy-cuda13x", "cupy-cuda12x", "jax", "nvidia-cuda-cupti", "nvidia-cuda-cupti-cu12"):
    try:
        print(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        pass
"""


def alone(place: Place, program: list[str], more: dict[str, str] | None = None) -> tuple[str, int, float]:
    """Returns what the program prints, its exit status, and its duration in seconds."""
    began = time.perf_counter()
    environment = {**os.environ, **(more or {})}
    done = subprocess.run(
        program, capture_output=True, text=True, check=False, cwd=place.work, env=environment, timeout=300
    )
    return done.stdout, done.returncode, time.perf_counter() - began


def unharmed(place: Place, result: Result, programs: dict[str, list[str]]) -> None:
    """Each program prints the same and ends with the same status under every option."""
    ways = {
        "run": [],
        "--budget 2%": ["--budget", "2%"],
        "--plugin telemetry": ["--plugin", "telemetry"],
        "--plugin cuda": ["--plugin", "cuda"],
        "both plugins": ["--plugin", "cuda", "--plugin", "telemetry"],
    }
    for name, program in programs.items():
        with result.check(f"{name} is unharmed") as said:
            output, status, _ = alone(place, program)
            expect(status == STATUS[name], f"alone it ends with {status}")
            profiles = {way: place.fresh("unharmed.cpt") for way in ways}

            def under(way: str) -> str:
                command = ["run", *ways[way], "-o", profiles[way], "--", *program]
                done = place.counterpoint(command, status=status)
                return "" if done.stdout == output else f"under {way} it prints {done.stdout!r}, not {output!r}"

            with ThreadPoolExecutor(len(ways)) as pool:
                wrong = [text for text in pool.map(under, ways) if text]
            expect(not wrong, "; ".join(wrong))
            said.append(f"{output.strip()!r}, status {status}, alone and under {', '.join(ways)}")


def record(place: Place, name: str, program: list[str], *options: str) -> Path:
    profile = place.fresh("recorded.cpt")
    command = ["run", "-e", "none", *options, "-o", profile, "--", *program]
    place.counterpoint(command, status=STATUS[name])
    return profile


def plugin(place: Place, result: Result, program: list[str]) -> None:
    """Checks what the plugin records of a program whose activities are known."""
    profile = record(place, "plain", program, "--plugin", "cuda")
    trace = place.fresh("plain.json")
    place.counterpoint(["trace", "export", profile, "-o", trace])
    events = traces.slices(trace)
    with result.check("plugin cuda: every kernel, copy, fill and call of a known program") as said:
        for name, kind, each in PLAIN:
            found = sum((event["name"], event["cat"]) == (name, kind) for event in events)
            expect(found == each * ROUNDS, f"{found} times {name}, not {each * ROUNDS}")
        work = [event for event in events if event["cat"] in traces.WORK]
        sizes = {event["args"].get("bytes") for event in work if event["cat"] != "kernel"}
        expect(sizes == {BYTES}, f"bytes are {sizes}")
        said.append(f"{len(work)} activities in {ROUNDS} rounds as in its source")
    with result.check("plugin cuda: launches and arrows") as said:
        calls = {event["args"]["correlation"]: event for event in events if event["cat"] == "cuda_runtime"}
        late = [w for w in work if w["ts"] < calls[w["args"]["correlation"]]["ts"] - traces.CLOCK_US]
        expect(not late, f"{len(late)} began before they were launched, as {late[:1]}")
        flows = traces.flows(trace)
        ends = sum(len(ends) for _, ends in flows.values())
        expect(ends == len(work), f"{ends} arrows end, {len(work)} activities")
        expect(all(starts == 1 for starts, _ in flows.values()), "an arrow without a begin")
        said.append(f"{ends} arrows from {len(flows)} launches; none began before its launch")
    with result.check("plugin cuda: both timelines") as said:
        place.counterpoint(["trace", "check", trace])
        pftrace = place.fresh("plain.pftrace")
        place.counterpoint(["trace", "export", profile, "-o", pftrace])
        said.append(f"{trace.stat().st_size:,} and {pftrace.stat().st_size:,} bytes; trace check is content")
    with result.check("plugin cuda: reports add up") as said:
        reports_add_up(place, profile, said)


# Two counters: the cycles in which the device was active, and all cycles. The second count must not
# be smaller than the first.
ACTIVE, ELAPSED = "gr__cycles_active.avg", "gr__cycles_elapsed.max"


def counters(place: Place, result: Result, program: list[str]) -> None:
    """Checks counters that the device samples, and what the plugin records at the same time."""
    with result.check("plugin cuda: counters of the device") as said:
        profile = place.fresh("counters.cpt")
        options = ["-e", "none", "--plugin", "cuda", "--plugin-config", f"cuda.counters={ACTIVE}+{ELAPSED}"]
        command = ["run", *options, "-o", profile, "--", program[0], "400"]
        done = place.counterpoint(command, status=STATUS["plain"])
        absent_without_rights(done.stderr)
        expect("were not sampled" not in done.stderr, done.stderr.strip()[-400:])
        report = json.loads(place.counterpoint(["report", profile, "--format", "json"]).stdout)
        tracks = {(track["track"], track["name"]): track for track in report["tracks"]}
        found = {name: tracks.get((name, "gpu0")) for name in (ACTIVE, ELAPSED)}
        expect(None not in found.values(), f"the tracks are {sorted(tracks)}")
        active, elapsed = (found[name]["mean"] for name in (ACTIVE, ELAPSED))
        expect(0 < active <= 1.01 * elapsed, f"{active:,.0f} of {elapsed:,.0f} cycles were active")
        samples = found[ACTIVE]["samples"]
        expect(samples > 100, f"{samples} samples")
        said.append(f"{samples} samples; {active:,.0f} of {elapsed:,.0f} cycles were active")
        work = traces.work_of(place, profile)
        kernels = sum(count for name, (count, _) in work.items() if "saxpy" in name)
        # On some devices, CUPTI reports no kernels while counters are sampled.
        silent = "CUPTI gave no kernel" in done.stderr
        expect(kernels == 1600 or (kernels == 0 and silent), f"{kernels} of 1600 kernels beside the counters")
        said.append(f"{kernels} of 1600 kernels beside them")


# The value of WARPS follows from the source of plain.cu. On Hopper, the counters of
# many_counters.txt need several runs of a kernel.
WARPS, CYCLES = "sm__warps_launched.sum", "sm__cycles_elapsed.max"
MANY = (Path(__file__).resolve().parent / "many_counters.txt").read_text(encoding="utf-8").split()
# How often a round of plain.cu runs each of these kernels, and the number of threads of a kernel (N
# in plain.cu).
KERNELS = {"saxpy": 4, "scale": 1}
THREADS = 1 << 18


def absent_without_rights(said: str) -> None:
    if "root may read counters" in said:
        raise Absent("this user may not read counters of the device (NVreg_RestrictProfilingToAdminUsers)")


def of_kernels(place: Place, result: Result, program: list[str]) -> None:
    """Values that follow from the number of a kernel's threads must be exact."""
    for title, names in [("one run of each", [WARPS, CYCLES]), ("several runs of each", MANY)]:
        with result.check(f"plugin cuda: counters of kernels, {title}") as said:
            profile = place.fresh("kernels.cpt")
            options = ["-e", "none", "--plugin", "cuda", "--plugin-config", f"cuda.range-counters={'+'.join(names)}"]
            command = ["run", *options, "-o", profile, "--", *program]
            done = place.counterpoint(command, status=STATUS["plain"])
            absent_without_rights(done.stderr)
            expect("were not counted" not in done.stderr, done.stderr.strip()[-400:])
            trace = place.fresh("kernels.json")
            place.counterpoint(["trace", "export", profile, "-o", trace])
            found = [event for event in traces.slices(trace) if event["cat"] == "cuda_profiler_range"]
            for kernel, each in KERNELS.items():
                of_it = [event["args"] for event in found if kernel in event["name"]]
                expect(len(of_it) == each * ROUNDS, f"{len(of_it)} ranges of {kernel}, not {each * ROUNDS}")
                lacking = [name for name in names if any(name not in args for args in of_it)]
                expect(not lacking, f"{kernel} has no {lacking}")
                warps = {args[WARPS] for args in of_it}
                expect(warps == {THREADS / 32}, f"{kernel}: {WARPS} is {sorted(warps)}, its source says {THREADS // 32}")
                expect(min(args[CYCLES] for args in of_it) > 0, f"{kernel} took no cycle")
            # The number of ranges of graphs is not checked, because it depends on CUPTI.
            of_graphs = sum("of a graph" in event["name"] for event in found)
            said.append(f"{len(found)} ranges of {len(names)} counters; {THREADS // 32} warps in each of {sorted(KERNELS)}")
            said.append(f"{of_graphs} ranges of {3 * ROUNDS} kernels of graphs")


def of_ops(place: Place, result: Result) -> None:
    """TVM makes the kernels, so the exact values are unknown, and only the relation between two ops
    is checked."""
    with result.check("counters of the device around ops of TVM") as said:
        if not importlib.util.find_spec("tvm"):
            raise Absent(f"{sys.executable} has no tvm: --python names one that has")
        script = PROGRAMS / "counted_tvm.py"
        environment = {
            **os.environ,
            "COUNTERPOINT_DIST": str(place.dist),
            "PYTHONPATH": os.pathsep.join([str(place.dist / "lib/python"), os.environ.get("PYTHONPATH", "")]),
        }
        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, check=False, env=environment, timeout=300
        )
        absent_without_rights(done.stderr)
        if "no CUDA" in done.stdout:
            raise Absent(done.stdout.strip())
        expect(done.returncode == 0, done.stderr.strip()[-400:])
        values = json.loads(done.stdout)
        one, four = (values[name] for name in ("add_1", "add_4"))
        ratio = four["cuda:::sm__inst_executed.sum:device=0"] / one["cuda:::sm__inst_executed.sum:device=0"]
        expect(abs(ratio - 4) < 0.01, f"four times the work has {ratio:.3f} times the instructions: {values}")
        for name, row in values.items():
            cycles = row["cuda:::event:elapsed_cycles_sm:device=0"]
            expect(cycles > 0, f"{name} took {cycles} cycles")
        said.append(f"{ratio:.3f} times the instructions for four times the work; {values}")


def ranges(place: Place, result: Result, python: str) -> None:
    """Checks ranges that a program marks with NVTX."""
    with result.check("plugin cuda: ranges of NVTX") as said:
        profile = record(place, "nvtx", [python, str(PROGRAMS / "with_nvtx.py")], *ON)
        trace = place.fresh("nvtx.json")
        place.counterpoint(["trace", "export", profile, "-o", trace])
        marked = [event for event in traces.slices(trace) if event["cat"] == "user_annotation"]
        count = {name: sum(event["name"] == name for event in marked) for name in ("outer", "inner")}
        expect(count == {"outer": 5, "inner": 5}, f"ranges: {count}")
        outer = [event for event in marked if event["name"] == "outer"]
        for event in (event for event in marked if event["name"] == "inner"):
            inside = [o for o in outer if o["ts"] <= event["ts"] and event["ts"] + event["dur"] <= o["ts"] + o["dur"]]
            expect(len(inside) == 1, f"an inner range is in {len(inside)} outer ones")
        said.append("5 outer ranges, each with an inner one")


def reports_add_up(place: Place, profile: Path, said: list[str]) -> None:
    """Reports by op, kind, device and stream must have the same sum of self times."""
    sums = {}
    for by in ("op", "kind", "device", "stream"):
        report = json.loads(place.counterpoint(["report", profile, "--by", by, "--top", "0", "--format", "json"]).stdout)
        sums[by] = sum(row["self_ns"] for row in report["rows"] if row["share"] is not None)
    spread = max(sums.values()) - min(sums.values())
    expect(spread <= 1e-6 * max(sums.values()), f"sums of own times: {sums}")
    said.append(f"{sums['op'] / 1e6:.3f} ms by op, kind, device and stream")


def kineto(place: Place, result: Result, program: list[str]) -> None:
    """The device's activities that Counterpoint reports must agree with torch.profiler's trace and `key_averages`, both
    under `run` and with `trace import`."""
    for how, environment in [("by trace file", {}), ("by the shim", {"COUNTERPOINT_TORCH": "try"})]:
        trace, averages = place.fresh("torch.json"), place.fresh("averages.json")
        profile = place.fresh("torch.cpt")
        command = ["run", "-e", "none", "-o", profile, "--", *program, "5", trace, averages]
        with result.check(f"torch.profiler under run, {how}: key_averages and ours") as said:
            place.counterpoint(command, environment, status=3)
            judged = traces.averages(averages, {event["name"] for event in traces.slices(trace) if event["cat"] in traces.WORK})
            ours = traces.work_of(place, profile)
            expect(bool(judged), "key_averages has no work of a device")
            compare(ours, judged, said)
        with result.check(f"torch.profiler, {how}: reports add up") as said:
            reports_add_up(place, profile, said)
    with result.check("trace import of torch.profiler's file") as said:
        imported = place.fresh("imported.cpt")
        place.counterpoint(["trace", "import", trace, "-o", imported])
        compare(traces.work_of(place, imported), judged, said)
        devices = {row["device_name"] for row in traces.rows(place, imported, "--by", "device")} - {None}
        expect(devices == {"GPU 0"}, f"the devices are called {devices}")
    with result.check("trace export of it") as said:
        again = place.fresh("again.json")
        place.counterpoint(["trace", "export", imported, "-o", again])
        place.counterpoint(["trace", "export", imported, "-o", place.fresh("again.pftrace")])
        before, after = (traces.totals(traces.slices(file)) for file in (trace, again))
        expect(before == after, "names, counts or durations of work differ")
        said.append(f"{sum(count for count, _ in after.values())} activities as in torch.profiler's file")


def compare(ours: dict[str, tuple[int, float]], judged: dict[str, tuple[int, float]], said: list[str]) -> None:
    """Counts are equal, and times differ by at most two nanoseconds for each call."""
    expect(set(ours) == set(judged), f"only one of them has {sorted(set(ours) ^ set(judged))[:2]}")
    for name, (count, total_us) in judged.items():
        found = ours[name]
        near = abs(found[1] - total_us) <= 0.002 * count
        expect(found[0] == count and near, f"{name[:60]}: {found} and {(count, total_us)}")
    count, total = (sum(row[i] for row in judged.values()) for i in (0, 1))
    said.append(f"{count} activities of {len(judged)} names, {total:.3f} us in both")


def beside_kineto(place: Place, result: Result, program: list[str]) -> dict[str, tuple[int, float]]:
    """Returns the activities that Kineto, the recorder of torch.profiler, finds. CUPTI serves only one profiler at a
    time, so the runs with Kineto and with the plugin are separate."""
    judged: dict[str, tuple[int, float]] = {}
    with result.check("plugin cuda beside Kineto: counts and durations of a training loop") as said:
        trace, averages = place.fresh("kineto.json"), place.fresh("averages.json")
        alone(place, [*program, "5", str(trace), str(averages)])
        judged = traces.totals(traces.slices(trace))
        runs = [record(place, "torch", [*program, steps], *ON) for steps in ("5", "10")]
        few, many = (traces.work_of(place, run) for run in runs)
        for name, (count, _) in judged.items():
            more = many.get(name, (0, 0))[0] - few.get(name, (0, 0))[0]
            expect(more == count, f"{name[:60]}: {more} in five steps, Kineto {count}")
        mean = [sum(row[name][1] / row[name][0] for name in judged) for row in (many, judged)]
        ratio = mean[0] / mean[1]
        expect(0.8 < ratio < 1.25, f"durations are {ratio:.3f} of Kineto's")
        said.append(f"{sum(count for count, _ in judged.values())} activities of {len(judged)} names in five steps")
        said.append(f"sum of mean durations {mean[0]:.2f} us, Kineto {mean[1]:.2f} us")
    return judged


def left_to_torch(
    place: Place, result: Result, program: list[str], judged: dict[str, tuple[int, float]]
) -> None:
    """Checks that torch.profiler has the same activities with the plugin as without it."""
    with result.check("plugin cuda leaves CUPTI to torch.profiler") as said:
        trace, averages = place.fresh("left.json"), place.fresh("averages.json")
        command = ["run", "-e", "none", "--plugin", "cuda", "-o", place.fresh("left.cpt"), "--", *program, "5", trace, averages]
        done = place.counterpoint(command, status=3)
        found = traces.totals(traces.slices(trace))
        counts = [{name: count for name, (count, _) in all_.items()} for all_ in (found, judged)]
        expect(counts[0] == counts[1], "torch.profiler has other activities")
        expect("CUPTI is left to torch.profiler" in done.stderr, f"it does not say so: {done.stderr}")
        said.append("torch.profiler has all activities, and the plugin says that it stays off")


def named(place: Place, result: Result, programs: dict[str, list[str]]) -> None:
    """Checks that the recorded names of kernels of Triton, CuPy and JAX contain the expected names."""
    for name, kernels in [
        ("triton", ["double_plus_one"]),
        ("cupy", ["raw_add", "fused_square_plus"]),
        ("jax", ["fusion"]),
    ]:
        if name not in programs:
            continue
        with result.check(f"plugin cuda: names of {name}'s kernels") as said:
            found = traces.work_of(place, record(place, name, programs[name], *ON))
            for kernel in kernels:
                having = [key for key in found if kernel in key]
                expect(bool(having), f"no kernel {kernel}: {sorted(found)[:8]}")
                said.append(f"{having[0]} ({found[having[0]][0]} times)")


QUERY = "power.draw,clocks.sm,clocks.mem,memory.used,temperature.gpu"
TRACKS = {
    "gpu power gpu0": 5,
    "gpu clock gpu0 sm": 60,
    "gpu clock gpu0 memory": 60,
    "gpu memory gpu0 used": 1,
    "gpu temperature gpu0": 2,
}


def telemetry(place: Place, result: Result) -> None:
    """Compares telemetry with the values that nvidia-smi prints before and after the recording."""
    with result.check("telemetry beside nvidia-smi") as said:
        def smi() -> list[float]:
            text = machine.said(["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits", "-i", "0"])
            return [float(number) for number in text.split(",")]

        profile = place.fresh("telemetry.cpt")
        before = smi()
        place.counterpoint(["plugin", "run", "telemetry", "--for", "1s", "-o", profile])
        after = smi()
        report = json.loads(place.counterpoint(["report", profile, "--format", "json"]).stdout)
        tracks = {f"{track['track']} {track['name']}": track for track in report["tracks"] if "track" in track}
        for (name, tolerance), low, high in zip(TRACKS.items(), before, after):
            mean = tracks[name]["mean"]
            inside = min(low, high) - tolerance <= mean <= max(low, high) + tolerance
            expect(inside, f"{name}: {mean}, nvidia-smi {low} before and {high} after")
            said.append(f"{name} {mean:,.1f} (nvidia-smi {low:g}, {high:g})")
        for name in ("gpu pcie gpu0 to host", "gpu pcie gpu0 from host"):
            expect(name in tracks, f"there is no {name}: {sorted(tracks)}")
            said.append(f"{name} {tracks[name]['mean']:.2f} MB/s")
        expect(tracks["gpu power gpu0"]["samples"] > 20, "fewer than 20 samples in a second")


def price(place: Place, result: Result, programs: dict[str, list[str]]) -> None:
    """Measures what recording costs. In each of 11 rounds, the program runs once without Counterpoint and once in each
    way of recording. The cost of a way is the median of its 11 differences from the run without Counterpoint."""
    if "plain" not in programs:
        return
    program = [programs["plain"][0], "400"]

    def seconds(command: list[str], more: dict[str, str] | None = None) -> float:
        return alone(place, command, more)[2]

    def recorded(*options: str) -> float:
        command = [str(place.dist / "bin/counterpoint"), "run", "-e", "none", *options]
        return seconds([*command, "-o", str(place.fresh("price.cpt")), "--", *program])

    ways = {
        "run": lambda: recorded(),
        "--plugin cuda": lambda: recorded("--plugin", "cuda"),
        "--plugin cuda --plugin-kinds kernel": lambda: recorded("--plugin", "cuda", "--plugin-kinds", "kernel"),
        "--plugin telemetry": lambda: recorded("--plugin", "telemetry"),
    }
    seconds(program)
    pairs: dict[str, list[float]] = {name: [] for name in ways}
    base = []
    for _ in range(11):
        without = seconds(program)
        base.append(without)
        for name, way in ways.items():
            pairs[name].append(way() - without)
    middle = statistics.median(base)
    result.figure(f"plain.cu, 400 rounds: {middle:.3f} s alone (median of 11)")
    for name, added in pairs.items():
        low, *_, high = sorted(added)
        text = f"{1e3 * statistics.median(added):.0f} ms more (11 pairs, {1e3 * low:.0f} to {1e3 * high:.0f})"
        result.figure(f"  {name}: {text}")
    if "torch" in programs:
        torch_price(place, result, programs["torch"])


LOOP = PROGRAMS / "loop_torch.py"


def torch_price(place: Place, result: Result, program: list[str]) -> None:
    """Compares the times of a training step, which the program itself measures: alone, with the plugin, and with
    torch.profiler."""
    found: dict[str, list[float]] = {}
    with_plugin = [str(place.dist / "bin/counterpoint"), "run", "-e", "none", *ON]
    for _ in range(2):
        for name, command in [
            ("alone", [program[0], str(LOOP)]),
            ("--plugin cuda", [*with_plugin, "-o", str(place.fresh("loop.cpt")), "--", program[0], str(LOOP)]),
            (
                "--plugin cuda --plugin-kinds kernel,memcpy",
                [*with_plugin, "--plugin-kinds", "kernel,memcpy", "-o", str(place.fresh("loop.cpt")), "--", program[0], str(LOOP)],
            ),
            ("torch.profiler", [program[0], str(LOOP), "profile"]),
        ]:
            output, status, _ = alone(place, command)
            expect(status == 0, f"{name}: status {status}")
            found.setdefault(name, []).extend(json.loads(output))
    base = statistics.median(found["alone"])
    for name, times in found.items():
        middle = statistics.median(times)
        result.figure(f"a training step, {name}: {1e6 * middle:.1f} us, {middle / base:.3f} times alone (median of {len(times)} blocks of 50)")
