"""Records the ops that PyTorch runs in this process, with the part `ops` of the bridge to
PyTorch."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Optional

from counterpoint._agent import recorder
from counterpoint.errors import UnsupportedError
from counterpoint.torch import _load

SHAPES_VARIABLE = "COUNTERPOINT_TORCH_SHAPES"
"""`counterpoint run --shapes` sets this variable."""

PARALLEL_UNSEEN = "parallel_unseen"
_WHY_NOT_PARALLEL = {
    1: "PyTorch does not launch its parallel regions through GOMP_parallel",
    2: "PyTorch's table of functions could not be changed",
}


class _Table(ctypes.Structure):
    """`counterpoint_torch_ops_t` (`counterpoint/torch_ops.h`)."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("begin", ctypes.c_void_p),
        ("end", ctypes.c_void_p),
        ("apart_bytes", ctypes.c_size_t),
        ("begin_apart", ctypes.c_void_p),
        ("end_apart", ctypes.c_void_p),
        ("watch_parallel", ctypes.CFUNCTYPE(ctypes.c_int32)),
        ("counter_name", ctypes.c_void_p),
        ("open_apart", ctypes.CFUNCTYPE(ctypes.c_uint32)),
        ("ready", ctypes.CFUNCTYPE(ctypes.c_int32)),
        ("ticks", ctypes.c_void_p),
        ("announced", ctypes.c_void_p),
        ("begin_known", ctypes.c_void_p),
        ("forget", ctypes.c_void_p),
        ("steps", ctypes.c_void_p),
        ("range_begins", ctypes.c_void_p),
        ("is_overdue", ctypes.c_void_p),
    ]


class Ops:
    """The connected part `ops` of the bridge."""

    def __init__(self, bridge: _load.Bridge) -> None:
        self._table = _Table.in_dll(bridge.library, "counterpoint_torch_ops")
        self._record = bridge.shim.counterpoint_torch_ops_record
        self._record.argtypes = [ctypes.c_int32, ctypes.c_int32]
        self._record.restype = ctypes.c_int32
        self._process = os.getpid()
        self._started: list[bool] = []
        """The argument `shapes` of each call of `start` that no `stop` has undone yet."""

    def start(self, shapes: bool) -> None:
        """Makes PyTorch call the shim for each op in this process, until `stop` has undone all
        calls of `start`."""
        self._leave_parent()
        self._add(shapes)
        self._started.append(shapes)

    def start_for_run(self, shapes: bool) -> None:
        """Makes PyTorch call the shim for each op, also in forked children."""
        self._add(shapes)

    def stop(self, shapes: bool) -> None:
        """Undoes one call of `start` with the same value of `shapes`."""
        self._record(-1, shapes)
        self._started.remove(shapes)

    def _add(self, shapes: bool) -> None:
        if int(self._record(1, shapes)) < 0:
            raise UnsupportedError("PyTorch refused to be observed (at::addGlobalCallback failed)")

    def _leave_parent(self) -> None:
        """In a forked child, undoes the parent's calls of `start`. The child does this when it
        calls `start` itself. Doing it right after the fork could block forever: a lock of PyTorch
        or of the shim may then be held by a thread that only the parent has."""
        if self._process != os.getpid():
            self._process = os.getpid()
            while self._started:
                self._record(-1, self._started.pop())

    def watch_parallel(self) -> Optional[str]:
        """Makes an op's counter values include the OpenMP threads that work for the op, or returns
        why this is impossible."""
        reason = int(self._table.watch_parallel())
        return None if reason == 0 else _WHY_NOT_PARALLEL.get(reason, f"reason {reason}")

    def open_ranges(self) -> int:
        """Returns the number of ranges of `record_function` that have begun and not ended."""
        return int(self._table.open_apart())

    def ready(self) -> None:
        """Does work that would otherwise delay the first op of this thread."""
        self._table.ready()


_lock = threading.Lock()
_ops: Optional[Ops] = None
_follows = False


def connect() -> Ops:
    """Returns the part `ops`, which the first call connects. Raises an UnsupportedError if this is
    impossible."""
    global _ops
    import torch  # noqa: F401  (the bridge needs it)

    with _lock:
        if _ops is None:
            bridge = _load.bridge()
            if bridge is None:
                raise UnsupportedError(_load.failure() or "PyTorch is not connected")
            if not _load.begin("ops"):
                raise UnsupportedError("the ops of PyTorch cannot be recorded: see the line on stderr")
            _ops = Ops(bridge)
        return _ops


def follow_run() -> None:
    """Records the ops of this process, which `counterpoint run` started, until the process ends."""
    global _follows
    if _follows:
        return
    _follows = True
    ops = connect()
    if ops.watch_parallel() is not None:
        recorder().lose(PARALLEL_UNSEEN, 1)
    # `ready` makes the names of the run's counters available, and `start_for_run` reads them.
    ops.ready()
    ops.start_for_run(os.environ.get(SHAPES_VARIABLE, "") not in ("", "0"))
