"""Adds the recordings of PyTorch's own profiler to the profile that Counterpoint records of this
process.

PyTorch's profilers, including `torch.profiler`, use `torch.autograd.profiler.profile`. Its method
`__exit__` is replaced by a function that calls the original, and then passes the recording's result
(`kineto_results`) to the shim. The shim streams this result to the profile
(`counterpoint/torch_log.h`). The program gets the same result as without Counterpoint, and can save
it once, as PyTorch allows.

If the shim cannot do this (PyTorch is too old or unknown, or there is no compiler), PyTorch saves
the result as a trace file in this process's folder of the profile. The command `counterpoint`
imports this file later. PyTorch can save a result only once. So the program then gets a substitute
for the result, which copies the trace file when the program saves it.

A result that may be invalid (`_whole.py`) is not read, and is counted as a loss.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import shutil
import threading
from typing import Any, BinaryIO, Callable, Optional

from counterpoint.torch import _load, _whole
from counterpoint.torch._complaints import complain

_SAVED, _HAS_NONE = 0, 1

_lock = threading.Lock()
_installed = False
_type_info: Any = None


def install() -> None:
    """Replaces the methods of PyTorch's profiler that prepare, start and stop it. Only the first
    call has an effect."""
    global _installed
    from torch.autograd import profiler

    with _lock:
        if _installed:
            return
        _installed = True
        steps = {"_prepare_trace": _whole.PREPARE, "_start_trace": _whole.START}
        if not all(hasattr(profiler.profile, name) for name in steps):
            complain("recordings of torch.profiler are not in the profile: this PyTorch prepares them in an unknown way")
            return
        for name, kind in steps.items():
            setattr(profiler.profile, name, _counted(getattr(profiler.profile, name), kind))
        profiler.profile.__exit__ = _wrapped(profiler.profile.__exit__)


def _counted(original: Callable[..., Any], kind: int) -> Callable[..., Any]:
    @functools.wraps(original)
    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        with _whole.call(self, kind):
            return original(self, *args, **kwargs)

    return counted


def _wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __exit__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not getattr(self, "enabled", True):
            return original(self, *args, **kwargs)
        before = getattr(self, "kineto_results", None)
        stop = None
        try:
            with _whole.call(self, _whole.STOP) as stop:
                return original(self, *args, **kwargs)
        finally:
            try:
                result = getattr(self, "kineto_results", None)
                if result is not None and result is not before and stop is not None:
                    if _whole.is_whole(stop, result):
                        self.kineto_results = taken_over(result, getattr(self, "profiler_kind", None))
                    else:
                        _count_invalid()
            except Exception as error:  # Ctrl-C is left to the program.
                complain(f"a recording of torch.profiler is not in the profile: {type(error).__name__}: {error}")

    return __exit__


def taken_over(result: Any, kind: Any) -> Any:
    """Adds a result to the profile, if possible. Returns the object that the program gets as its
    result."""
    bridge = _load.bridge()
    # The shim for an older PyTorch does not have this function.
    if bridge is not None and hasattr(bridge.shim, "counterpoint_torch_log_begin") and _load.begin("log"):
        _stream(bridge, result)
        return result
    # Only profilers of the kinds `KINETO…` have a trace. Saving the results of other kinds would
    # crash.
    if not getattr(kind, "name", "").startswith("KINETO"):
        return result
    path = _new_file()
    if path is None:
        return result
    result.save(path)
    return Saved(result, path)


class Saved:
    """Takes the place of a result that was already saved to a file, and has all methods of that result."""

    def __init__(self, result: Any, path: str) -> None:
        self._result = result
        self._path = path
        self._saved = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._result, name)

    def save(self, path: str) -> None:
        if self._saved:
            # PyTorch raises an error here, as it would without Counterpoint.
            self._result.save(path)
        self._saved = True
        try:
            with open(self._path, "rb") as source, open(path, "wb") as to:
                shutil.copyfileobj(source, to)
                _rename(source, to, str(path))
        except OSError as error:
            # PyTorch itself also only writes a line to stderr if it cannot write a trace.
            complain(f"the trace of torch.profiler is not written: {error}")


def _rename(source: BinaryIO, to: BinaryIO, path: str) -> None:
    """Corrects the copy of a trace file: PyTorch wrote the original file's path at the end. The
    copy's path replaces it."""
    size = source.seek(0, os.SEEK_END)
    begin = max(size - 8192, 0)
    source.seek(begin)
    tail = source.read()
    at = tail.rfind(b'"traceName":')
    if at >= 0:
        to.seek(begin + at)
        to.write(b'"traceName": ' + json.dumps(path).encode() + b" }")
        to.truncate()


