"""Tests wrong uses of every public function: the errors have the library's own types, and speak of Python, not of the
command line."""

import re

import counterpoint.tvm as cp
import models
import pytest
import tvm
from tvm import relax

MOD, ENTRY, ARRAYS = models.MODELS["mlp"]()


@pytest.fixture(scope="module")
def made():
    executable = models.executable(MOD)
    return relax.VirtualMachine(executable, tvm.cpu()), executable, models.tensors(ARRAYS)


def collecting(metrics):
    class Mine(cp.Collector):
        def start(self, device):
            return 1

        def stop(self, state):
            return {}

    Mine.metrics = metrics
    return Mine()


def begun(*given, **named):
    cp.profile(*given, **named).__enter__()


# Each wrong use has a pattern for the error's text.
PROFILES = {
    "a number": (lambda vm, ex: cp.profile(3), "relax.VirtualMachine, several .*, not 3$"),
    "nothing": (lambda vm, ex: cp.profile(None), "not None$"),
    "a name": (lambda vm, ex: cp.profile("vm"), "not 'vm'$"),
    "an empty list": (lambda vm, ex: cp.profile([]), "no virtual machine"),
    "an empty mapping": (lambda vm, ex: cp.profile({}), "no virtual machine"),
    "an executable": (lambda vm, ex: cp.profile(ex), "a VMExecutable: make one of it, relax.VirtualMachine"),
    "a module": (lambda vm, ex: cp.profile(vm.module), "make one of it"),
    "a function": (lambda vm, ex: cp.profile(vm[ENTRY]), "not a Function$"),
    "the class": (lambda vm, ex: cp.profile(relax.VirtualMachine), "the class VirtualMachine"),
    "one of two": (lambda vm, ex: cp.profile([vm, 3]), "not 3$"),
    "one of a mapping": (lambda vm, ex: cp.profile({"a": ex}), "VMExecutable"),
    "one twice": (lambda vm, ex: cp.profile([vm, vm]), "the same virtual machine is there twice$"),
    "one by two names": (lambda vm, ex: cp.profile({"a": vm, "b": vm}), "twice as 'a' and as 'b'"),
    "counters: a number": (lambda vm, ex: cp.profile(vm, 3), "counters= must be a list of names, not 3"),
    "counters: of numbers": (lambda vm, ex: cp.profile(vm, [3]), "3 is not a name"),
    "counters: bytes": (lambda vm, ex: cp.profile(vm, [b"x"]), "b'x' is not a name"),
    "counters: a mapping": (lambda vm, ex: cp.profile(vm, {"page-faults": 1}), "not a dict"),
    "counters: no name": (lambda vm, ex: cp.profile(vm, [""]), "'' is not the name of a counter"),
    "counters: a line feed": (lambda vm, ex: cp.profile(vm, ["a\nb"]), r"'a\\nb' is not the name"),
    "counters: unknown": (lambda vm, ex: begun(vm, ["page-fautls"]), '^counters: unknown counter "page-fautls"\nhint: did you mean page-faults'),
    "counters: twice": (lambda vm, ex: begun(vm, ["page-faults"] * 2), "is listed twice"),
    "counters: none and more": (lambda vm, ex: begun(vm, ["none", "page-faults"]), "cannot be combined with counters"),
    "counters: half a group": (lambda vm, ex: begun(vm, ["{page-faults"]), 'expected "," or "}"'),
    "counters: no such PMU": (lambda vm, ex: begun(vm, ["nonesuch/energy/"]), 'no PMU "nonesuch"'),
    "collectors: one": (lambda vm, ex: cp.profile(vm, collectors=collecting({})), "a list of collectors, not a Mine"),
    "collectors: None": (lambda vm, ex: cp.profile(vm, collectors=None), "a list of collectors, not None"),
    "collectors: a class": (lambda vm, ex: cp.profile(vm, collectors=[cp.Collector]), "the class Collector.*parentheses"),
    "collectors: a number": (lambda vm, ex: cp.profile(vm, collectors=[3]), "has 3, which is not a Collector"),
    "collectors: without metrics": (lambda vm, ex: begun(vm, [], collectors=[cp.Collector()]), "Collector.metrics is empty"),
    "metrics: a list": (lambda vm, ex: begun(vm, [], collectors=[collecting(["n"])]), "a mapping from names to kinds"),
    "metrics: a wrong kind": (lambda vm, ex: begun(vm, [], collectors=[collecting({"n": int})]), "one of Count, Duration, .* not the class int"),
    "metrics: a list as kind": (lambda vm, ex: begun(vm, [], collectors=[collecting({"n": []})]), "not a list"),
    "metrics: a number as name": (lambda vm, ex: begun(vm, [], collectors=[collecting({3: cp.Count})]), "3 is not a name"),
    "metrics: no name": (lambda vm, ex: begun(vm, [], collectors=[collecting({"": cp.Count})]), "'' is not a name"),
    "metrics: a unit": (lambda vm, ex: begun(vm, [], collectors=[collecting({"(us)": cp.Count})]), "it is only a unit"),
    "metrics: too many": (lambda vm, ex: begun(vm, [], collectors=[collecting({f"m{i}": cp.Count for i in range(17)})]), "at most 16 metrics together"),
    "CounterCollector: a list": (lambda vm, ex: cp.CounterCollector(["page-faults"]), "a mapping from devices"),
    "CounterCollector: a number": (lambda vm, ex: cp.CounterCollector({3: ["x"]}), "3 is not a device"),
    "CounterCollector: no device": (lambda vm, ex: cp.CounterCollector({"gpu": ["x"]}), "'gpu' is not a device"),
    "CounterCollector: no names": (lambda vm, ex: cp.CounterCollector({tvm.cpu(): 3}), "the counters of cpu must be a list of names, not 3"),
    "PAPIMetricCollector: a list": (lambda vm, ex: cp.PAPIMetricCollector(["PAPI_FP_OPS"]), "^PAPIMetricCollector takes a mapping from devices .* or a list of devices, not a list"),
    "PAPIMetricCollector: numbers": (lambda vm, ex: cp.PAPIMetricCollector([3]), "3 is not a device"),
    "CounterCollector and counters": (lambda vm, ex: cp.profile(vm, ["page-faults"], collectors=[cp.CounterCollector()]), "name all counters in the"),
    "output: a number": (lambda vm, ex: cp.profile(vm, output=3), "the path of a directory, not 3"),
    "output: nothing": (lambda vm, ex: cp.profile(vm, output=""), "the path of a directory, not ''"),
    "output: a zero byte": (lambda vm, ex: cp.profile(vm, output="a\0b"), "the path of a directory"),
    "output: the root": (lambda vm, ex: begun(vm, [], output="/"), "(?s)output /: .*with output=$"),
    "a report before": (lambda vm, ex: cp.profile(vm).report(), "use it in a `with`"),
    "a path before": (lambda vm, ex: cp.profile(vm).path, "use it in a `with`"),
}
FUNCTIONS = {
    "of a number": (lambda vm, ex: cp.profile_function(3, tvm.cpu(), []), "of an executable .* not of 3"),
    "of a function": (lambda vm, ex: cp.profile_function(vm[ENTRY], tvm.cpu(), []), "not of a Function"),
    "without a name": (lambda vm, ex: cp.profile_function(ex, tvm.cpu(), []), "has no function 'main' .func_name= says which"),
    "of a name that is not there": (lambda vm, ex: cp.profile_function(vm, tvm.cpu(), [], "nope"), "has no function 'nope'"),
    "a number as name": (lambda vm, ex: cp.profile_function(vm, tvm.cpu(), [], 3), "the name of a function, not 3"),
    "a number as device": (lambda vm, ex: cp.profile_function(vm, 3, [], ENTRY), "dev= must be a device such as tvm.cpu.., not 3"),
    "a name as device": (lambda vm, ex: cp.profile_function(vm, "cpu", [], ENTRY), "dev= must be a device"),
    "no list of collectors": (lambda vm, ex: cp.profile_function(vm, tvm.cpu(), None, ENTRY), "a list of collectors"),
    "warm for a word": (lambda vm, ex: cp.profile_function(vm, tvm.cpu(), [], ENTRY, "x"), "a number of at least 0, not 'x'"),
    "warm for less than nothing": (lambda vm, ex: cp.profile_function(vm, tvm.cpu(), [], ENTRY, -1), "a number of at least 0, not -1"),
}
REPORTS = {
    "of a number": (lambda vm, ex: cp.Report.from_json(3), "the text of a report, not int"),
    "of nothing": (lambda vm, ex: cp.Report.from_json(None), "NoneType"),
    "of an empty text": (lambda vm, ex: cp.Report.from_json(""), "not a report"),
    "of a list": (lambda vm, ex: cp.Report.from_json("[]"), "not an object"),
}
ALL = {f"{of}: {name}": use for of, uses in (("profile", PROFILES), ("function", FUNCTIONS), ("report", REPORTS)) for name, use in uses.items()}


