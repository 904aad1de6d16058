"""Hands each recording of PyTorch's profiler to the run that records this process.

`torch.autograd.profiler.profile` is what every profiler of PyTorch is made of, `torch.profiler` too. Its
`__exit__` is replaced by one that calls the original, and then gives the result to the shim, which
streams it to the profile (`counterpoint/torch_log.h`). The program's own result stays as it is, and it can
still be saved once.

A PyTorch that the shim does not know gets a trace file instead: the program's own, if it saves one.
Otherwise nothing can be done, because PyTorch saves a result only once. The file is linked or copied into
the process's part of the profile, where the command line finds it.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, Callable, Optional

from counterpoint.torch import _load
from counterpoint.torch._entry import complain

_SAVED, _HAS_NONE = 0, 1

_lock = threading.Lock()
_installed = False
_type_info: Any = None


def install() -> None:
    """Replaces `__exit__`, once."""
    global _installed
    from torch.autograd import profiler

    with _lock:
        if _installed:
            return
        _installed = True
        profiler.profile.__exit__ = _wrapped(profiler.profile.__exit__)


def _wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
    import functools

    @functools.wraps(original)
    def __exit__(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = getattr(self, "kineto_results", None)
        try:
            return original(self, *args, **kwargs)
        finally:
            try:
                result = getattr(self, "kineto_results", None)
                if result is not None and result is not before:
                    save(result)
            except BaseException as error:
                complain(f"a recording of torch.profiler is not in the profile: {type(error).__name__}: {error}")

    return __exit__


def save(result: Any) -> None:
    """Gives a result of PyTorch's profiler to the profile. Writes a line if that fails."""
    if not _load.begin("log"):
        return
    bridge = _load.bridge()
    if bridge is None:
        return
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
    """Returns the address of the C++ object, as pybind11 gives it to modules of other compilers that know its
    type. It checks the type and the ABI."""
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
        # typeid(std::type_info).name(), which pybind11 expects as the capsule's name.
        _type_info = api.PyCapsule_New(type_of(), _TYPE_INFO_NAME, None)
    abi = f"system_libstdcpp_gxx_abi_1xxx_use_cxx11_abi_{int(torch._C._GLIBCXX_USE_CXX11_ABI)}"
    capsule = result._pybind11_conduit_v1_(abi.encode(), _type_info, b"raw_pointer_ephemeral")
    if capsule is None:
        return None
    return api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule))  # type: ignore[no-any-return]


_TYPE_INFO_NAME = b"St9type_info"
"""Kept here because a capsule does not copy its name."""


def recording() -> bool:
    """Whether a run or a session may want the recordings of this process."""
    return bool(os.environ.get("COUNTERPOINT_RUN_FILE"))