class _Table(ctypes.Structure):
    """The table of `counterpoint/torch_log.h`."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("say", ctypes.c_void_p),
        ("begin", ctypes.c_void_p),
        ("field", ctypes.c_void_p),
        ("entry", ctypes.c_void_p),
        ("end", ctypes.c_void_p),
        ("file", ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p, ctypes.c_size_t)),
        ("invalid", ctypes.CFUNCTYPE(None)),
    ]


def _table() -> Optional[_Table]:
    """Returns libcounterpoint.so's table `counterpoint_torch_log`, or `None` if the table lacks a
    field that this package knows."""
    from counterpoint._agent import agent

    _, library = agent()
    table = _Table.in_dll(ctypes.CDLL(library), "counterpoint_torch_log")
    return table if table.size >= ctypes.sizeof(_Table) else None


def _count_invalid() -> None:
    """Counts the loss of a recording whose result is not read because it may be invalid."""
    table = _table()
    if table is not None:
        table.invalid()


def _new_file() -> Optional[str]:
    """Returns the path of a new file in this process's folder of the profile. Returns `None` if
    Counterpoint does not record this process now, or if libcounterpoint.so is too old."""
    table = _table()
    if table is None:
        return None
    path = ctypes.create_string_buffer(8192)
    return os.fsdecode(path.value) if table.file(path, len(path)) >= 0 else None


def _stream(bridge: _load.Bridge, result: Any) -> None:
    """Passes a result to the shim, which adds it to the profile. If this fails, writes a line on
    stderr."""
    address = _address(bridge, result)
    if address is None:
        complain("a recording of torch.profiler is not in the profile: its result is of an unknown type")
        return
    function = bridge.shim.counterpoint_torch_log_save
    function.restype = ctypes.c_int32
    function.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    why = ctypes.create_string_buffer(1024)
    saved = int(function(address, why, len(why)))
    if saved not in (_SAVED, _HAS_NONE):
        complain(f"a recording of torch.profiler is not in the profile: {why.value.decode(errors='replace')}")


def _address(bridge: _load.Bridge, result: Any) -> Optional[int]:
    """Returns the address of the result's C++ object, or `None` if pybind11 refuses to give it.
    pybind11's conduit protocol passes such addresses to modules that were compiled separately,
    after it has checked the type and the ABI."""
    global _type_info
    import torch

    api = ctypes.pythonapi
    api.PyCapsule_New.restype = ctypes.py_object
    api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    if _type_info is None:
        type_of = bridge.shim.counterpoint_torch_log_result_type
        type_of.restype = ctypes.c_void_p
        # pybind11 checks that the capsule's name is typeid(std::type_info).name().
        _type_info = api.PyCapsule_New(type_of(), _TYPE_INFO_NAME, None)
    abi = f"system_libstdcpp_gxx_abi_1xxx_use_cxx11_abi_{int(torch._C._GLIBCXX_USE_CXX11_ABI)}"
    capsule = result._pybind11_conduit_v1_(abi.encode(), _type_info, b"raw_pointer_ephemeral")
    if capsule is None:
        return None
    return api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))  # type: ignore[no-any-return]


_TYPE_INFO_NAME = b"St9type_info"
"""A constant, because a capsule keeps only the address of its name, so the name must live as long
as the capsule."""

