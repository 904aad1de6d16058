"""Reads counters of NVIDIA's devices, by PAPI's names, around ops. The plugin `cuda` makes native
collectors for these counters, so no Python code runs around each op.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
from typing import Any, Optional

from counterpoint import _session
from counterpoint._install import plugin
from counterpoint.errors import ArgumentError, CounterpointError
from counterpoint.tvm import _native

_ROOM = 1000
_DEVICE = re.compile(r"\w+(?:[:(](\d+)\)?)?")
# If only root may read the counters, the plugin's message contains this option of the driver.
_OPTION = "NVreg_RestrictProfilingToAdminUsers"
# The program `counterpoint` gives the same advice in the same words.
_RIGHTS = (
    f"put `options nvidia {_OPTION}=0` into a file below /etc/modprobe.d, rebuild the initramfs if it"
    " loads the driver, and reboot"
)


class Failed(Exception):
    """The counters cannot be read. The text says why."""


class DeviceCounters:
    """The counters that the user wants for one device."""

    def __init__(self, index: int, names: Optional[list[str]]) -> None:
        self.index = index
        # A counter's name without `:device=` means the counter of the device `index`.
        chosen = _defaults() if names is None else names
        self.names = [name if ":device=" in name else f"{name}:device={index}" for name in chosen]


def _defaults() -> list[str]:
    """Returns the default counters: those named in the first variable below that is set. If neither is,
    returns the counter that TVM's former PAPI collector also read by default."""
    for variable in ("COUNTERPOINT_CUDA_METRICS", "TVM_PAPI_CUDA_METRICS"):
        listed = os.environ.get(variable)
        if listed is not None:
            return [name.strip() for name in listed.split(";") if name.strip()]
    return ["cuda:::event:elapsed_cycles_sm"]


@functools.lru_cache(maxsize=1)
def _plugin() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(plugin("cuda"))
        make, end = library.counterpoint_cuda_collector, library.counterpoint_cuda_collector_end
    except (OSError, AttributeError) as error:
        raise Failed(str(error)) from None
    text, size = ctypes.c_char_p, ctypes.c_size_t
    make.restype, end.restype = ctypes.c_void_p, size
    make.argtypes = [text, text, text, size]
    end.argtypes = [ctypes.c_void_p, text, size]
    return library


# The address of the collector for each list of counters. Collectors are not freed, so each is made
# only once.
_made: dict[str, int] = {}


def _collector(names: list[str]) -> int:
    listed = ";".join(names)
    if listed not in _made:
        why = ctypes.create_string_buffer(_ROOM)
        file = os.environ.get("COUNTERPOINT_CUPTI")
        made = _plugin().counterpoint_cuda_collector(
            listed.encode(), os.fsencode(file) if file else None, why, _ROOM
        )
        if made is None:
            raise Failed(_explained(why))
        _made[listed] = made
    return _made[listed]


def _explained(why: ctypes.Array[ctypes.c_char]) -> str:
    """Returns the plugin's error message. If rights are missing, adds what the user can do."""
    text = why.value.decode(errors="replace")
    return f"{text}: {_RIGHTS}" if _OPTION in text else text


class Registered:

    def __init__(self, native: _native.Native, counters: DeviceCounters) -> None:
        self._native = native
        self._index = counters.index
        self._collector = _collector(counters.names)
        self._number = native.collector_of(self._collector, counters.names)
        self.failure: Optional[str] = None

    def remove(self) -> None:
        """Removes the collector. If reading the counters failed, stores the reason in `failure`."""
        self._native.collector_remove(self._number)
        why = ctypes.create_string_buffer(_ROOM)
        if _plugin().counterpoint_cuda_collector_end(self._collector, why, _ROOM):
            self.failure = f"the counters of cuda:{self._index}: {_explained(why)}"


def register(native: _native.Native, counters: DeviceCounters) -> Optional[Registered]:
    """Registers a collector for the counters. Returns `None` if there are no counters. If they
    cannot be read on this machine, warns once and returns `None`."""
    if not counters.names:
        return None
    try:
        return Registered(native, counters)
    except (Failed, CounterpointError) as error:
        _session.tell(f"the counters of cuda:{counters.index} are left out: {error}")
        return None


def index_of(device: Any) -> int:
    """Returns the number of a `tvm.runtime.Device`, or the number in a text such as `cuda:1`. A
    text without a number, such as `cuda`, means 0."""
    if not isinstance(device, str):
        for name in ("index", "device_id"):
            number = getattr(device, name, None)
            if isinstance(number, int):
                return number
    # TVM writes `cuda:1` or `cuda(1)`.
    written = _DEVICE.fullmatch(str(device))
    if written is None:
        raise ArgumentError(f"{str(device)!r} is not a device of CUDA: tvm.cuda(1) and 'cuda:1' are")
    return int(written[1] or 0)
