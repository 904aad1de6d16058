"""Connects the parts of the bridge between PyTorch and Counterpoint. Loads the shim, a C++ library
for one version of PyTorch, into this process, and passes libcounterpoint.so's tables of functions
to it (`counterpoint/torch.h`). The public functions raise nothing into the program except
KeyboardInterrupt.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import Any, Optional

from counterpoint.torch._complaints import complain, told

KNOWN = ("2.12", "2.15")
"""Releases of PyTorch with which the shim was tested, with any patch number."""

TRY = "try"
"""The value of COUNTERPOINT_TORCH that makes any version count as known."""

BEGAN, OLD, FAILED = 0, -1, -2


class NotConnected(Exception):
    """A part cannot be connected. The text says why."""


class Bridge:
    """The loaded shim and the loaded libcounterpoint.so."""

    def __init__(self, shim: ctypes.CDLL, library: ctypes.CDLL) -> None:
        self.shim = shim
        """The shim, with the functions `counterpoint_torch_*` that its C++ files define."""
        self.library = library
        """libcounterpoint.so, with the tables `counterpoint_torch_*`."""
        self.begun: dict[str, bool] = {}

    def begin(self, part: str) -> None:
        """Connects a part. Raises NotConnected."""
        try:
            begin = getattr(self.shim, f"counterpoint_torch_{part}_begin")
            table = ctypes.addressof(ctypes.c_char.in_dll(self.library, f"counterpoint_torch_{part}"))
        except (AttributeError, ValueError):
            raise NotConnected(f"this build has no part {part!r} for PyTorch") from None
        begin.restype = ctypes.c_int32
        begin.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
        if part == "plugins":
            _load_plugins(table)
        why = ctypes.create_string_buffer(1024)
        result = int(begin(table, why, len(why)))
        if result == OLD:
            raise NotConnected("libcounterpoint.so in this process is older than this package")
        if result != BEGAN:
            raise NotConnected(why.value.decode(errors="replace") or f"result {result}")


class _Plugins(ctypes.Structure):
    """The first fields of the table of `counterpoint/torch_plugins.h`."""

    _fields_ = [
        ("size", ctypes.c_uint32),
        ("version", ctypes.c_uint32),
        ("say", ctypes.c_void_p),
        ("switches", ctypes.c_void_p),
        ("load", ctypes.CFUNCTYPE(ctypes.c_uint32)),
    ]


def _load_plugins(address: int) -> None:
    """Plugins are loaded on a separate thread, because a plugin may hang, and Python cannot handle
    Ctrl-C while the main thread is inside a call of C.
    """
    table = _Plugins.from_address(address)
    if table.size < ctypes.sizeof(_Plugins):
        return
    thread = threading.Thread(target=table.load, name="counterpoint plugins", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # Without this thread, the shim's function `counterpoint_torch_plugins_begin` loads the
        # plugins.
        return
    thread.join()


_lock = threading.RLock()
_bridge: Optional[Bridge] = None
_failure: Optional[str] = None


def begin(part: str) -> bool:
    """Connects a part, and returns whether it is connected. If it is not, writes the reason as one
    line on stderr, but only once. Raises only KeyboardInterrupt."""
    try:
        with _lock:
            found = bridge()
            if found is None:
                return False
            if part not in found.begun:
                found.begun[part] = False
                found.begin(part)
                found.begun[part] = True
            return found.begun[part]
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        why = str(error) if isinstance(error, NotConnected) else told(error)
        complain(f"the part {part!r} is not connected to PyTorch: {why}")
        return False


def bridge() -> Optional[Bridge]:
    """Returns the bridge, which the first call makes, or `None` if that failed. The reason is
    written as one line on stderr, but only once. Raises only KeyboardInterrupt."""
    global _bridge, _failure
    with _lock:
        if _bridge is None and _failure is None:
            try:
                _bridge = _make()
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                _failure = _text(error)
                complain(_failure)
        return _bridge


def failure() -> Optional[str]:
    """Returns why the bridge could not be made, or `None`."""
    return _failure


def known(version: str) -> bool:
    """Whether the shim was tested with this version, or the user wants to try it anyway."""
    if os.environ.get("COUNTERPOINT_TORCH", "").strip().lower() == TRY:
        return True
    return ".".join(version.split("+")[0].split(".")[:2]) in KNOWN


def unknown(version: str) -> str:
    """Returns the message about a PyTorch version with which the shim was not tested."""
    return (
        f"PyTorch {version} is not one of the versions that Counterpoint can be connected to"
        f" ({', '.join(KNOWN)}), so torch.profiler's results are without plugins and counters;"
        " counterpoint run takes over its recordings as trace files instead (docs/pytorch.md)"
    )


def _make() -> Bridge:
    torch = sys.modules.get("torch")
    if torch is None:
        raise NotConnected("torch is not imported")
    version = str(torch.__version__)
    if not known(version):
        raise NotConnected(unknown(version))
    from counterpoint._agent import agent
    from counterpoint.torch import _build

    _, path = agent()
    about = _build.Torch(
        version,
        str(getattr(torch.version, "git_version", "")),
        bool(torch._C._GLIBCXX_USE_CXX11_ABI),
        Path(str(torch.__file__)).resolve().parent,
    )
    shim = None
    unfit = ""
    for prebuilt in (True, False):
        try:
            built = _build.shim(about, complain, prebuilt)
        except _build.NoShim as error:
            raise NotConnected(f"PyTorch {version} is not connected: {error}{unfit}") from None
        try:
            shim = ctypes.CDLL(str(built.path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
            break
        except OSError as error:
            # A shim that came with the package may need newer libraries than this machine has. In
            # this case, the next turn of the loop compiles a shim on this machine.
            if not built.prebuilt:
                why = f"load {built.path}: {error}"
                raise NotConnected(f"PyTorch {version} is not connected: {why}") from None
            unfit = f"; the one that came with the package does not fit this machine: {error}"
        finally:
            if built.temporary is not None:
                shutil.rmtree(built.temporary, ignore_errors=True)
    if shim is None:
        raise NotConnected(f"PyTorch {version} is not connected: its shim cannot be loaded")
    return Bridge(shim, ctypes.CDLL(path))


def _text(error: BaseException) -> str:
    if isinstance(error, NotConnected):
        return str(error)
    return f"PyTorch is not connected: {told(error)}"
