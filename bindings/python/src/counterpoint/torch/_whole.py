"""Decides which results of PyTorch's profiler are complete, so that reading them cannot crash the program.

Each thread can have a profiler, but all profilers of a process share one recording of Kineto, PyTorch's
profiler library. PyTorch does not keep the profilers apart (2.12 and 2.15: profiler_kineto.cpp; Kineto:
SyncActivityProfilerHandler.cpp, GenericActivityProfiler.cpp, output_membuf.h):

- *Prepare* discards the current recording, even if another profiler made it.
- *Stop* ends the current recording, even if another profiler made it. It takes the events that all threads
  have handed over, although these threads may still write to the events, and may free them.
- A second stop finds no recording. Its result has no buffers, and saving the result reads a null pointer.
- A stop on a thread that has no profiler returns a result without a trace, and saving it also reads a null
  pointer. If a profiler runs inside another one on the same thread, its stop also ends the outer profiler, so
  this happens to the outer profiler.

A result does not show whether one of these things has happened. So all calls of prepare, start and stop in
this process are counted. A result is complete if no other call began or was running between the begin of its
own prepare and the end of its own stop:

    other threads   ──start──┐                                      ┌──stop── (not whole)
    this profiler            └─ prepare ── start ── … ── stop ── whole

Later calls of other profilers do no harm, because after its stop, the result owns its events.
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
    """The calls of prepare, start and stop in this process."""

    def __init__(self) -> None:
        # Reentrant, because a signal handler or a finalizer may use a profiler meanwhile.
        self.lock = threading.RLock()
        self.number = 0
        """How many calls have begun."""
        self.running = 0
        """How many of them have not returned."""
        self.last: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
        """The last call of each profiler that was alone until then, and its number."""


_state = _State()


class Call:
    """A call of prepare, start or stop of a profiler."""

    def __init__(self) -> None:
        self.alone = False
        """Whether the profiler was alone from its prepare to the end of this call."""


@contextlib.contextmanager
def call(profiler: Any, kind: int) -> Iterator[Call]:
    """Counts a call of a profiler. The call is made in the body of the `with`."""
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
            # Another call may have begun and ended meanwhile.
            made.alone = alone and state.number == number
            if made.alone and kind != STOP:
                state.last[profiler] = (kind, number)


def is_whole(stop: Call, result: Any) -> bool:
    """Returns whether the result of this stop can be read."""
    # For a thread without a profiler, the start time is 0. (Before PyTorch 2.4, it is in µs.)
    began = getattr(result, "trace_start_ns", None) or getattr(result, "trace_start_us", None)
    return stop.alone and began is not None and began() != 0


def _forked() -> None:
    """The calls of other threads do not return in a forked child."""
    global _state
    _state = _State()


os.register_at_fork(after_in_child=_forked)
