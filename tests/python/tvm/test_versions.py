"""Tests what must hold with every supported version of TVM. The tests run once in the environment of each version."""

import csv
import io
import json
import os
import sys
import threading

import counterpoint.tvm as cp
import support
import models
import pytest
import tvm
from tvm import relax


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", models.MODELS)
def test_report_of_a_model(name, fused):
    mod, entry, arrays = models.MODELS[name]()
    args = models.tensors(arrays)
    vm = models.machine(mod, fused=fused)
    expected, result = support.independent(vm, entry, args)
    with cp.profile(vm, counters=["page-faults", "task-clock"]) as prof:
        profiled = vm[entry](*args)
    report = prof.report(all=True)
    assert support.flat(profiled) == result, "bitwise equal"
    assert support.counted(report) == expected
    support.assert_sums_to_the_wall_time(report)
    assert not report.losses
    # The folded report has one row for all book-keeping ops, but the same total time and number of
    # calls.
    folded = prof.report()
    support.assert_sums_to_the_wall_time(folded)
    assert sum(r["Count"].value for r in folded.calls) == sum(r["Count"].value for r in report.calls)
    book_keeping = [r for r in folded.calls if r["Name"].string.startswith("vm.builtin.")]
    assert [r["Name"].string for r in book_keeping] == ["vm.builtin.*"]
    for counter in ("page-faults", "task-clock"):
        rows = [row[counter] for row in report.calls if counter in row]
        assert None not in rows
        total = float(report.device_metrics["cpu0"][counter])
        assert float(sum(map(float, rows))) == pytest.approx(total, rel=1e-9)
    # The row of the entry function includes what book-keeping ops counted, and their own rows have
    # no counters.
    for rows in (report.calls, folded.calls):
        book_keeping = [r for r in rows if r["Name"].string.startswith("vm.builtin.")]
        assert book_keeping and not any("page-faults" in r or "task-clock" in r for r in book_keeping)
    assert sum(r["Bytes Allocated"].value for r in report.calls if "Bytes Allocated" in r) > 0
    again, result_again = support.independent(vm, entry, args)
    assert again == expected and result_again == result


@pytest.mark.parametrize("bookkeeping", [False, True])
def test_book_keeping_is_counted_where_it_is_asked_for(bookkeeping):
    """A book-keeping op and another op touch fresh pages."""
    pages = {"vm.builtin.counterpoint_test": 30, "counterpoint.test.touch": 20}

    def touching(count):
        def touch(x):
            support.touch(count)
            return x

        return touch

    for name, count in pages.items():
        tvm.register_global_func(name, touching(count), override=True)
    vm = models.machine(models.calls(*pages))
    (x,) = models.tensors([models.np.zeros((2, 2), "float32")])
    vm["main"](x)
    with cp.profile(vm, counters=["page-faults:u"], bookkeeping=bookkeeping) as prof:
        vm["main"](x)
    report = prof.report(all=True)
    rows = {row["Name"].string: row for row in report.calls}
    found = {name: rows[name].get("page-faults:u") for name in [*pages, "(entry function)"]}
    own = found["(entry function)"].value
    # Python itself touches a few pages to call one of its functions.
    assert pages["counterpoint.test.touch"] <= found["counterpoint.test.touch"].value < 30
    if bookkeeping:
        assert 30 <= found["vm.builtin.counterpoint_test"].value < 40 and own < 10
    else:
        assert found["vm.builtin.counterpoint_test"] is None and 30 <= own < 50
    total = report.device_metrics["cpu0"]["page-faults:u"].value
    assert total == sum(row["page-faults:u"].value for row in report.calls if "page-faults:u" in row)
    # If book-keeping ops are not counted, their value is absent in every format, and not 0.
    (line,) = [row for row in csv.DictReader(io.StringIO(report.csv())) if "counterpoint_test" in row["Name"]]
    assert line["page-faults:u"] == (str(found["vm.builtin.counterpoint_test"]) if bookkeeping else "")
    document = json.loads(support.run([support.PROGRAM, "ops", prof.path, "--format", "json", "--all"]))
    (op,) = [op for op in document["ops"] if "counterpoint_test" in op["name"]]
    assert (op["counters"]["page-faults:u"] is not None) == bookkeeping
    assert not report.losses


