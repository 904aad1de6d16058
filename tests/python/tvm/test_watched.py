"""Tests a profile with a budget, in which some runs are not watched: nothing records the single ops of such a run. The
ops are counted nevertheless: a run is unwatched only if each run of its function makes the same calls
(docs/sampling.md)."""

import os
from collections import Counter

import counterpoint.tvm as cp
import models
import numpy as np
import pytest
import support
import tvm
from counterpoint.tvm import _fixed
from test_budget import counts
from tvm import relax

RUNS = 3_000
OPS = 40


def op_of(name, function):
    tvm.register_global_func(name, function, override=True)
    return name


# Packed ops of these models call this native function, which returns its argument.
SAME = "testing.echo"


def many_small_ops():
    """Returns a virtual machine and its arguments. The ops do nothing, so that watching a run costs
    much more than the run itself."""
    vm = models.machine(models.calls(*[SAME] * OPS))
    return vm, models.tensors([np.ones((2, 2), "float32")])


def branching():
    """Returns a module whose function `main` calls one op: once, or twice if its second argument is
    true."""
    info = models.TENSOR((2, 2), "float32")
    builder = relax.BlockBuilder()
    x, twice = relax.Var("x", info), relax.Var("twice", models.TENSOR((), "bool"))
    result = {models.RESULT: info}
    with builder.function("main", [x, twice], pure=False):
        once = builder.emit(relax.call_pure_packed(SAME, x, **result))
        again = relax.Var("again", info)
        then = relax.SeqExpr(
            [relax.BindingBlock([relax.VarBinding(again, relax.call_pure_packed(SAME, once, **result))])], again
        )
        other = relax.Var("other", info)
        otherwise = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(other, once)])], other)
        builder.emit_func_output(builder.emit(relax.If(twice, then, otherwise)))
    return builder.finalize()


def losses(prof):
    return {loss.name: loss.count for loss in prof.report().losses}


def test_which_functions_make_the_same_calls_in_each_run():
    assert _fixed.functions(models.executable(models.calls(SAME, SAME))) == {"main"}
    assert _fixed.functions(models.executable(branching())) == frozenset()
    # The argument's shape is known only at run time.
    n = tvm.tirx.Var("n", "int64")
    info = models.TENSOR((n, 2), "float32")
    builder = relax.BlockBuilder()
    x = relax.Var("x", info)
    with builder.function("main", [x], pure=False):
        sum = builder.emit(relax.op.add(x, x))
        builder.emit_func_output(sum)
    assert _fixed.functions(models.executable(builder.finalize())) == frozenset()
    # A function that calls a function with a branch does not always make the same calls.
    text = "@a:\n  call  b  in: %0  dst: %1\n  ret   %1\n\n@b:\n  if %0 1 2\n  ret %0\n\n@c:\n  call  k  in: %0  dst: %1\n  ret   %1\n\n@k packed_func;\n"
    assert _fixed._of_text(text) == {"c"}
    assert _fixed._of_text("something else") == frozenset()
    assert _fixed.functions(object()) == frozenset()


@pytest.mark.parametrize("budget", ["1%", "5%", 0])
def test_the_ops_of_all_runs_are_counted(budget, tmp_path):
    vm, args = many_small_ops()
    seen, expected = support.independent(vm, "main", args)
    with cp.profile(vm, counters=[], budget=budget, output=tmp_path / "p.cpt") as prof:
        main = vm["main"]
        for _ in range(RUNS):
            result = main(*args)
    assert support.flat(result) == expected
    found = counts(tmp_path / "p.cpt")
    assert found["main"] == RUNS
    for name in {name for name, _ in seen}:
        assert found[name] == RUNS * sum(n for (of, _), n in seen.items() if of == name), name
    assert losses(prof) == {}
    rows = support.ops(prof.report(all=True))
    if budget == 0:
        assert rows == []
    else:
        assert 0 < len(rows) < RUNS * OPS and all(row["Weight"].value >= 1 for row in rows)


