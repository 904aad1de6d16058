"""Tests measurements of loops in modules that TVM compiled. Counterpoint instruments a module's LLVM IR as text, and
TVM's own LLVM compiles the result."""

import json
import os
import sys

import models
import numpy as np
import pytest
import support
import tvm
from tvm import relax
from tvm.script import tirx as T

import counterpoint.tvm as cp

MODES = ["sampled", "timed", "count", "log"]
# The loop nest has I rows, J columns and sums of K terms. LLVM does not reorder sums of floats, so
# it does not split the innermost loop into a vectorized loop and a rest. None of the loops is short
# enough to be unrolled completely.
I, J, K = 20, 70, 300


def nest():
    """Returns a module with three nested loops. How often each loop is entered (its hits) can be
    computed by hand."""

    @T.prim_func
    def nest(a: T.Buffer((I, K), "float32"), b: T.Buffer((K, J), "float32"), c: T.Buffer((I, J), "float32")):
        T.func_attr({"tirx.noalias": True, "global_symbol": "nest"})
        for i in T.serial(I):
            for j in T.serial(J):
                c[i, j] = T.float32(0)
                for k in T.serial(K):
                    c[i, j] = c[i, j] + a[i, k] * b[k, j]

    return tvm.compile(nest, target="llvm")


def arrays():
    random = np.random.default_rng(15)
    return [random.standard_normal(shape).astype("float32") for shape in ((I, K), (K, J))]


def run_nest(executable, times=1):
    a, b = models.tensors(arrays())
    c = tvm.runtime.tensor(np.zeros((I, J), "float32"))
    function = executable.jit()["nest"] if hasattr(executable, "jit") else executable["nest"]
    for _ in range(times):
        function(a, b, c)
    return c.numpy()


def in_session(instrumented, call, **options):
    """Runs `call` in a profile, and returns the loops of this profile and the result of `call`. A
    profile needs a virtual machine, so this function makes one that runs nothing."""
    vm = models.machine(models.calls("counterpoint.test.nothing"))
    with cp.profile(vm, counters=[], loops=True, **options) as prof:
        result = call(instrumented)
    return prof.loops(), result


@tvm.register_global_func("counterpoint.test.nothing", override=True)
def nothing(x):
    return x


@pytest.mark.parametrize("mode", MODES)
def test_hits_are_trip_counts_and_results_are_the_same(mode):
    plain = nest()
    expected = run_nest(plain)
    instrumented = cp.instrument_module(plain, mode=mode, min_height=0)
    assert type(instrumented) is type(plain) and instrumented is not plain
    # No session records here.
    assert run_nest(instrumented).tobytes() == expected.tobytes()
    loops, found = in_session(instrumented, lambda ex: run_nest(ex, times=3))
    assert found.tobytes() == expected.tobytes()
    rows = {row.depth: row for row in loops if row.kind == "loop" and row.hits}
    assert [rows[depth].hits for depth in (0, 1, 2)] == [3, 3 * I, 3 * I * J]
    assert rows[2].parent == rows[1].id and rows[1].parent == rows[0].id
    functions = [row for row in loops if row.kind == "function" and row.hits]
    assert {row.hits for row in functions} == {3}
    assert loops.find("nest_compute_").hits == 3
    assert loops.find("nest_compute_", rows[2].name) == rows[2]
    with pytest.raises(LookupError, match="no loops are called nest_compute_:z"):
        loops.find("nest_compute_", "z")
    if mode == "count":
        assert all(row.inclusive_ns is None and row.timed_hits is None for row in rows.values())
    else:
        assert rows[0].inclusive_ns > 0 and rows[1].share <= 1.1
    if mode == "timed":
        document = {row["id"]: row for module in loops.document["modules"] for row in module["rows"]}
        for row in rows.values():
            raw = document[row.id]
            assert raw["child_ticks"] + raw["raw"]["self"]["ticks"] == raw["measured_ticks"]
    # The original module counts nothing.
    again, _ = in_session(plain, run_nest)
    assert not any(row.hits for row in again)


# All combinations of models, modes and kinds of executables would take minutes.
WHOLE = [
    *(("cnn", mode, "bytecode") for mode in MODES),
    ("mlp", "sampled", "compiled"),
    ("mlp", "log", "compiled"),
    ("transformer", "sampled", "bytecode"),
    ("transformer_separate", "timed", "bytecode"),
]


