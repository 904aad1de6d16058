"""Tests profilers of PyTorch that overlap. Under `run`, the program behaves as it does alone, and valid results are
kept in the profile."""

import bisect
import os
import subprocess
import sys
import threading

import places
import pytest
from test_recordings import Recorded, as_multiset

if not (places.DIST / "lib/python/counterpoint/torch/_whole.py").is_file():
    pytest.skip(f"no {places.DIST}/lib/python", allow_module_level=True)

from counterpoint.torch import _whole  # noqa: E402

SCRIPT = places.ROOT / "tests/python/torch/scripts/overlaps.py"


alone = {}


def check(torch, folder, what, invalid, whole=1, **variables):
    """Compares the program under `counterpoint run` with the program alone. `invalid` and `whole` are the
    numbers of invalid and valid results that PyTorch leaves."""
    recorded = Recorded(torch, folder, what, script=SCRIPT, **variables)
    output = recorded.done.stdout.decode()
    # The variables only concern Counterpoint, so the program alone runs once for all of them.
    if (torch.python, what) not in alone:
        words = [torch.python, str(SCRIPT), what, str(folder / "alone.json")]
        run = subprocess.run(words, capture_output=True, text=True, env=torch.environment(), timeout=300)
        alone[torch.python, what] = run
    bare = alone[torch.python, what]
    assert (bare.returncode, bare.stdout) == (0, output), bare.stderr
    losses = {loss["name"]: loss["count"] for loss in recorded.report()["losses"]}
    assert losses.get("recording_invalid", 0) == invalid
    assert len(recorded.recordings()) == whole
    return recorded, output


@pytest.mark.parametrize("what, invalid", [("nested", 1), ("elsewhere", 1), ("prepared", 0)])
def test_what_is_valid_is_kept(any_torch, tmp_path, what, invalid):
    recorded, output = check(any_torch, tmp_path, what, invalid)
    ours, theirs = as_multiset(recorded.exported()), as_multiset(recorded.traced())
    assert ours == theirs and sum(theirs.values()) > 10
    assert output.count("'aten::ones'") == sum(n for key, n in theirs.items() if key[2] == "aten::ones")


# These programs make PyTorch 2.12 crash even without Counterpoint.
@pytest.mark.parametrize("what, invalid", [("inside", 1), ("crossed", 2)])
def test_what_is_valid_is_kept_with_threads(torch, tmp_path, what, invalid):
    recorded, _ = check(torch, tmp_path, what, invalid)
    assert as_multiset(recorded.exported()) == as_multiset(recorded.traced())


def test_profilers_one_after_the_other_are_all_kept(any_torch, tmp_path):
    check(any_torch, tmp_path, "one after the other", 0, whole=3)


@pytest.mark.parametrize("variables", [{}, {"CXX": "/nonexistent/c++"}])
def test_a_trace_is_exported_once_as_without_us(any_torch, tmp_path, variables):
    if variables:
        nothing = tmp_path / "cache"
        nothing.mkdir(mode=0o700)
        variables = {**variables, "XDG_CACHE_HOME": nothing}
    _, output = check(any_torch, tmp_path, "export", 0, whole=2, **variables)
    assert output.count("already saved") == 2


class Profiler:

    def __init__(self, began=1):
        self.began = began

    def trace_start_ns(self):
        return self.began

    def make(self, kind):
        with _whole.call(self, kind) as call:
            pass
        return call


def test_a_result_is_whole_if_nothing_came_between():
    kinds = (_whole.PREPARE, _whole.START, _whole.STOP)

    def whole(*calls):
        """Makes the calls, and returns whether the last one left a whole result of profiler 0: its three calls
        were made in order, and no other call came between them."""
        both = Profiler(), Profiler()
        for which, kind in calls:
            last = both[which].make(kinds[kind])
        return _whole.is_whole(last, both[0])

    assert whole((0, 0), (0, 1), (0, 2))
    assert whole((1, 0), (1, 1), (0, 0), (0, 1), (0, 2))
    # The result of a second cycle is whole, too.
    assert whole((0, 0), (0, 1), (0, 2), (0, 0), (0, 1), (0, 2))
    for kind in range(3):
        assert not whole((0, 0), (1, kind), (0, 1), (0, 2))
        assert not whole((0, 0), (0, 1), (1, kind), (0, 2))
    # A result is not whole if a call is missing or occurs twice.
    assert not whole((0, 1), (0, 2))
    assert not whole((0, 0), (0, 2))
    assert not whole((0, 0), (0, 1), (0, 2), (0, 2))
    assert not whole((0, 0), (0, 1), (0, 1), (0, 2))
    stop = [Profiler(0).make(kind) for kind in kinds][-1]
    assert not _whole.is_whole(stop, Profiler())
    empty = Profiler(began=0)
    assert not _whole.is_whole([empty.make(kind) for kind in kinds][-1], empty)


def test_calls_that_are_still_running_count(monkeypatch):
    one, other = Profiler(), Profiler()
    with _whole.call(other, _whole.STOP):
        one.make(_whole.PREPARE)
    one.make(_whole.START)
    assert not one.make(_whole.STOP).alone
    one.make(_whole.PREPARE)
    one.make(_whole.START)
    with _whole.call(one, _whole.STOP) as stop:
        other.make(_whole.PREPARE)
    assert not stop.alone
    # A call that raises an exception has ended.
    with pytest.raises(KeyError), _whole.call(other, _whole.START):
        raise KeyError
    assert [one.make(kind) for kind in (_whole.PREPARE, _whole.START, _whole.STOP)][-1].alone


def test_threads_at_the_same_time():
    """Between the calls of a profiler with a whole result, no other profiler made a call."""
    clock, spans, inside, lock = iter(range(10**9)), [], [], threading.Lock()

    def work():
        for _ in range(300):
            profiler, ticks, begin = Profiler(), [], next(clock)
            for kind in (_whole.PREPARE, _whole.START, _whole.STOP):
                with _whole.call(profiler, kind) as call:
                    ticks.append(next(clock))
            with lock:
                spans.append((begin, next(clock), call.alone))
                inside.append(ticks)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    finally:
        sys.setswitchinterval(interval)
    assert len(spans) == 1200 and _whole._state.running == 0
    all_ticks = sorted(tick for ticks in inside for tick in ticks)
    for (begin, end, alone), ticks in zip(spans, inside):
        calls = bisect.bisect_left(all_ticks, ticks[2]) - bisect.bisect_left(all_ticks, ticks[0])
        if alone:
            assert calls == 2
        # A profiler's span contains all its calls, so if no other span overlaps it, its result is
        # whole.
        if not any(b < end and begin < e for b, e, _ in spans if (b, e) != (begin, end)):
            assert alone


def test_a_forked_child_does_not_wait_for_calls_of_other_threads():
    script = (
        "import os\n"
        "from counterpoint.torch import _whole\n"
        "class Profiler: pass\n"
        "p = Profiler()\n"
        "with _whole.call(Profiler(), _whole.START):\n"
        "    if os.fork() == 0:\n"
        "        for kind in range(3):\n"
        "            with _whole.call(p, kind) as call: pass\n"
        "        os._exit(17 if call.alone else 1)\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(places.DIST / "lib/python")}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment)
    assert done.stdout == "17\n", done.stderr
