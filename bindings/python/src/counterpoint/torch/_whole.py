"""Decides which results of PyTorch's profiler are complete, so that reading them cannot crash the program.

Each thread can have a profiler, but all profilers of a process share one recording of Kineto, PyTorch's
profiler library. PyTorch does not keep the profilers apart (2.12 and 2.15: profiler_kineto.cpp; Kineto:
SyncActivityProfilerHandler.cpp, GenericActivityProfiler.cpp, output_membuf.h):

- *Prepare* discards the current recording, even if another profiler made it.
- *Stop* ends the current recording, even if another profiler made it. It takes the events that all threads
  have handed over, and may free them. These threads may still write to the events.
- A second stop finds no recording. Its result has no buffers, and saving the result reads a null pointer.
- A stop on a thread that has no profiler returns a result without a trace, and saving it also reads a null
  pointer. If a profiler runs inside another one on the same thread, the stop of the inner profiler also ends
  the outer one. The later stop of the outer profiler then finds no profiler.

A result does not show whether one of these things has happened. So all calls of prepare, start and stop in
this process are counted. The result of a profiler is complete if no call of another profiler began or was
running between the begin of this profiler's prepare and the end of its stop:

    other threads   ──start──┐                                      ┌──stop── (not whole)
    this profiler            └─ prepare ── start ── … ── stop ── whole

Later calls of other profilers do no harm, because the result owns its events after the stop.
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
    """Counts the calls of prepare, start and stop in this process."""

    def __init__(self) -> None:
        # The lock is reentrant, because a signal handler or a finalizer may use a profiler while
        # this thread has the lock.
        self.lock = threading.RLock()
        self.number = 0
        """How many calls have begun."""
        self.running = 0
        """How many calls have not returned."""
        self.last: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
        """The kind and the number of each profiler's last call. There is an entry only if that call was a
        prepare or a start that was `alone` (see `Call`)."""


_state = _State()


class Call:
    """A call of prepare, start or stop of a profiler."""

    def __init__(self) -> None:
        self.alone = False
        """Whether no call of another profiler was running between this profiler's prepare and the end of this
        call."""


@contextlib.contextmanager
def call(profiler: Any, kind: int) -> Iterator[Call]:
    """Counts a call of prepare, start or stop. The caller makes this call in the body of its `with`."""
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
            # Another call may have begun and ended during this one.
            made.alone = alone and state.number == number
            if made.alone and kind != STOP:
                state.last[profiler] = (kind, number)


def is_whole(stop: Call, result: Any) -> bool:
    """Returns whether the result of this stop can be read."""
    # If the thread had no profiler, the result's start time is 0. (Before PyTorch 2.4, the time is
    # in µs.)
    began = getattr(result, "trace_start_ns", None) or getattr(result, "trace_start_us", None)
    return stop.alone and began is not None and began() != 0


def _forked() -> None:
    """Forgets all calls in a forked child. The parent's other threads do not exist there, so calls that they
    had begun never return."""
    global _state
    _state = _State()


os.register_at_fork(after_in_child=_forked)
