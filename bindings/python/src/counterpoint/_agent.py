"""Finds the agent of this process: libcounterpoint.so and its table of functions (`counterpoint/agent.h`)."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Optional

from counterpoint._install import library
from counterpoint.errors import NotInstalledError

# Results of session_begin.
BEGAN, RUN_RECORDS, ANOTHER_IS_OPEN, UNUSABLE, OFF = 0, 1, 2, -1, -2

_RTLD_NODELETE = 0x1000


class Table(ctypes.Structure):
    """The agent's table of functions: `counterpoint_agent_t` in `counterpoint/agent.h`."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("build", ctypes.c_char * 32),
        ("state", ctypes.CFUNCTYPE(ctypes.c_uint32)),
        ("session_begin", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p)),
        ("session_end", ctypes.CFUNCTYPE(ctypes.c_int32)),
        ("ticks", ctypes.CFUNCTYPE(ctypes.c_uint64)),
        ("profile", ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)),
        ("lose", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_uint64)),
        ("collector_add", ctypes.c_void_p),
        ("collector_remove", ctypes.c_void_p),
        ("spent", ctypes.CFUNCTYPE(None, ctypes.c_uint64)),
    ]


class _DlInfo(ctypes.Structure):
    _fields_ = [
        ("path", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


def agent() -> tuple[Table, str]:
    """Returns the agent's table and the path of its library, and loads the library if necessary."""
    try:
        found = ctypes.c_char.in_dll(ctypes.CDLL(None), "counterpoint_agent")
    except ValueError:
        path = library()
        try:
            # With RTLD_GLOBAL, a second copy of the library finds the first one. The library is not
            # unloaded, because threads may be running its code.
            handle = ctypes.CDLL(path, mode=os.RTLD_GLOBAL | os.RTLD_NOW | _RTLD_NODELETE)
            found = ctypes.c_char.in_dll(handle, "counterpoint_agent")
        except (OSError, ValueError) as error:
            raise NotInstalledError(f"load {path}: {error}") from None
    address = ctypes.addressof(found)
    table = Table.from_address(address)
    if table.size < ctypes.sizeof(Table):
        version = table.build.decode(errors="replace")
        raise NotInstalledError(
            f"this process has Counterpoint {version} loaded, which is too old for this package:"
            " start it with the `counterpoint` that belongs to it"
        )
    path_of = file_of(address)
    if path_of is None:
        raise NotInstalledError("the file of the loaded libcounterpoint.so cannot be found")
    return table, path_of


def file_of(address: int) -> Optional[str]:
    """Returns the path of the library or program that contains an address."""
    info = _DlInfo()
    dladdr = ctypes.CDLL(None).dladdr
    dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(_DlInfo)]
    if not dladdr(address, ctypes.byref(info)) or not info.path:
        return None
    return os.fsdecode(info.path)


class Recorder:
    """Calls the agent of this process, for TVM and for PyTorch."""

    def __init__(self) -> None:
        self._table, self.path = agent()

    def session_begin(self, run_file: str) -> int:
        """Begins a session, and returns one of this module's result codes, such as `BEGAN`."""
        return int(self._table.session_begin(os.fsencode(run_file)))

    def session_end(self) -> None:
        """Ends the open session, if there is one."""
        self._table.session_end()

    def ticks(self) -> int:
        """Returns the time on the clock with which calls are recorded, or 0 if nothing is being recorded."""
        return int(self._table.ticks())

    def profile(self) -> Optional[str]:
        """Returns the path of the profile that is being recorded, or None."""
        length = int(self._table.profile(None, 0))
        if length == 0:
            return None
        text = ctypes.create_string_buffer(length + 1)
        self._table.profile(text, length + 1)
        return os.fsdecode(text.value)

    def lose(self, loss: str, count: int) -> None:
        """Adds `count` to the loss with the name `loss` (docs/losses.md)."""
        self._table.lose(loss.encode(), count)


@functools.lru_cache(maxsize=1)
def recorder() -> Recorder:
    """Returns the recorder of this process, or raises an error that says why there is no agent."""
    return Recorder()