def test_a_run_that_fails_while_it_is_not_watched_is_a_loss(tmp_path):
    calls, failing = [0], [False]

    def sometimes(x):
        calls[0] += 1
        if failing[0]:
            raise ValueError("as asked")
        return x

    vm = models.machine(models.calls(*[SAME] * OPS, op_of("counterpoint.sometimes", sometimes), SAME))
    args = models.tensors([np.ones((2, 2), "float32")])
    failed = 0
    with cp.profile(vm, counters=[], budget=0, output=tmp_path / "p.cpt") as prof:
        main = vm["main"]
        for n in range(RUNS):
            failing[0] = n % 10 == 9
            try:
                main(*args)
            except ValueError:
                failed += 1
    assert failed == RUNS // 10
    found = counts(tmp_path / "p.cpt")
    assert found["main"] == RUNS
    lost = losses(prof)
    # Most of the failed runs were not watched, so they are losses. In the failed runs that were
    # watched, exactly the ops up to and including the one that threw are counted.
    assert set(lost) == {"runs_unlike"} and RUNS // 20 < lost["runs_unlike"] <= failed
    assert found["counterpoint.sometimes"] == RUNS - lost["runs_unlike"]
    assert found[SAME] == (RUNS - failed) * (OPS + 1) + (failed - lost["runs_unlike"]) * OPS


def test_a_function_that_makes_other_calls_is_watched_from_then_on(tmp_path):
    # The model's Python function runs another machine a varying number of times.
    again = [0]

    def nested(x):
        for _ in range(again[0]):
            inner(x)
        return x

    vm = models.machine(
        models.calls(*[SAME] * OPS, op_of("counterpoint.nested", nested))
    )
    args = models.tensors([np.ones((2, 2), "float32")])
    other = models.machine(models.calls(SAME, SAME))
    with cp.profile({"outer": vm, "inner": other}, counters=[], budget=0, output=tmp_path / "p.cpt") as prof:
        main, inner = vm["main"], other["main"]
        for n in range(RUNS):
            again[0] = n % 3
            main(*args)
    # The inner machine's runs are counted, whether the outer run was watched or not.
    inner_runs = sum(n % 3 for n in range(RUNS))
    found = counts(tmp_path / "p.cpt")
    assert found["main"] == RUNS + inner_runs
    assert found["counterpoint.nested"] == RUNS
    assert found[SAME] == RUNS * OPS + 2 * inner_runs
    assert losses(prof) == {}


def test_calls_that_do_not_come_through_the_wrapper_are_seen(tmp_path):
    vm, args = many_small_ops()
    before = vm["main"]
    with cp.profile(vm, counters=[], budget=0, output=tmp_path / "p.cpt") as prof:
        main = vm["main"]
        for _ in range(RUNS):
            main(*args)
            before(*args)
    found = counts(tmp_path / "p.cpt")
    assert (found["main"], found[SAME]) == (RUNS, 2 * RUNS * OPS)
    assert losses(prof) == {}


def test_the_instrument_of_a_user_is_called_for_each_op():
    seen = Counter()

    def instrument(function, name, before, result, *arguments):
        seen[before] += 1
        return 0

    vm, args = many_small_ops()
    with cp.profile(vm, counters=[], budget=0):
        main = vm["main"]
        for _ in range(50):
            main(*args)
        vm.set_instrument(instrument)
        for _ in range(50):
            main(*args)
        assert seen[True] == seen[False] and seen[True] >= 50 * OPS
        vm.set_instrument(None)
        had = seen[True]
        for _ in range(50):
            main(*args)
        assert seen[True] == had
    main = vm["main"]
    main(*args)
    assert seen[True] == had


def test_a_model_with_branches_is_always_watched(tmp_path):
    vm = models.machine(branching())
    x = tvm.runtime.tensor(np.ones((2, 2), "float32"))
    flags = [tvm.runtime.tensor(np.array(flag)) for flag in (False, True)]
    with cp.profile(vm, counters=[], budget=0, output=tmp_path / "p.cpt") as prof:
        main = vm["main"]
        for n in range(300):
            main(x, flags[n % 2])
    assert counts(tmp_path / "p.cpt")[SAME] == 150 + 300
    assert losses(prof) == {}


