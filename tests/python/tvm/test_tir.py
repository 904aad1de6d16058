"""Tests `with loops():`, which instruments what TVM compiles. Loops in the report have the names of the schedule.

The expected hits (entries of a loop) are products of extents: a loop is entered once in each iteration of the
loops around it.
"""

import json
import os
import sys
import threading

import models
import numpy as np
import pytest
import support
import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op
from tvm.script import tirx as T

import counterpoint.tvm as cp

if tvm.__version__.startswith("0.25"):
    pytest.skip("loops() needs TVM 0.26", allow_module_level=True)

# Rows, columns and depth of the matrix products.
I, J, K = 24, 70, 300
# With so many parallel launches, LLVM does not unroll the loop around them.
LAUNCHES = 100
ALL = {"min_height": 0, "max_depth": 9}


@tvm.register_global_func("counterpoint.test.identity", override=True)
def identity(x):
    return x


def tiled():
    @T.prim_func
    def tiled(a: T.Buffer((I, K), "float32"), b: T.Buffer((K, J), "float32"), c: T.Buffer((I, J), "float32")):
        T.func_attr({"tirx.noalias": True, "global_symbol": "tiled"})
        for i, j in T.grid(I, J):
            c[i, j] = T.float32(0)
        for io in T.serial(I // 4):
            for jo in T.serial(J // 10):
                for k in T.serial(K):
                    for ii in T.unroll(4):
                        for ji in T.serial(10):
                            c[io * 4 + ii, jo * 10 + ji] = (
                                c[io * 4 + ii, jo * 10 + ji] + a[io * 4 + ii, k] * b[k, jo * 10 + ji]
                            )

    return tiled


def guarded():
    """Returns a function in which a serial loop contains a parallel loop, and an `if` contains
    loops."""

    @T.prim_func
    def guarded(a: T.Buffer((4 * LAUNCHES, K), "float32"), b: T.Buffer((K, J), "float32"), c: T.Buffer((4 * LAUNCHES, J), "float32")):
        T.func_attr({"tirx.noalias": True, "global_symbol": "guarded"})
        for io in T.serial(LAUNCHES):
            for ii in T.parallel(4):
                for j in T.serial(J):
                    c[io * 4 + ii, j] = T.float32(0)
                    for k in T.serial(K):
                        c[io * 4 + ii, j] = c[io * 4 + ii, j] + a[io * 4 + ii, k] * b[k, j]
                if ii > 1:
                    for m in T.serial(J):
                        for n in T.serial(K):
                            c[io * 4 + ii, m] = c[io * 4 + ii, m] * T.float32(0.5) + b[n, m]
                for v in T.vectorized(4):
                    c[io * 4 + ii, v] = c[io * 4 + ii, v] + T.float32(2)
                for one in T.serial(1):
                    c[io * 4 + ii, one] = c[io * 4 + ii, one] * T.float32(2)

    return guarded


def call(executable, name, times=1):
    rows = 4 * LAUNCHES if name == "guarded" else I
    random = np.random.default_rng(18)
    a, b = (random.standard_normal(shape).astype("float32") for shape in ((rows, K), (K, J)))
    a, b = models.tensors([a, b])
    c = tvm.runtime.tensor(np.zeros((rows, J), "float32"))
    module = executable.jit() if hasattr(executable, "jit") else executable
    for _ in range(times):
        module[name](a, b, c)
    return c.numpy().tobytes()


def recorded(run):
    """Calls `run` in a profile, and returns the loops of this profile and the result of `run`. A
    profile needs a virtual machine, so this function makes one that runs nothing."""
    vm = models.machine(models.calls("counterpoint.test.identity"))
    with cp.profile(vm, counters=[], loops=True) as prof:
        result = run()
    return prof.loops(), result


def scheduled(loops):
    """Returns the loops of the schedule. One such loop may have become several loops of the
    report (`ids`). `hits` is the sum of their hits, or None if `ids` is empty."""
    found = []
    for module in loops.document["modules"]:
        hits = {row["id"]: row["hits"] for row in module["rows"]}
        for one in module.get("schedule", ()):
            ids = one["ids"]
            found.append({**one, "hits": sum(hits[i] for i in ids) if ids else None})
    return found


def by_name(loops):
    found = {}
    for one in scheduled(loops):
        found.setdefault(one["variable"], one)
    return found


def test_a_tiled_matmul():
    plain = call(tvm.compile(tiled(), target="llvm"), "tiled")
    with cp.loops(mode="count", **ALL):
        instrumented = tvm.compile(tiled(), target="llvm")
    assert call(instrumented, "tiled") == plain, "nothing records"
    loops, result = recorded(lambda: call(instrumented, "tiled", times=3))
    assert result == call(tvm.compile(tiled(), target="llvm"), "tiled")
    found = by_name(loops)
    expected = {"io": (3, 6, 0), "jo": (3 * 6, 7, 1), "k": (3 * 6 * 7, 300, 2)}
    for name, (hits, extent, depth) in expected.items():
        one = found[name]
        assert (one["hits"], one["extent"], one["depth"]) == (hits, extent, depth), name
        assert (one["kind"], one["state"]) == ("serial", "instrumented")
    assert found["k"]["parent"] is not None
    # TVM unrolled this loop, so its hits are unknown, which is not 0.
    assert (found["ii"]["state"], found["ii"]["ids"], found["ii"]["hits"]) == ("unrolled", [], None)
    assert "unrolled by TVM: tiled:ii (unrolled 4)" in " ".join(str(loops).split())
    row = loops.find("tiled_compute_", "k")
    assert row.hits == 3 * 6 * 7 and row.iterations is not None


@pytest.mark.parametrize("mode", ["sampled", "timed", "count", "log"])
def test_trip_counts_of_a_products_shape(mode):
    """TVM's own schedule of a matrix product has nested loops over rows, columns and depth."""

    class Product(nn.Module):
        def forward(self, x, y):
            return op.matmul(x, y)

    runs, depth = 3, 1 + 4 * 64
    arrays = [np.random.default_rng(8).standard_normal(s).astype("float32") for s in ((I, depth), (depth, J))]
    spec = {name: nn.spec.Tensor(array.shape, "float32") for name, array in zip("xy", arrays)}
    mod, _ = Product().export_tvm(spec={"forward": spec})
    with cp.loops(mode=mode, **ALL):
        executable = tvm.compile(mod, target="llvm")
    vm = relax.VirtualMachine(executable, tvm.cpu())
    with cp.profile(vm, counters=[], loops=True) as prof:
        for _ in range(runs):
            result = vm["forward"](*models.tensors(arrays)).numpy()
    np.testing.assert_allclose(result, arrays[0] @ arrays[1], rtol=1e-3, atol=1e-3)
    loops = prof.loops()
    (module,) = loops.document["modules"]
    rows = {row["id"]: row for row in module["rows"] if row["kind"] == "loop"}
    schedule = module["schedule"]
    assert [(one["extent"], len(one["ids"])) for one in schedule] == [(I, 1), (J, 1), (depth, 1)], schedule
    outer, middle, inner = (rows[one["ids"][0]] for one in schedule)
    assert (middle["parent"], inner["parent"]) == (outer["id"], middle["id"])
    assert [row["hits"] for row in (outer, middle, inner)] == [runs, runs * I, runs * I * J]
    # LLVM moves the first iteration, which sets the sum to 0, out of the innermost loop. Each
    # iteration of the remaining loop adds four terms.
    assert (depth - 1) % 4 == 0
    rounds = (depth - 1) // 4
    iterations = [runs * I, runs * I * J, runs * I * J * rounds]
    assert [row["iterations"] for row in (outer, middle, inner)] == iterations
    if mode == "sampled":
        for row, trips in ((outer, I), (middle, J), (inner, rounds)):
            assert (row["trips"]["least"], row["trips"]["most"]) == (trips, trips), row


def test_parallel_and_conditional_loops():
    plain = call(tvm.compile(guarded(), target="llvm"), "guarded")
    with cp.loops(mode="timed", max_depth=9):
        instrumented = tvm.compile(guarded(), target="llvm")
    loops, result = recorded(lambda: call(instrumented, "guarded"))
    assert result == plain
    found = by_name(loops)
    assert found["io"]["hits"] == 1 and found["io"]["kind"] == "serial"
    # Each task of each launch enters the parallel loop once.
    tasks = found["ii"]["hits"]
    assert found["ii"]["kind"] == "parallel" and tasks >= LAUNCHES and tasks % LAUNCHES == 0
    assert found["ii"]["parent"] is not None
    assert found["j"]["hits"] == LAUNCHES * 4
    assert found["m"]["hits"] == LAUNCHES * 2, "ii is 2 and 3"
    assert found["k"]["state"] == found["n"]["state"] == "left out", "the innermost ones"
    assert (found["v"]["state"], found["v"]["hits"]) == ("vectorized", None)
    assert (found["one"]["state"], found["one"]["hits"]) == ("removed", None)


def test_loops_that_llvm_vectorised():
    @T.prim_func
    def scale(a: T.Buffer((64, 1000), "float32"), c: T.Buffer((64, 1000), "float32")):
        T.func_attr({"tirx.noalias": True, "global_symbol": "scale"})
        for i in T.serial(64):
            for j in T.serial(1000):
                c[i, j] = a[i, j] * T.float32(3) + T.float32(1)

    a = np.random.default_rng(2).standard_normal((64, 1000)).astype("float32")

    def run(executable):
        c = tvm.runtime.tensor(np.zeros((64, 1000), "float32"))
        executable.jit()["scale"](tvm.runtime.tensor(a), c)
        return c.numpy().tobytes()

    plain = run(tvm.compile(scale, target="llvm"))
    with cp.loops(mode="count", **ALL):
        instrumented = tvm.compile(scale, target="llvm")
    loops, result = recorded(lambda: run(instrumented))
    assert result == plain
    found = by_name(loops)
    assert found["i"]["hits"] == 1
    ids = found["j"]["ids"]
    labels = {row["id"]: row["label"] for row in loops.document["modules"][0]["rows"]}
    assert ids and any("vector" in labels[i] for i in ids), labels
    hits = {row["id"]: row["hits"] for row in loops.document["modules"][0]["rows"]}
    assert all(hits[i] == 64 for i in ids)


@pytest.mark.parametrize("exec_mode", ["bytecode", "compiled"])
@pytest.mark.parametrize("name", models.MODELS)
def test_whole_models(name, exec_mode):
    mod, entry, made = models.MODELS[name]()
    arguments = models.tensors(made)
    plain = relax.VirtualMachine(models.executable(mod, mode=exec_mode), tvm.cpu())
    expected = support.flat(plain[entry](*arguments))
    with cp.loops(mode="count"):
        instrumented = models.executable(mod, mode=exec_mode)
    vm = relax.VirtualMachine(instrumented, tvm.cpu())
    assert support.flat(vm[entry](*arguments)) == expected
    with cp.profile(vm, counters=[], loops=True) as prof:
        assert support.flat(vm[entry](*arguments)) == expected
    loops = prof.loops()
    calls = {row.function: row.hits for row in loops if row.kind == "function"}
    checked = 0
    for module in loops.document["modules"]:
        schedule = module["schedule"]
        hits = {row["id"]: row["hits"] for row in module["rows"]}
        for one in schedule:
            if not one["ids"]:
                continue
            assert one["state"] == "instrumented"
            entered = calls[f"{one['function']}_compute_"]
            at = one["parent"]
            while at is not None:
                entered *= schedule[at]["extent"]
                at = schedule[at]["parent"]
            assert sum(hits[i] for i in one["ids"]) == entered, one
            checked += 1
    assert checked, loops


def test_tvms_own_pass_chooses():
    config = {
        "tirx.instrument_lwp": True,
        "s_tir.reset_start_id": True,
        "s_tir.instr_siblings": False,
        "s_tir.lwp_max_depth": 9,
        "s_tir.lwp_min_height": 0,
    }
    plain = call(tvm.compile(guarded(), target="llvm"), "guarded")
    with cp.loops(mode="count"), tvm.transform.PassContext(config=config):
        instrumented = tvm.compile(guarded(), target="llvm")
    loops, result = recorded(lambda: call(instrumented, "guarded"))
    assert result == plain
    found = by_name(loops)
    assert found["io"]["hits"] == 1
    # TVM's pass instruments no loop inside of a parallel loop that is itself inside of another
    # loop.
    assert found["ii"]["state"] == "instrumented"
    assert all(found[name]["state"] == "left out" for name in ("j", "k", "m", "n"))
    with pytest.raises(cp.ArgumentError, match="lets TVM's own pass choose"):
        with cp.loops(max_depth=1), tvm.transform.PassContext(config=config):
            tvm.compile(guarded(), target="llvm")


def test_everything_is_restored_and_the_innermost_context_counts():
    def now():
        return tvm.tirx.build, call(tvm.compile(tiled(), target="llvm"), "tiled")

    before = now()

    def instrumented():
        text = str(tvm.compile(tiled(), target="llvm").jit().inspect_source("ll"))
        return "counterpoint" in text, text.count("cpt.")

    assert not instrumented()[0]
    with cp.loops(max_depth=0):
        outer = instrumented()
        with cp.loops(**ALL):
            inner = instrumented()
        assert instrumented() == outer
        other = []
        thread = threading.Thread(target=lambda: other.append(instrumented()))
        thread.start()
        thread.join()
        assert not other[0][0], "another thread is not affected"
    assert outer[0] and inner[1] > outer[1]
    assert now() == before and not instrumented()[0]
    with pytest.raises(KeyError, match="mine"):
        with cp.loops():
            raise KeyError("mine")
    assert now() == before
    for given, words in (({"mode": "fast"}, "mode= must be"), ({"max_depth": -1}, "max_depth=")):
        with pytest.raises(cp.ArgumentError, match=words):
            with cp.loops(**given):
                raise AssertionError("not reached")
    assert now() == before


def test_a_filter_takes_prim_funcs():
    mod, _, _ = models.MODELS["mlp"]()
    before = mod.script()
    with cp.loops(mode="count", filter="matmul*"):
        instrumented = models.executable(mod)
    assert mod.script() == before, "the caller's module stays as it is"
    vm = relax.VirtualMachine(instrumented, tvm.cpu())
    arguments = models.tensors(models.MODELS["mlp"]()[2])
    with cp.profile(vm, counters=[], loops=True) as prof:
        vm["forward"](*arguments)
    chosen = {one["function"] for one in scheduled(prof.loops()) if one["ids"]}
    assert chosen and all(name.startswith("matmul") for name in chosen)


def test_exported_libraries_in_another_process(tmp_path):
    expected = call(tvm.compile(tiled(), target="llvm"), "tiled").hex()
    with cp.loops(mode="count", **ALL):
        instrumented = tvm.compile(tiled(), target="llvm")
    library, profile = tmp_path / "tiled.so", tmp_path / "p.cpt"
    instrumented.export_library(str(library))
    code = "import sys, tvm, test_tir; print(test_tir.call(tvm.runtime.load_module(sys.argv[1]), 'tiled').hex())"
    path = os.pathsep.join(
        [str(support.places.DIST / "lib/python"), str(support.HERE), str(support.places.HERE)]
    )
    # `code` imports Counterpoint, but it opens no profile.
    assert support.python(code, library).splitlines()[-1] == expected
    words = [support.PROGRAM, "run", "--loops", "-e", "none", "-o", str(profile), "--"]
    printed = support.run([*words, sys.executable, "-c", code, str(library)], PYTHONPATH=path)
    assert printed.splitlines()[-1] == expected
    report = support.run([support.PROGRAM, "loops", "report", str(profile), "--format", "json"])
    modules = json.loads(report)["modules"]
    hits = {row["id"]: row["hits"] for row in modules[0]["rows"]}
    by = {one["variable"]: [hits[i] for i in one["ids"]] for one in modules[0]["schedule"]}
    assert sum(by["io"]) == 1 and sum(by["jo"]) == 6 and sum(by["k"]) == 6 * 7


def test_no_agent_in_the_process(tmp_path):
    """The process that loads the instrumented library has neither Counterpoint's package nor its
    agent."""
    with cp.loops(**ALL):
        instrumented = tvm.compile(tiled(), target="llvm")
    library = tmp_path / "tiled.so"
    instrumented.export_library(str(library))
    code = f"""
import sys, numpy as np, tvm
r = np.random.default_rng(18)
a, b = (tvm.runtime.tensor(r.standard_normal(s).astype("float32")) for s in (({I}, {K}), ({K}, {J})))
c = tvm.runtime.tensor(np.zeros(({I}, {J}), "float32"))
tvm.runtime.load_module(sys.argv[1])["tiled"](a, b, c)
assert not any("counterpoint" in name for name in sys.modules)
assert "libcounterpoint" not in open("/proc/self/maps").read()
print(c.numpy().tobytes().hex())
"""
    printed = support.run([sys.executable, "-c", code, str(library)], PYTHONPATH="")
    assert printed.splitlines()[-1] == call(tvm.compile(tiled(), target="llvm"), "tiled").hex()


def test_all_three_ways_in_agree(tmp_path):
    """The same matrix product is instrumented in three ways: as TIR, as LLVM IR, and in IREE's
    compiler. The matrices are 64 x 64. IREE makes eight tiles of rows, with loops over columns and
    terms in steps of 8 (crates/cli/tests/it/loops_iree.rs), and `mm` has the same loops."""

    @T.prim_func
    def mm(a: T.Buffer((64, 64), "float32"), b: T.Buffer((64, 64), "float32"), c: T.Buffer((64, 64), "float32")):
        T.func_attr({"tirx.noalias": True, "global_symbol": "mm"})
        for w in T.serial(8):
            for jo in T.serial(8):
                for i, j in T.grid(8, 8):
                    c[w * 8 + i, jo * 8 + j] = T.float32(0)
                for ko in T.serial(8):
                    for i, k, j in T.grid(8, 8, 8):
                        c[w * 8 + i, jo * 8 + j] = (
                            c[w * 8 + i, jo * 8 + j] + a[w * 8 + i, ko * 8 + k] * b[ko * 8 + k, jo * 8 + j]
                        )

    a = np.random.default_rng(4).standard_normal((64, 64)).astype("float32")

    def run(executable):
        c = tvm.runtime.tensor(np.zeros((64, 64), "float32"))
        executable.jit()["mm"](tvm.runtime.tensor(a), tvm.runtime.tensor(a), c)
        return c.numpy().tobytes()

    plain = tvm.compile(mm, target="llvm")
    with cp.loops(mode="count", **ALL):
        of_tir = tvm.compile(mm, target="llvm")
    of_text = cp.instrument_module(plain, mode="count", **ALL)
    loops, result = recorded(lambda: run(of_tir))
    assert result == run(plain)
    found = by_name(loops)
    ways = {"tir": [found["jo"]["hits"], found["ko"]["hits"]]}
    loops, result = recorded(lambda: run(of_text))
    assert result == run(plain)
    text = {}
    for row in loops:
        if row.kind == "loop":
            text[row.name] = text.get(row.name, 0) + row.hits
    ways["llvm"] = [text["jo"], text["ko"]]
    if "COUNTERPOINT_VENV" in os.environ:
        ways["mlir"] = of_iree(tmp_path)
    assert all(hits == [8, 64] for hits in ways.values()), ways


MATMUL = """func.func @mm(%lhs: tensor<64x64xf32>, %rhs: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %c0 = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %f = linalg.fill ins(%c0 : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %result = linalg.matmul ins(%lhs, %rhs: tensor<64x64xf32>, tensor<64x64xf32>) outs(%f: tensor<64x64xf32>) -> tensor<64x64xf32>
  return %result: tensor<64x64xf32>
}
"""


def of_iree(folder):
    """Returns the hits of the two loops in IREE's executable."""
    tools = os.path.join(os.environ["COUNTERPOINT_VENV"], "bin")
    model, module, profile = folder / "mm.mlir", folder / "mm.vmfb", folder / "iree.cpt"
    model.write_text(MATMUL)
    path = os.pathsep.join([tools, os.environ["PATH"]])
    flags = ["--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=llvm-cpu"]
    words = [support.PROGRAM, "loops", "compile-iree", str(model), "-o", str(module), "--mode", "count"]
    words += ["--min-height", "0", "--", *flags, "--iree-llvmcpu-target-cpu=x86-64-v3"]
    support.run(words, PATH=path)
    words = [support.PROGRAM, "run", "--loops", "-e", "none", "-o", str(profile), "--"]
    words += [os.path.join(tools, "iree-run-module"), f"--module={module}", "--device=local-task"]
    words += ["--function=mm", "--input=64x64xf32=1", "--input=64x64xf32=1"]
    support.run(words, PATH=path)
    report = support.run([support.PROGRAM, "loops", "report", str(profile), "--format", "json"])
    rows = [row for module in json.loads(report)["modules"] for row in module["rows"]]
    return [row["hits"] for row in rows if row["kind"] == "loop"]