def test_exported_and_loaded_again(tmp_path):
    mod, entry, arrays = models.MODELS["mlp"]()
    args = models.tensors(arrays)
    executable = models.executable(mod)
    library = str(tmp_path / "mlp.so")
    executable.export_library(library)
    seen = []
    for module in (executable, tvm.runtime.load_module(library)):
        vm = relax.VirtualMachine(module, tvm.cpu())
        with cp.profile(vm, counters=[]) as prof:
            result = vm[entry](*args)
        report = prof.report(all=True)
        about = ("Name", "Device", "Argument Shapes", "Bytes Allocated")
        seen.append([tuple(row.get(c) for c in about) for row in support.ops(report)])
        seen.append(support.flat(result))
        assert not report.losses
    assert seen[0] == seen[2] and seen[1] == seen[3]


def test_users_instrument_is_called_and_stays():
    mod, entry, arrays = models.MODELS["mlp"]()
    args = models.tensors(arrays)
    vm = models.machine(mod)
    seen = []

    def instrument(function, name, before, result, *arguments):
        seen.append((str(name), bool(before)))
        return 0

    vm.set_instrument(instrument)
    vm[entry](*args)
    alone = list(seen)
    seen.clear()
    with cp.profile(vm, counters=[]) as prof:
        vm[entry](*args)
    assert seen == alone
    assert len(support.ops(prof.report(all=True))) * 2 == len(alone)
    seen.clear()
    vm[entry](*args)
    assert seen == alone
    # Counterpoint's instrument calls an instrument that the user sets while the profile is open.
    vm.set_instrument(None)
    seen.clear()
    with cp.profile(vm, counters=[]) as prof:
        vm.set_instrument(instrument)
        vm[entry](*args)
    assert seen == alone and len(support.ops(prof.report(all=True))) * 2 == len(alone)
    seen.clear()
    vm[entry](*args)
    assert seen == alone


def test_two_threads_two_machines():
    made = {}
    for name in ("mlp", "cnn"):
        mod, entry, arrays = models.MODELS[name]()
        vm = models.machine(mod)
        args = models.tensors(arrays)
        made[name] = (vm, entry, args, *support.independent(vm, entry, args))
    results = {}

    def work(name):
        vm, entry, args, _, _ = made[name]
        results[name] = [support.flat(vm[entry](*args)) for _ in range(5)]

    with cp.profile({name: made[name][0] for name in made}, counters=["page-faults"]) as prof:
        threads = [threading.Thread(target=work, args=(name,)) for name in made]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    report = prof.report(all=True)
    expected = {}
    for name in made:
        assert results[name] == [made[name][4]] * 5
        for key, count in made[name][3].items():
            expected[key] = expected.get(key, 0) + 5 * count
    assert support.counted(report) == expected
    assert report.device_metrics["cpu0"]["Count"].value == 10
    support.assert_sums_to_the_wall_time(report)
    assert not report.losses


def test_an_op_that_throws():
    broken = [True]

    def fail(x):
        if broken:
            raise ValueError("as it is meant to")
        return x

    tvm.register_global_func("counterpoint.test.fail", fail, override=True)
    vm = models.machine(models.calls("counterpoint.test.fail"))
    (x,) = models.tensors([models.np.zeros((2, 2), "float32")])
    with pytest.raises(ValueError, match="as it is meant to"):
        with cp.profile(vm, counters=[]) as prof:
            vm["main"](x)
    report = prof.report(all=True)
    assert "counterpoint.test.fail" not in [row["Name"].string for row in report.calls]
    assert report.notes == ["1 of 1 runs ended with an error: counterpoint.test.fail threw"]
    words = [support.PROGRAM, "ops", prof.path]
    assert "1 failed (counterpoint.test.fail threw)" in support.run(words)
    broken.clear()
    with cp.profile(vm, counters=[]) as prof:
        vm["main"](x)
    report = prof.report(all=True)
    support.assert_sums_to_the_wall_time(report)
    assert not report.notes


def test_compiled_mode_says_so():
    mod, entry, arrays = models.MODELS["mlp"]()
    vm = models.machine(mod, mode="compiled")
    with cp.profile(vm, counters=[]) as prof:
        vm[entry](*models.tensors(arrays))
    report = prof.report()
    assert any("compiled" in note and "loops" in note for note in report.notes)
    support.assert_sums_to_the_wall_time(report)