def test_parallel_regions_keep_their_op(tmp_path):
    # Runs with parallel regions are watched, so that each task is assigned to its op.
    vm = models.machine(models.touching(1))
    memory = tvm.runtime.tensor(np.zeros(2 * 4096, "uint8"))
    with cp.profile(vm, counters=[], budget="1%", output=tmp_path / "p.cpt"):
        main = vm["main"]
        for _ in range(200):
            main(memory)
    found = counts(tmp_path / "p.cpt")
    assert "(outside of ops)" not in found
    assert found["main"] == 200


def test_a_child_that_is_forked_in_a_run_that_is_not_watched(tmp_path):
    """The child finishes the run without the recorder. Then both processes run the model."""
    children = []
    fork = [False]

    def forking(x):
        if fork[0]:
            fork[0] = False
            child = os.fork()
            if child == 0:
                children.append(os.getpid())
            else:
                children.append(-child)
        return x

    vm = models.machine(models.calls(*[SAME] * OPS, op_of("counterpoint.forking", forking)))
    args = models.tensors([np.ones((2, 2), "float32")])
    with cp.profile(vm, counters=[], budget=0, output=tmp_path / "p.cpt") as prof:
        main = vm["main"]
        for n in range(RUNS):
            fork[0] = n == RUNS // 2
            main(*args)
            if children and children[0] > 0:
                for _ in range(100):
                    main(*args)
                os._exit(7)
    _, status = os.waitpid(-children[0], 0)
    assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 7
    found = counts(tmp_path / "p.cpt")
    assert (found["main"], found[SAME]) == (RUNS, RUNS * OPS)
    assert losses(prof) == {}


def test_a_profile_that_ends_inside_of_a_run_that_is_not_watched(tmp_path):
    runs, close = [0], [None]

    def ending(x):
        if runs[0] == RUNS // 2:
            close[0].__exit__(None, None, None)
        return x

    vm = models.machine(models.calls(*[SAME] * OPS, op_of("counterpoint.ending", ending), SAME))
    args = models.tensors([np.ones((2, 2), "float32")])
    seen, expected = support.independent(vm, "main", args)
    prof = cp.profile(vm, counters=[], budget=0, output=tmp_path / "p.cpt")
    close[0] = prof.__enter__()
    main = vm["main"]
    for runs[0] in range(RUNS):
        result = main(*args)
    assert support.flat(result) == expected
    # The run in which the profile ended is counted only as far as it was watched.
    found = counts(tmp_path / "p.cpt")
    assert RUNS // 2 <= found["main"] <= RUNS // 2 + 1
    assert found[SAME] - RUNS // 2 * (OPS + 1) in range(OPS + 2)
    # The machine no longer has Counterpoint's instrument.
    again, _ = support.independent(vm, "main", args)
    assert again == seen
    with cp.profile(vm, counters=[], budget=0, output=tmp_path / "q.cpt"):
        main = vm["main"]
        for runs[0] in range(RUNS + 1, RUNS + 101):
            main(*args)
    assert counts(tmp_path / "q.cpt")[SAME] == 100 * (OPS + 1)


def test_machines_on_two_threads(tmp_path):
    import threading

    machines = [many_small_ops() for _ in range(2)]

    def work(vm, args):
        main = vm["main"]
        for _ in range(RUNS):
            main(*args)

    vms = [vm for vm, _ in machines]
    with cp.profile(vms, counters=[], budget="2%", output=tmp_path / "p.cpt") as prof:
        threads = [threading.Thread(target=work, args=machine) for machine in machines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = counts(tmp_path / "p.cpt")
    assert (found["main"], found[SAME]) == (2 * RUNS, 2 * RUNS * OPS)
    assert losses(prof) == {}