@pytest.mark.parametrize("name,mode,exec_mode", WHOLE)
def test_whole_models_give_the_same_bytes(name, mode, exec_mode):
    mod, entry, made = models.MODELS[name]()
    executable = models.executable(mod, mode=exec_mode)
    arguments = models.tensors(made)
    expected = support.flat(relax.VirtualMachine(executable, tvm.cpu())[entry](*arguments))
    instrumented = cp.instrument_module(executable, mode=mode)
    vm = relax.VirtualMachine(instrumented, tvm.cpu())
    assert support.flat(vm[entry](*arguments)) == expected
    with cp.profile(vm, counters=[], loops=True) as prof:
        assert support.flat(vm[entry](*arguments)) == expected
    loops = prof.loops()
    # If an op has a compiled function `OP_compute_`, this function was entered as often as the
    # virtual machine called the op.
    entered = {row.function: row.hits for row in loops if row.kind == "function" and row.hits}
    assert entered
    if exec_mode == "bytecode":
        ops = support.counted(prof.report())
        called = {}
        for (op, _), count in ops.items():
            called[op] = called.get(op, 0) + count
        inside = {op: entered.get(f"{op}_compute_") for op in called}
        matched = {op: hits for op, hits in inside.items() if hits is not None}
        assert matched and all(called[op] == hits for op, hits in matched.items())
    assert "matmul" in str(loops)


def test_parallel_loops_count_for_each_thread():
    """Each of the two parallel tasks enters the outer loop once, and both together enter the inner
    loop 64 times."""

    @T.prim_func
    def rows(a: T.Buffer((64, K), "float32"), c: T.Buffer((64,), "float32")):
        T.func_attr({"tirx.noalias": True, "global_symbol": "rows"})
        for i in T.parallel(64):
            c[i] = T.float32(0)
            for k in T.serial(K):
                c[i] = c[i] + a[i, k]

    plain = tvm.compile(rows, target="llvm")
    a = np.random.default_rng(1).standard_normal((64, K)).astype("float32")

    def call(executable):
        c = tvm.runtime.tensor(np.zeros(64, "float32"))
        executable.jit()["rows"](tvm.runtime.tensor(a), c)
        return c.numpy()

    expected = call(plain)
    instrumented = cp.instrument_module(plain, mode="count", min_height=0)
    loops, found = in_session(instrumented, call)
    assert found.tobytes() == expected.tobytes()
    inner = [row for row in loops if row.kind == "loop" and row.hits == 64]
    outer = [row for row in loops if row.kind == "loop" and row.hits == 2]
    assert inner and outer, str(loops)
    assert inner[0].threads == 2


def test_exported_libraries_and_runs(tmp_path):
    """An instrumented model is exported as a library, which a program under `counterpoint run`
    loads."""
    mod, entry, made = models.MODELS["mlp"]()
    instrumented = cp.instrument_module(models.executable(mod), mode="count")
    library, profile = tmp_path / "model.so", tmp_path / "p.cpt"
    instrumented.export_library(str(library))
    code = """
import sys, numpy as np, tvm, models
from tvm import relax
_, entry, made = models.MODELS["mlp"]()
vm = relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())
print(vm[entry](*models.tensors(made)).numpy().tobytes().hex())
"""
    plain = support.python(code, library)
    words = [support.PROGRAM, "run", "--loops", "-e", "none", "-o", str(profile), "--"]
    path = os.pathsep.join([str(support.places.DIST / "lib/python"), str(support.HERE)])
    recorded = support.run([*words, sys.executable, "-c", code, str(library)], PYTHONPATH=path)
    assert recorded.splitlines()[-1] == plain.splitlines()[-1]
    document = json.loads(
        support.run([support.PROGRAM, "loops", "report", str(profile), "--format", "json"])
    )
    rows = [row for module in document["modules"] for row in module["rows"]]
    assert any(row["hits"] for row in rows)


def test_loops_are_below_their_ops_in_the_tree_of_a_report(tmp_path):
    """If an op is called in only one place, its loops are below it in the tree."""
    profile, script = tmp_path / "p.cpt", support.places.ROOT / "fixtures/readme/matmul.py"
    words = [support.PROGRAM, "run", "--loops", "-e", "none", "-o", str(profile), "--"]
    path = str(support.places.DIST / "lib/python")
    # Without -P, Python would import the folder `torch` next to the script as PyTorch.
    support.run([*words, sys.executable, "-P", str(script)], PYTHONPATH=path)
    tree = [support.PROGRAM, "report", "--tree", "--format", "json", str(profile)]
    rows = json.loads(support.run(tree))["rows"]
    above = {row["name"]: rows[row["parent"]] for row in rows if row["parent"] is not None}
    assert (above["matmul_compute_"]["kind"], above["matmul_compute_"]["name"]) == ("op", "matmul"), rows
    assert above["k"]["name"] == "i1", rows
    for row in rows:
        if row["parent"] is not None:
            # The times of an op and of its loops are measured separately, so a loop may seem to
            # take longer than its op.
            assert row["total_ns"] <= 1.05 * rows[row["parent"]]["total_ns"], row