HOOKED = """
import os, sys
import models, tvm
mod, entry, arrays = models.MODELS["mlp"]()
vm = models.machine(mod)
result = vm[entry](*models.tensors(arrays))
import support
print(support.flat(result)[0].hex())
"""


def test_counterpoint_run_needs_no_change(tmp_path):
    profile = str(tmp_path / "run.cpt")
    bare = support.python(HOOKED)
    words = [support.PROGRAM, "run", "-e", "page-faults", "-o", profile, "--", sys.executable, "-c", HOOKED]
    # `counterpoint run` adds the folder of Counterpoint's package to the program's PYTHONPATH, so
    # this value does not have it.
    assert support.run(words, PYTHONPATH=os.pathsep.join([str(support.HERE), str(support.places.HERE)])) == bare
    document = json.loads(support.run([support.PROGRAM, "ops", profile, "--format", "json", "--all"]))
    mod, entry, arrays = models.MODELS["mlp"]()
    expected, _ = support.independent(models.machine(mod), entry, models.tensors(arrays))
    assert [run["function"] for run in document["runs"]] == [entry]
    found = {}
    for op in document["ops"]:
        key = (op["name"], op["arguments"])
        found[key] = found.get(key, 0) + 1
        assert op["run"] is not None
    assert found == expected
    assert "matmul" in support.run([support.PROGRAM, "report", profile])


def test_a_forked_child_has_profiles_of_its_own():
    mod, entry, arrays = models.MODELS["mlp"]()
    args = models.tensors(arrays)
    vm = models.machine(mod)
    expected, _ = support.independent(vm, entry, args)
    with cp.profile(vm, counters=[]) as prof:
        vm[entry](*args)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                # TVM's thread pool does not survive a fork, so nothing may use it here.
                with cp.profile(vm, counters=[]) as own:
                    pass
                status = 0 if own.report().calls == [] else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        vm[entry](*args)
    assert support.counted(prof.report(all=True)) == {key: 2 * n for key, n in expected.items()}


def test_fresh_pages_are_counted_exactly_on_caller_and_worker():
    pages = 37
    vm = models.machine(models.touching(pages))
    vm["main"](support.fresh(2 * pages * 4096))  # Threads of the pool start.
    with cp.profile(vm, counters=["page-faults:u"]) as prof:
        vm["main"](support.fresh(2 * pages * 4096))
        vm["main"](support.fresh(2 * pages * 4096))
    report = prof.report()
    rows = [row for row in support.ops(report) if row["Name"].string == "touch"]
    assert [row["Tasks"].value for row in rows] == [2, 2]
    both = [(row["page-faults:u"].value, row["page-faults:u (workers)"].value) for row in rows]
    # One task ran on the calling thread, and one on a worker.
    assert both == [(2 * pages, pages)] * 2
    assert not report.losses


def test_profile_function():
    mod, entry, arrays = models.MODELS["mlp"]()
    args = models.tensors(arrays)
    vm = models.machine(mod)
    collector = cp.PAPIMetricCollector({tvm.cpu(): ["page-faults"]})
    metrics = cp.profile_function(vm.module, tvm.cpu(), [collector], entry, warmup_iters=1)(*args)
    assert metrics["Duration (us)"].microseconds > 0
    assert isinstance(metrics["page-faults"], cp.Count)


@pytest.mark.parametrize("mode", ["sampled", "timed", "count", "log"])
def test_instrumented_loops_count_and_the_process_ends_as_it_should(mode):
    """Freeing the code that TVM's JIT compiled must not crash the process."""
    code = f"""
import test_loops, counterpoint.tvm as cp
plain = test_loops.nest()
expected = test_loops.run_nest(plain)
loops, found = test_loops.in_session(
    cp.instrument_module(plain, mode={mode!r}, min_height=0), test_loops.run_nest)
assert found.tobytes() == expected.tobytes()
print([row.hits for row in loops if row.kind == "loop" and row.hits])
"""
    hits = json.loads(support.python(code))
    assert hits == [1, 20, 20 * 70]
