"""Tests the names of collectors' metrics, collectors that fail, and collectors of counters on several devices."""

import warnings

import counterpoint.tvm as cp
import models
import pytest
import support
import tvm


def collecting(metrics, stop=None):

    class Mine(cp.Collector):
        def start(self, device):
            return 1

        def stop(self, state):
            return stop() if stop else {}

    Mine.metrics = metrics
    return Mine()


def columns_of_every_format(prof):
    """Returns the names of all columns in the report, and in the output of `counterpoint ops` and
    `counterpoint export`."""
    report = prof.report(all=True)
    found = {key for row in [*report.calls, *report.device_metrics.values()] for key in row}
    for command in (["ops", "--format", "csv"], ["export", "--format", "csv"]):
        words = [support.PROGRAM, command[0], prof.path, *command[1:]]
        found.update(support.run(words).splitlines()[0].split(","))
    return found


def test_no_metric_takes_the_name_of_a_column_or_counter():
    vm = models.machine(models.touching(3))
    argument = support.fresh(6 * 4096)
    with cp.profile(vm, counters=["page-faults", "task-clock"]) as prof:
        vm["main"](argument)
    columns = columns_of_every_format(prof)
    # No single format has all of these columns.
    assert {"Imbalance", "Tasks", "worst_imbalance", "start_ticks", "task-clock", "page-faults (workers)"} <= columns
    spelled = {name.upper() for name in columns} | {name.replace("_ns", " (ms)") for name in columns}
    counted = {"counters": ["page-faults", "task-clock"]}
    with cp.profile(vm, **counted):
        for name in sorted(columns | spelled | {"Total Duration (us)", "hash", "Timing", "duration"}):
            with pytest.raises(cp.CounterpointError, match="cannot be a metric"):
                cp.profile(vm, **counted, collectors=[collecting({name: cp.Count})]).__enter__()
    # No two metrics may have the same name.
    for metrics in (["hits", "hits"], ["hits (us)", "hits_ns"], ["L2 hits", "l2-hits"]):
        with pytest.raises(cp.CounterpointError, match="another collector"):
            both = [collecting({name: cp.Count}) for name in metrics]
            cp.profile(vm, counters=[], collectors=both).__enter__()
    with pytest.raises(cp.CounterpointError, match="differ only in capitals, separators or units"):
        cp.profile(vm, counters=[], collectors=[collecting({"L2 hits": cp.Count, "l2-hits": cp.Count})]).__enter__()
    # The profiles that could not be opened no longer use the name `hits`, so a new profile can use
    # it. `page-faults` can also be used, because it is not a counter of this profile.
    free = collecting({"page-faults": cp.Count, "hits": cp.Count}, lambda: {"hits": cp.Count(7), "page-faults": cp.Count(8)})
    with cp.profile(vm, counters=["task-clock"], collectors=[free]) as prof:
        vm["main"](argument)
    assert [(row["hits"], row["page-faults"]) for row in support.ops(prof.report()) if row["Name"].string == "touch"] == [
        (cp.Count(7), cp.Count(8))
    ]


def test_a_failing_collector_warns_once_and_its_loss_says_why(mlp):
    vm, entry, args = mlp
    calls = []

    def stop():
        calls.append(1)
        raise RuntimeError(f"first of {'its' if len(calls) == 1 else 'many'} errors")

    with pytest.warns(cp.CounterpointWarning) as told:
        for _ in range(2):
            with cp.profile(vm, counters=[], collectors=[collecting({"n": cp.Count}, stop)]) as prof:
                vm[entry](*args)
            if len(calls) < 100:
                first = prof
            calls[1:] = []
            calls.clear()
    mine = [w for w in told if "collector" in str(w.message)]
    assert [str(w.message) for w in mine] == ["a collector failed: Mine.stop raised RuntimeError: first of its errors"]
    assert mine[0].filename == __file__
    (loss,) = first.report().losses
    assert loss.name == "collector_failed" and loss.count == len(support.ops(first.report(all=True)))
    assert loss.explanation.endswith("; the first error: Mine.stop raised RuntimeError: first of its errors")


def test_where_warnings_are_errors_a_failing_collector_is_one_and_hides_no_other(mlp):
    vm, entry, args = mlp
    def broken(text):
        def stop():
            raise RuntimeError(text)

        return [collecting({"n": cp.Count}, stop)]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(cp.CounterpointWarning, match="an error of its own"):
            with cp.profile(vm, counters=[], collectors=broken("an error of its own")):
                vm[entry](*args)
        with pytest.raises(KeyError, match="the model's"):
            with cp.profile(vm, counters=[], collectors=broken("another of its own")):
                vm[entry](*args)
                raise KeyError("the model's")
    with cp.profile(vm, counters=["page-faults"]) as prof:
        vm[entry](*args)
    assert prof.report().calls


def test_counters_of_another_device_alone_count_nothing_on_the_processor(mlp, monkeypatch):
    vm, entry, args = mlp
    # The environment variable with the processor's default counters has no effect here.
    monkeypatch.setenv("COUNTERPOINT_CPU_METRICS", "page-faults")
    names = {tvm.cuda(): ["cuda:::event:elapsed_cycles_sm:device=0"]}
    with cp.profile(vm, collectors=[cp.CounterCollector(names)]) as prof:
        vm[entry](*args)
    columns = {key for row in prof.report().calls for key in row}
    assert columns == {"Name", "Duration (us)", "Percent", "Device", "Count", "Argument Shapes", "Bytes Allocated"}


def test_a_list_of_devices_is_counted_by_default(mlp, monkeypatch):
    """TVM's former collector also took a list of devices. This machine may have no hardware
    counters, so the environment variable sets the default counters."""
    vm, entry, args = mlp
    monkeypatch.setenv("COUNTERPOINT_CPU_METRICS", "page-faults")

    def columns(devices):
        with cp.profile(vm, collectors=[cp.PAPIMetricCollector(devices)]) as prof:
            vm[entry](*args)
        return {key for row in prof.report().calls for key in row}

    assert "page-faults" in columns([tvm.cpu()])
    assert "page-faults" in columns((tvm.cpu(), tvm.cuda()))
    assert "page-faults" not in columns([tvm.cuda()])


class Huge(cp.Collector):
    metrics = {"n": cp.Count}

    def start(self, device):
        return 1

    def stop(self, state):
        return {"n": cp.Count(2**63)}


def test_a_count_of_more_than_64_bits_is_missing_and_does_not_wrap(mlp):
    vm, entry, args = mlp
    with pytest.warns(cp.CounterpointWarning, match="has more than 64 bits"):
        with cp.profile(vm, counters=[], collectors=[Huge()]) as prof:
            vm[entry](*args)
    report = prof.report(all=True)
    assert [loss.name for loss in report.losses] == ["collector_failed"]
    assert all(row.get("n") is None for row in report.calls)
