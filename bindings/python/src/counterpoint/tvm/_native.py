"""Connects the package with libcounterpoint.so: with its table of functions (`counterpoint/agent.h`) and its
functions for TVM's FFI (`counterpoint/tvm.h`).
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any, Optional

from counterpoint._agent import Recorder, file_of
from counterpoint.errors import ArgumentError, CounterpointError, UnsupportedError

SUPPORTED = ("0.25", "0.26", "0.27")
"""The releases of TVM that are supported, with any patch number."""
OLDEST_FFI = (0, 1, 12)

_RTLD_NOLOAD = 0x4
_WHY_NOT_PARALLEL = {
    1: "this FFI cannot register context symbols",
    2: "no libtvm_runtime with TVMBackendParallelLaunch is loaded",
    3: "the FFI refused the context symbols",
}


MOST_METRICS, MOST_COLLECTORS = 16, 8

_WHO_HAS = {
    1: "a report or an export already has a column with this name",
    2: "a counter of this profile, or a column made of one, has this name",
    3: "another collector has a metric with this name",
    4: "it is only a unit",
}


class Value(ctypes.Structure):
    """`counterpoint_value_t`: the place for one value of a collector."""

    class _As(ctypes.Union):
        _fields_ = [
            ("count", ctypes.c_int64),
            ("number", ctypes.c_double),
            ("text", ctypes.c_char_p),
        ]

    _anonymous_ = ("value",)
    _fields_ = [("value", _As), ("filled", ctypes.c_uint64)]


class Native(Recorder):
    """The agent (libcounterpoint.so) of this process, with its functions for TVM."""

    def __init__(self) -> None:
        import tvm_ffi

        super().__init__()
        module = tvm_ffi.load_module(self.path)
        self._vm = module["counterpoint_vm"]
        self._instrument = module["counterpoint_instrument"]
        self._entry = module["counterpoint_entry"]
        self._switch = module["counterpoint_switch"]
        self._calls = module["counterpoint_calls"]
        self._quiet = module["counterpoint_quiet"]
        self._collector = module["counterpoint_collector"]
        self._collector_remove = module["counterpoint_collector_remove"]
        self._parallel = module["counterpoint_parallel"]
        self._ready = module["counterpoint_ready"]
        self._metric_name = module["counterpoint_metric_name"]

    def parallel(self) -> Optional[str]:
        """Intercepts parallel launches of modules that are loaded from now on, or returns why this
        is impossible."""
        reason = int(self._parallel())
        return None if reason == 0 else _WHY_NOT_PARALLEL.get(reason, f"reason {reason}")

    def vm(self, name: str) -> int:
        """Registers a virtual machine, and returns its number."""
        return int(self._vm(name))

    def instrument(self, vm: int, user: Any) -> Any:
        """Returns a function for `vm.set_instrument`. It also calls `user`."""
        return self._instrument(vm, user)

    def entry(self, vm: int, name: str, function: Any, set_instrument: Any = None) -> Any:
        """Returns a wrapper of an entry function, whose calls are recorded as runs. `set_instrument` may be
        given only if all runs of the function make the same calls. In a profile with a budget, the agent
        calls `set_instrument` to remove our instrument for single runs."""
        return self._entry(vm, name, function, set_instrument)

    def switch(self, vm: int, instrument: Any) -> bool:
        """Allows the agent to remove `instrument` for single runs. `None` forbids the removal.
        Returns whether the recording has a budget."""
        return bool(self._switch(vm, instrument))

    def calls(self, vm: int) -> int:
        """Returns the number of the machine's ops that our instruments have seen during
        recordings."""
        return int(self._calls(vm))

    def quiet(self, vm: int) -> bool:
        """Returns whether this thread may remove or replace the machine's instrument now. It must
        not while the machine may be in an op."""
        return bool(self._quiet(vm))

    def ready(self, vm: int) -> None:
        """Does work that would otherwise delay the first calls of a machine."""
        self._ready(vm)

    def metric_name(self, name: str) -> Optional[str]:
        """Returns why a collector's metric must not have this name, or `None` if it may."""
        return _WHO_HAS.get(int(self._metric_name(name)))

    def collector(self, start: Any, stop: Any, slots: list[tuple[str, int]]) -> int:
        """Registers two functions that are called before and after each op. `slots`: the names and
        kinds of the values that the two functions measure."""
        words = [word for slot in slots for word in slot]
        return self._accepted(int(self._collector(start, stop, *words)), [name for name, _ in slots])

    def collector_of(self, address: int, names: list[str]) -> int:
        """Registers the `counterpoint_collector_t` at `address`. `names`: the names of the collector's
        values."""
        add = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(self._table.collector_add)
        return self._accepted(int(add(address)), names)

    def _accepted(self, number: int, names: list[str]) -> int:
        if number == -2:
            raise CounterpointError(
                f"there may be at most {MOST_COLLECTORS} collectors, with at most {MOST_METRICS}"
                " metrics together"
            )
        if number == -3:
            raise ArgumentError(
                f"two metrics of one collector have names that differ only in capitals, separators or"
                f" units: {', '.join(map(repr, names))}"
            )
        if number < 0:
            raise CounterpointError(f"the recorder refused the collector ({number})")
        return number

    def collector_remove(self, number: int) -> None:
        """Removes a collector. Its slots (places for values) are at once free for other collectors."""
        self._collector_remove(number)