@pytest.mark.parametrize("name", ALL)
def test_a_wrong_use_is_told_in_our_words(made, name):
    vm, executable, args = made
    use, said = ALL[name]
    with pytest.raises(cp.CounterpointError, match=said) as caught:
        use(vm, executable)
    text = str(caught.value)
    # A message may name options of the command line only inside of a command that the user should
    # type, which has backquotes around it.
    prose = re.sub(r"`[^`]*`", "", text)
    assert not re.search(r"(?<![\w-])--?[a-z]", prose), text
    assert "\n" not in text or "\nhint: " in text
    # Python's own functions raise TypeError or ValueError for wrong arguments, so an
    # ArgumentError is both.
    if isinstance(caught.value, cp.ArgumentError):
        assert isinstance(caught.value, TypeError) and isinstance(caught.value, ValueError)


def test_nothing_is_left_open_after_all_of_it(made):
    vm, _, args = made
    with cp.profile(vm, counters=["page-faults"]) as prof:
        vm[ENTRY](*args)
    assert prof.report().calls


def test_a_function_of_an_executable_is_measured(made):
    vm, executable, args = made
    for one in (executable, vm, vm.module):
        metrics = cp.profile_function(one, tvm.cpu(), [], ENTRY, warmup_iters=1)(*args)
        assert list(metrics) == ["Duration (us)"]
        with pytest.raises(Exception, match="7 arguments") as caught:
            cp.profile_function(one, tvm.cpu(), [], ENTRY, 0)(1)
        assert not isinstance(caught.value, cp.CounterpointError)
