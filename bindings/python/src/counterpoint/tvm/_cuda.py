"""Counters of NVIDIA's devices around ops, by PAPI's names: collectors that the plugin `cuda` makes, without Python in
the hot path. Only this module uses the plugin's file.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any, Optional

from counterpoint import _session
from counterpoint._install import plugin
from counterpoint.errors import CounterpointError
from counterpoint.tvm import _native

_ROOM = 1000
# As the program says it for other devices.
_RIGHTS = (
    "NVIDIA's driver keeps the device's counters for root unless the module option"
    " NVreg_RestrictProfilingToAdminUsers is 0: put `options nvidia"
    " NVreg_RestrictProfilingToAdminUsers=0` into a file below /etc/modprobe.d, rebuild the initramfs if"
    " it loads the driver, and reboot"
)


class Failed(Exception):
    """The counters cannot be read; the text says why."""


class DeviceCounters:
    """What a profile is asked to count on one device."""

    def __init__(self, index: int, names: Optional[list[str]]) -> None:
        self.index = index
        # A name without a device means this one.
        chosen = _defaults() if names is None else names
        self.names = [name if ":device=" in name else f"{name}:device={index}" for name in chosen]


def _defaults() -> list[str]:
    """Returns what is counted if nothing is named, as TVM's collector chose it."""
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
    make.argtypes = [text, text, ctypes.POINTER(ctypes.c_uint32), text, size]
    end.argtypes = [ctypes.c_void_p, text, size]
    return library


# Collectors live until the process ends, so each is made once.
_made: dict[str, int] = {}


def _collector(names: list[str]) -> int:
    """Returns the address of a collector for these counters."""
    listed = ";".join(names)
    if listed not in _made:
        why, device = ctypes.create_string_buffer(_ROOM), ctypes.c_uint32()
        file = os.environ.get("COUNTERPOINT_CUPTI")
        made = _plugin().counterpoint_cuda_collector(
            listed.encode(), os.fsencode(file) if file else None, ctypes.byref(device), why, _ROOM
        )
        if made is None:
            raise Failed(why.value.decode(errors="replace"))
        _made[listed] = made
    return _made[listed]


class Registered:
    """Counters of a device that are read while a profile is open."""

    def __init__(self, native: _native.Native, counters: DeviceCounters) -> None:
        self._native = native
        self._index = counters.index
        self._collector = _collector(counters.names)
        self._number = native.collector_of(self._collector, counters.names)
        self.failure: Optional[str] = None

    def remove(self) -> None:
        """Removes the collector at the end of the profile, and asks it what went wrong."""
        self._native.collector_remove(self._number)
        why = ctypes.create_string_buffer(_ROOM)
        if _plugin().counterpoint_cuda_collector_end(self._collector, why, _ROOM):
            self.failure = f"the counters of cuda:{self._index}: {why.value.decode(errors='replace')}"


def register(native: _native.Native, counters: DeviceCounters) -> Optional[Registered]:
    """Registers counters. If they cannot be read here, warns once and returns `None`."""
    if not counters.names:
        return None
    try:
        return Registered(native, counters)
    except (Failed, CounterpointError) as error:
        _session.tell(f"the counters of cuda:{counters.index} are left out: {error}; {_RIGHTS}")
        return None


def index_of(device: Any) -> int:
    """Returns the number of a `tvm.runtime.Device`."""
    for name in ("index", "device_id"):
        number = getattr(device, name, None)
        if isinstance(number, int):
            return number
    return 0