def loaded_model() -> Optional[str]:
    """Returns the path of a loaded library with kernels of TVM. Such a library has a variable into which
    the FFI stores the function for parallel launches."""
    try:
        with open("/proc/self/maps") as maps:
            paths = {line.split(maxsplit=5)[5].strip() for line in maps if ".so" in line}
    except (OSError, IndexError):
        return None
    for path in sorted(path for path in paths if path.startswith("/")):
        try:
            handle = ctypes.CDLL(path, mode=os.RTLD_NOW | _RTLD_NOLOAD)
            slot = ctypes.c_void_p.in_dll(handle, "__TVMBackendParallelLaunch")
        except (OSError, ValueError):
            continue
        # The symbol may also be from a library that this library needs, because dlsym searches
        # those, too.
        if slot.value and file_of(ctypes.addressof(slot)) == path:
            return path
    return None


def pass_interrupts() -> None:
    """Makes TVM's FFI pass on KeyboardInterrupt (Ctrl-C) and SystemExit from a Python function, in
    the whole process. Otherwise the FFI turns them into a RuntimeError."""
    from tvm_ffi import core

    # The FFI must know these errors by type and by name. It would not be enough to catch them in
    # our functions, because Python may run a signal handler before the first line of a function.
    names: dict[type, str] = core.ERROR_TYPE_TO_NAME
    types: dict[str, type] = core.ERROR_NAME_TO_TYPE
    for cls, again in ((KeyboardInterrupt, KeyboardInterrupt), (SystemExit, _SystemExit)):
        if cls not in names:
            names[cls] = cls.__name__
            types.setdefault(cls.__name__, again)


class _SystemExit:
    """Makes a SystemExit of its text. This is a class, because the FFI's table of errors accepts
    only classes."""

    def __new__(cls, message: str) -> Any:
        try:
            return SystemExit(int(message))
        except ValueError:
            return SystemExit(None if message in ("", "None") else message)


def check_versions() -> None:
    import tvm
    import tvm_ffi

    # Builds from source have versions such as 0.27.dev0.
    version = str(tvm.__version__)
    if ".".join(version.split(".")[:2]) not in SUPPORTED:
        raise UnsupportedError(
            f"apache-tvm {version} is not supported: {', '.join(f'{v}.*' for v in SUPPORTED)} are"
        )
    ffi = str(tvm_ffi.__version__)
    if _numbers(ffi) < OLDEST_FFI:
        oldest = ".".join(map(str, OLDEST_FFI))
        raise UnsupportedError(f"apache-tvm-ffi {ffi} is not supported: {oldest} and later are")


def _numbers(version: str) -> tuple[int, ...]:
    numbers = []
    for part in version.split(".")[:3]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        numbers.append(int(digits or 0))
    return tuple(numbers)


@functools.lru_cache(maxsize=1)
def load() -> Native:
    """Returns the agent. If it cannot be loaded, raises an error that says why."""
    check_versions()
    return Native()
