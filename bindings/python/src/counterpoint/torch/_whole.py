"""Decides which results of PyTorch's profiler are whole, so that reading them cannot crash the program.

Each thread can have a profiler, but all of them share one recording, that of Kineto. PyTorch (2.12 and
2.15: profiler_kineto.cpp; Kineto: SyncActivityProfilerHandler.cpp, GenericActivityProfiler.cpp,
output_membuf.h) does not keep them apart:

- *Prepare* throws away the recording that is there, whoever made it.
- *Stop* ends the recording that is there, whoever made it, and takes all events that any thread has
  handed over. That thread may still write to them, and may free them.
- A later stop finds no recording. Its result has no buffers, and saving it reads a null pointer.
- A stop on a thread that has no profiler returns a result without a trace, with the same consequence.
  A profiler inside another one on the same thread ends the outer one, so this happens to the outer one.

None of that can be seen in a result from outside. So all calls of prepare, start and stop in this
process are counted. A result is whole if no other call began or was running between the begin of its
own prepare and the end of its own stop:

    other threads   ──start──┐                                      ┌──stop── (not whole)
    this profiler            └─ prepare ── start ── … ── stop ── whole

What others do later does no harm, because from then on the result owns its events.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any, Optional

PREPARE, START, STOP = range(3)


class _State:
    """The calls of this process."""

    def __init__(self) -> None:
        # A signal handler or a finalizer may use a profiler in the middle of the code below.
        self.lock = threading.RLock()
        self.number = 0
        """How many calls have begun."""
        self.running = 0
        """How many of them have not returned."""
        self.last: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
        """The last call of each profiler that was alone until then, and its number."""


_state = _State()


class Call:
    """A call of a profiler."""

    def __init__(self) -> None:
        self.alone = False
        """Whether the profiler was alone from its prepare to the end of this call."""


@contextlib.contextmanager
def call(profiler: Any, kind: int) -> Iterator[Call]:
    """Counts a call of a profiler. The body of the `with` is the call."""
    made, state = Call(), _state
    with state.lock:
        number = state.number = state.number + 1
        before: Optional[tuple[int, int]] = state.last.pop(profiler, None)
        follows = kind == PREPARE or before == (kind - 1, number - 1)
        alone = follows and state.running == 0
        state.running += 1
    try:
        yield made
    finally:
        with state.lock:
            state.running -= 1
            # If another call began meanwhile, it may also have ended.
            made.alone = alone and state.number == number
            if made.alone and kind != STOP:
                state.last[profiler] = (kind, number)


def is_whole(stop: Call, result: Any) -> bool:
    """Returns whether the result that this stop returned can be read."""
    # PyTorch's own result for a thread without a profiler begins at 0. (Before 2.4, it has µs.)
    began = getattr(result, "trace_start_ns", None) or getattr(result, "trace_start_us", None)
    return stop.alone and began is not None and began() != 0


def _forked() -> None:
    """Forgets the calls of other threads, which do not return in a forked child."""
    global _state
    _state = _State()


os.register_at_fork(after_in_child=_forked)
