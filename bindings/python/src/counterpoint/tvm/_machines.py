"""Keeps the state of each virtual machine of TVM in this process. To do so, it replaces methods of
TVM's class `VirtualMachine`. While nothing is recorded, the new methods behave like the old ones.
An *instrument* is a function that TVM calls before and after each op.

| method | what is added |
|---|---|
| `__init__` | stores the devices and whether parallel launches can be seen; starts recording under `counterpoint run` |
| `__getitem__` | while recording, wraps the function, so that its calls are recorded as runs |
| `invoke_stateful` | while recording, makes the call a recorded run |
| `set_instrument` | stores the user's instrument; while recording, makes our instrument call it |
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Optional

from counterpoint.errors import UnsupportedError
from counterpoint.tvm import _fixed, _native

_STATE = "_counterpoint_state"
_lock = threading.RLock()
_count = 0
# Whether new machines are recorded until the process ends; `_hook/sitecustomize.py` sets this for
# `counterpoint run`.
attach_all = False
# Why parallel launches of new machines cannot be seen; None if they can.
blind: Optional[str] = None
_installed = False
_OLDER = "it was made before counterpoint.tvm was imported"
_early_kernels: set[int] = set()
_early_library: Optional[str] = None
# The machine of each name, as long as the machine exists.
_names: weakref.WeakValueDictionary[str, Machine] = weakref.WeakValueDictionary()


class Machine:
    """The state of one `VirtualMachine`, as long as it exists."""

    def __init__(self, devices: list[Any], unseen: Optional[str], executable: Any = None) -> None:
        self.devices = devices
        # `None` if the executable is not known. The `VirtualMachine` keeps its executable alive,
        # too.
        self._executable = executable
        self._fixed: Optional[frozenset[str]] = None
        # Whether the recording has a budget (a limit on what recording may cost).
        self._budget = False
        # Why the machine's parallel launches are not seen; `None` if they are seen.
        self.unseen = unseen
        self.user: Any = None
        # Our instruments, each with the machine's number and the user's instrument that it calls.
        self._ours: list[tuple[Any, int, Any]] = []
        # Whether our instrument is still set after the end of a recording, because TVM may be about
        # to call it.
        self.lingers = False
        self.number = -1
        # The name in profiles, which no other machine has.
        self.name = ""
        # The number and the unique name of the machine for each requested name.
        self._numbers: dict[str, tuple[int, str]] = {}
        self._open = 0
        self._process = os.getpid()

    @property
    def open(self) -> int:
        """The number of profiles that record this machine now. In a forked child it is 0, or 1 if
        `counterpoint run` records the machine, because a run continues in the child."""
        if self._process != os.getpid():
            self._process, self._open = os.getpid(), int(attach_all and self._open > 0)
        return self._open

    def add(self, by: int) -> int:
        """Adds `by` to the number of profiles that record this machine, and returns the new number."""
        self._open = self.open + by
        return self._open

    def register(self, native: _native.Native, name: Optional[str]) -> None:
        """Gets the machine's number from the agent (libcounterpoint.so), once for each name. If
        another machine has the name, a number is appended, so that a report contains only the calls
        of its own machines."""
        global _count
        with _lock:
            if name is None:
                if self.number >= 0:
                    return
                name = f"vm {_count}"
                _count += 1
            known = self._numbers.get(name)
            if known is None:
                unique, n = name, 1
                while _names.get(unique, self) is not self:
                    n += 1
                    unique = f"{name} ({n})"
                _names[unique] = self
                known = native.vm(unique), unique
                self._numbers[name] = known
            self.number, self.name = known

    def instrument(self, native: _native.Native) -> Any:
        """Returns our instrument. Earlier instruments are kept alive: another thread may be inside
        a call of such an instrument, and TVM does not keep the instrument alive during the call."""
        for ours, number, user in self._ours:
            if number == self.number and user is self.user:
                return ours
        ours = native.instrument(self.number, self.user)
        self._ours.append((ours, self.number, self.user))
        return ours

    def set(self, vm: Any, native: _native.Native) -> None:
        """Sets our instrument. In a recording with a budget, the agent may remove our
        instrument for single runs, but only if the user has set none. The user's instrument expects
        every call, and our instrument passes the calls on to it."""
        self._budget = native.switch(self.number, None)
        ours = self.instrument(native)
        vm._set_instrument(ours)
        if self._budget and self.user is None:
            native.switch(self.number, ours)

    def is_fixed(self, name: str) -> bool:
        """Whether the recording has a budget and all runs of this function make the same calls."""
        if not self._budget or self._executable is None:
            return False
        if self._fixed is None:
            self._fixed = _fixed.functions(self._executable)
        return name in self._fixed

    def leave(self, vm: Any, native: _native.Native) -> None:
        """Restores the user's instrument. If the machine may be in an op now, our instrument stays
        until a later call of `__getitem__`, `invoke_stateful` or `set_instrument`."""
        native.switch(self.number, None)
        self.lingers = not native.quiet(self.number)
        if not self.lingers:
            vm._set_instrument(self.user)
            self._ours.clear()


def install() -> None:
    """Replaces the methods of `VirtualMachine`. Calling this again has no effect."""
    global _installed
    with _lock:
        if _installed:
            return
        _installed = True
        early = sys.modules.get("tvm.runtime.vm") is not None
        from tvm.runtime import vm as module

        cls = module.VirtualMachine
        if early:
            _note_early(cls)
        _replace(cls, "__init__", _init)
        _replace(cls, "__getitem__", _getitem)
        _replace(cls, "invoke_stateful", _invoke_stateful)
        _replace(cls, "set_instrument", _set_instrument)


def _note_early(cls: type) -> None:
    """Notes the machines and kernels that exist already. Their parallel launches cannot be seen,
    because a kernel looks up the function for launches when it is loaded."""
    global _early_library
    for vm in gc.get_referrers(cls):
        if type(vm) is cls:
            setattr(vm, _STATE, Machine(_processor(), _OLDER))
            _early_kernels.update(_kernels(vm))
    _early_library = _native.loaded_model()


def _kernels(vm: Any) -> set[int]:
    """Returns the hashes of the modules with the machine's kernels. Returns none if the machine
    runs over RPC, because its modules are then in another process."""
    found: set[int] = set()
    modules = [] if is_remote(vm) else list(vm.module.imports)
    while modules:
        module = modules.pop()
        if hash(module) not in found:
            found.add(hash(module))
            modules += list(module.imports)
    return found


def _processor() -> list[Any]:
    import tvm

    return [tvm.cpu()]


def _replace(cls: type, name: str, wrapper: Callable[..., Any]) -> None:
    original = getattr(cls, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return wrapper(original, self, *args, **kwargs)

    setattr(cls, name, method)


def _init(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> None:
    original(self, *args, **kwargs)
    try:
        made_of: Any = args[0] if args else kwargs.get("rt_mod")
        unseen = blind
        if unseen is None and _early_kernels and not _early_kernels.isdisjoint(_kernels(self)):
            unseen = "a virtual machine from before the import of counterpoint.tvm has its kernels"
        elif unseen is None and _early_library is not None and not hasattr(made_of, "jit"):
            unseen = f"{_early_library} was loaded before counterpoint.tvm was imported"
        device = args[1] if len(args) > 1 else kwargs.get("device")
        devices = list(device) if isinstance(device, (list, tuple)) else [device]
        setattr(self, _STATE, Machine(devices, unseen, made_of))
        if attach_all and not is_remote(self):
            native = _native.load()
            if attach(self, native).unseen is not None:
                native.lose("parallel_unseen", 1)
    except Exception:  # The model must not get our error.
        pass


def _getitem(original: Callable[..., Any], self: Any, key: str) -> Any:
    function = original(self, key)
    return _wrapped(self, key, function)


def _invoke_stateful(original: Callable[..., Any], self: Any, func_name: str) -> Any:
    state = getattr(self, _STATE, None)
    if state is None or not state.open:
        return original(self, func_name)
    return _wrapped(self, func_name, self._invoke_stateful)(func_name)


def _wrapped(vm: Any, name: str, function: Any) -> Any:
    state = getattr(vm, _STATE, None)
    if state is None or not state.open:
        if state is not None and state.lingers:
            with _lock:
                if state.lingers and not state.open:
                    state.leave(vm, _native.load())
        return function
    try:
        setter = vm._set_instrument if state.is_fixed(name) else None
        return _native.load().entry(state.number, name, function, setter)
    except Exception:  # The call is not recorded as a run, but its ops are recorded.
        return function


def _set_instrument(original: Callable[..., Any], self: Any, instrument: Any) -> None:
    state = state_of(self)
    if not state.open:
        original(self, instrument)
        state.user, state.lingers = instrument, False
        return
    with _lock:
        before, state.user = state.user, instrument
        try:
            state.set(self, _native.load())
        except BaseException:
            state.user = before
            raise


def state_of(vm: Any) -> Machine:
    """Returns the state of a machine. If the machine was made before the methods were replaced, its
    state is made now."""
    state = getattr(vm, _STATE, None)
    if not isinstance(state, Machine):
        state = Machine(_processor(), _OLDER)
        setattr(vm, _STATE, state)
    return state


def is_remote(vm: Any) -> bool:
    """Returns whether the machine runs in another process, over RPC."""
    return getattr(vm.module, "kind", "") == "rpc"


def attach(vm: Any, native: _native.Native, name: Optional[str] = None) -> Machine:
    """Records the machine's ops until `detach`. If the program takes a function from the machine in
    this time, calls of the function are recorded as runs."""
    if is_remote(vm):
        raise UnsupportedError(
            "the virtual machine runs over RPC, so its ops cannot be seen: profile it in the"
            " process that executes it (counterpoint run -- python -m tvm.exec.rpc_server …)"
        )
    with _lock:
        state = state_of(vm)
        if not state.open:
            state.register(native, name)
            state.set(vm, native)
            state.lingers = False
        state.add(1)
        return state


def detach(vm: Any) -> None:
    """Ends the recording of the machine by one profile. After the last profile, restores the user's
    instrument, unless the machine may be in an op (see `Machine.leave`)."""
    with _lock:
        state = state_of(vm)
        if state.open and state.add(-1) == 0:
            state.leave(vm, _native.load())