def test_the_code_of_a_jit_is_kept(tmp_path):
    """When the process ends, it frees the memory of the compiled code, but the profile has a copy
    of the code. The machine code of a function or loop has as many loops as its instrumented
    source."""
    instrumented = cp.instrument_module(nest(), mode="timed", min_height=0)
    vm = models.machine(models.calls("counterpoint.test.nothing"))
    profile = tmp_path / "kept.cpt"
    with cp.profile(vm, counters=[], keep_code=True, output=profile):
        run_nest(instrumented)
    words = [support.PROGRAM, "loops", "report", str(profile), "--asm", "--source", "--format", "json"]
    (module,) = json.loads(support.run(words))["modules"]
    assert module["code"]["kept"] and module["code"]["object"] is None
    rows = {row["id"]: row for row in module["rows"] if row["hits"]}
    inside = dict.fromkeys(rows, 0)
    for row in rows.values():
        at = row["id"] if row["kind"] == "loop" else None
        while at is not None:
            inside[at] += 1
            at = rows[at]["parent"]
    assert sorted(inside.values()) == [1, 2, 3, 3]
    for row in rows.values():
        assert len(row["code"]["machine_loops"]) == inside[row["id"]], row
        assert row["code"]["instructions"]["hooks"] > 0
    text = {line["line"] for line in module["texts"][0]["lines"]}
    assert all(row["places"][0]["first_line"] in text for row in rows.values())


def test_functions_that_the_code_of_a_jit_calls_are_named(tmp_path):
    """The C library chooses one of several implementations of `expf`, and does not export their
    names. The loop has 6400 iterations, because with vectors of 512 bits, LLVM completely unrolls a
    loop of 64 iterations."""
    N = 6400

    @T.prim_func
    def exponentials(x: T.Buffer((N,), "float32"), y: T.Buffer((N,), "float32")):
        T.func_attr({"tirx.noalias": True, "global_symbol": "exponentials"})
        for i in T.serial(N):
            y[i] = T.exp(x[i])

    plain = tvm.compile(exponentials, target="llvm")
    instrumented = cp.instrument_module(plain, mode="timed", min_height=0)
    vm = models.machine(models.calls("counterpoint.test.nothing"))
    profile = tmp_path / "kept.cpt"
    with cp.profile(vm, counters=[], keep_code=True, output=profile):
        x, y = models.tensors([np.linspace(-1, 1, N, dtype="float32"), np.zeros(N, "float32")])
        function = instrumented.jit()["exponentials"] if hasattr(instrumented, "jit") else instrumented["exponentials"]
        function(x, y)
    assert np.allclose(y.numpy(), np.exp(x.numpy()))
    words = [support.PROGRAM, "loops", "report", str(profile), "--asm", "--format", "json"]
    (module,) = json.loads(support.run(words))["modules"]
    said = [row["code"]["words"] for row in module["rows"] if row["hits"] and row["kind"] == "loop"]
    assert said and all(" of expf" in one and "indirect" not in one for one in said), said


def test_errors_say_what_to_do(tmp_path):
    mod, _, _ = models.MODELS["mlp"]()
    executable = models.executable(mod)
    for given, words in (
        (mod, "is not compiled yet"),
        (relax.VirtualMachine(executable, tvm.cpu()), "make the machine of the result"),
        (17, "not 17"),
    ):
        with pytest.raises(cp.ArgumentError, match=words):
            cp.instrument_module(given)
    for options, words in (
        ({"mode": "fast"}, "mode= must be one of sampled, timed, count, log"),
        ({"max_depth": -1}, "max_depth= must be a whole number"),
        ({"min_height": True}, "min_height= must be a whole number"),
        ({"filter": 7}, "filter= must be a pattern"),
    ):
        with pytest.raises(cp.ArgumentError, match=words):
            cp.instrument_module(executable, **options)
    library = tmp_path / "model.so"
    executable.export_library(str(library))
    with pytest.raises(cp.UnsupportedError, match="before export_library"):
        cp.instrument_module(tvm.runtime.load_module(str(library)))
    vm = relax.VirtualMachine(executable, tvm.cpu())
    with cp.profile(vm, counters=[]) as prof:
        with pytest.raises(cp.CounterpointError, match="after the `with`"):
            prof.loops()
    with pytest.raises(cp.CounterpointError, match="loops=True"):
        prof.loops()


def test_a_missing_function_is_found_before_the_jit_looks_for_it():
    from counterpoint.tvm import _loops

    before = "declare i32 @puts(ptr)\n"
    after = before + "declare extern_weak ptr @dlsym(ptr, ptr)\ndeclare i64 @llvm.readcyclecounter()\n"
    _loops._check_symbols(before, after + "declare void @free(ptr)\n")
    with pytest.raises(cp.UnsupportedError, match="needs the function lwp_handler"):
        _loops._check_symbols(before, after + 'declare void @"lwp_handler"(i32)\n')
