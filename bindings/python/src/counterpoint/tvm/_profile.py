"""`profile` and `profile_function`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Optional, Union

from counterpoint.errors import CounterpointError
from counterpoint.metrics import Count, Duration, Metric, Text
from counterpoint.report import Loss, Report
from counterpoint.tvm import _machines, _native, _ops, _session
from counterpoint.tvm.collectors import Collector, Registered, counters_of

_prepared = False
_UNSEEN = "parallel_unseen"


def prepare() -> None:
    """What an import does: the methods of `VirtualMachine`, and parallel launches of modules that
    are loaded from now on. What fails here is told when a profile is opened."""
    global _prepared
    if _prepared:
        return
    _prepared = True
    try:
        native = _native.load()
        reason = native.parallel()
        if reason is not None:
            _machines.blind = reason
        _machines.install()
    except Exception as error:
        _machines.blind = str(error)


class Profile:
    """What `profile` gives: open inside the `with`, to be looked at behind it."""

    def __init__(
        self,
        machines: list[tuple[Optional[str], Any]],
        request: _session.Request,
        collectors: Sequence[Collector],
    ) -> None:
        self._vms = machines
        self._request = request
        self._collectors = collectors
        self._registered: list[Registered] = []
        self._states: list[tuple[_machines.Machine, int]] = []
        self._calls: list[int] = []
        self._session: Optional[_session.Session] = None
        self._since = self._until = 0
        self._process = 0
        self._open = False
        self._documents: Optional[dict[str, Any]] = None

    @property
    def path(self) -> str:
        """The profile's directory, for `counterpoint report` and its like. Removed with this object
        unless `output` was given."""
        if self._session is None:
            raise CounterpointError("the profile has not been opened: use it in a `with`")
        return self._session.path

    def __enter__(self) -> Profile:
        if self._session is not None:
            raise CounterpointError("a profile is opened once: make another with profile(…)")
        native = _native.load()
        _machines.install()
        for _, vm in self._vms:
            if _machines.is_remote(vm):
                _machines.attach(vm, native)  # Raises.
        session = _session.begin(native, self._request)
        attached: list[Any] = []
        try:
            devices = {str(d): d for _, vm in self._vms for d in _machines.state_of(vm).devices}
            for collector in self._collectors:
                self._registered.append(Registered(native, collector, list(devices.values())))
            self._since = native.ticks()
            for name, vm in self._vms:
                state = _machines.attach(vm, native, name)
                attached.append(vm)
                if state.unseen is not None:
                    native.lose(_UNSEEN, 1)
                self._states.append((state, native.calls(state.number)))
        except BaseException:
            for vm in attached:
                _machines.detach(vm)
            for registered in self._registered:
                registered.remove()
            _session.end(native, session)
            raise
        self._session, self._process, self._open = session, os.getpid(), True
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> Literal[False]:
        self._open = False
        if self._session is None or self._process != os.getpid():
            # A child that was forked inside: the profile is its parent's.
            return False
        try:
            native = _native.load()
            # Whatever happens on the way (Ctrl-C), nothing stays open.
            try:
                self._until = native.ticks()
                self._calls = [native.calls(state.number) - n for state, n in self._states]
                for registered in self._registered:
                    registered.remove()
            finally:
                try:
                    for _, vm in self._vms:
                        _machines.detach(vm)
                finally:
                    _session.end(native, self._session)
        except Exception as trouble:
            # Nothing of ours may take the place of the model's own error.
            self._session.trouble = self._session.trouble or str(trouble)
        return False

    def report(self, all: bool = False) -> Report:
        """The calls so far; behind the `with`, all of them.

        `all`: book-keeping calls (`vm.builtin.*`) as rows of their own, instead of one for each
        device."""
        if self._session is None:
            raise CounterpointError("the profile has not been opened: use it in a `with`")
        document = self._documents
        if document is None:
            document = _session.read(self._session, self._since, self._until)
            if not self._open:
                self._documents = document
        names = {state.name for state, _ in self._states}
        report = _ops.report(
            document,
            lambda process, name: process == self._process and name in names,
            self._configuration(),
            fold=not all,
        )
        self._remark(report, document, names)
        return report

    def _configuration(self) -> dict[str, Metric]:
        import tvm

        settings: dict[str, Metric] = {"Executor": Text("VM")}
        try:
            threads = int(tvm.get_global_func("runtime.NumThreads")())
            settings["Number of threads"] = Count(threads)
        except Exception:  # Renamed, or not there: no setting.
            pass
        return settings

    def _remark(self, report: Report, document: Mapping[str, Any], names: set[str]) -> None:
        """What these machines lack."""
        blind = [state for state, _ in self._states if state.unseen is not None]
        if blind:
            # Instead of the profile's, which does not know which and why.
            report.losses = [loss for loss in report.losses if loss.name != _UNSEEN]
            why = "; ".join(f"{state.name}: {state.unseen}" for state in blind)
            report.losses.append(
                Loss(
                    _UNSEEN,
                    len(blind),
                    "missing",
                    "virtual machines whose parallel launches cannot be seen: what pool threads"
                    f" counted is in no op ({why}); import counterpoint.tvm before the model is"
                    " compiled or loaded",
                )
            )
        if self._open:
            return
        mine = {
            vm["vm"]: vm["name"]
            for vm in document["vms"]
            if vm["process"] == self._process and vm["name"] in names
        }
        ran = {mine[run["vm"]] for run in document["runs"] if run["vm"] in mine}
        for (state, _), calls in zip(self._states, self._calls):
            if calls == 0 and state.name in ran:
                report.notes.append(
                    f"{state.name}: its functions ran and no op was seen, as with"
                    ' exec_mode="compiled": build with exec_mode="bytecode" for ops; loops can be'
                    " instrumented in either mode"
                )
            elif calls == 0:
                report.notes.append(f"{state.name}: nothing ran while the profile was open")


def profile(
    vm: Union[Any, Iterable[Any], Mapping[str, Any]],
    counters: Union[str, Sequence[str], None] = None,
    *,
    collectors: Sequence[Collector] = (),
    output: Union[str, os.PathLike[str], None] = None,
    multiplex: bool = False,
) -> Profile:
    """Profiles what virtual machines do inside a `with`.

    `vm`: a `relax.VirtualMachine`, several, or a mapping from names for the report to them.

    `counters`: names as `counterpoint list` shows them; `[]` for times only; without it what
    `COUNTERPOINT_CPU_METRICS` says, or else the default set where counters can be read without the
    kernel, and times only where they cannot. A counter that cannot be had is an error that says
    why. `multiplex`: more than the processor has at once may take turns.

    `collectors`: measurements of your own; counters of a `CounterCollector` are added.

    `output`: a directory for the profile, which otherwise lives as long as what this returns.

    In a process that `counterpoint run` started, the profile is a part of the run and has its
    counters. Profiles that are open at once must count the same.
    """
    if isinstance(vm, Mapping):
        machines: list[tuple[Optional[str], Any]] = [(str(name), one) for name, one in vm.items()]
    elif hasattr(vm, "_set_instrument"):
        machines = [(None, vm)]
    else:
        machines = [(None, one) for one in vm]
    for _, one in machines:
        if not hasattr(one, "_set_instrument"):
            raise TypeError(f"profile a relax.VirtualMachine, not {type(one).__name__}")
    if isinstance(counters, str):
        counters = [counters]
    more, variables, own = counters_of(collectors)
    names = None if counters is None else list(counters)
    if len(own) != len(collectors):
        if names is not None and (variables or more is None):
            raise CounterpointError(
                "counters= cannot be together with a CounterCollector for the default set or for"
                " other devices: name all of them in the CounterCollector"
            )
        names = [*(names or []), *(n for n in more if n not in (names or []))] if more else more
    where = None if output is None else os.fspath(output)
    request = _session.Request(names, where, multiplex, variables=variables)
    return Profile(machines, request, own)


def profile_function(
    mod: Any,
    dev: Any,
    collectors: Sequence[Collector],
    func_name: Optional[str] = None,
    warmup_iters: int = 10,
) -> Callable[..., dict[str, Metric]]:
    """Measures one call of one function.

    `mod`: an executable or a module; `func_name`: its function, `main` without it. What this
    returns is called with the function's arguments: it calls the function `warmup_iters` times, then
    once more, measured, and gives `Duration (us)` and every collector's metrics by name. Counters
    include what pool threads counted; their part is apart as `NAME (workers)` where there are any.
    """
    more, variables, own = counters_of(collectors)
    counted = len(own) != len(collectors)
    native = _native.load()
    module = mod.jit() if hasattr(mod, "jit") else mod
    name = func_name or "main"
    function = module[name]

    def measure(*args: Any) -> dict[str, Metric]:
        for _ in range(warmup_iters):
            function(*args)
        dev.sync()
        request = _session.Request(more if counted else [], None, False, variables=variables)
        session = _session.begin(native, request)
        registered: list[Registered] = []
        try:
            registered += [Registered(native, collector, [dev]) for collector in own]
            label = f"{name} of profile_function"
            around = native.instrument(native.vm(label), None)
            since = native.ticks()
            # The function in the place of an op: pool threads count for it, too.
            around(function, name, True, None, *args)
            result = function(*args)
            dev.sync()
            around(function, name, False, result, *args)
            until = native.ticks()
        finally:
            for collector in registered:
                collector.remove()
            _session.end(native, session)
        document = _session.read(session, since, until)
        pid = os.getpid()
        report = _ops.report(document, lambda p, vm: p == pid and vm == label, {}, fold=False)
        if not report.calls:
            why = "; ".join(map(str, report.losses)) or "no loss is known"
            raise CounterpointError(f"the call of {name} was not recorded: {why}")
        row = report.calls[-1]
        about = ("Name", "Percent", "Device", "Count", "Argument Shapes", "Timing")
        return {
            key: value
            for key, value in row.items()
            if key not in about and value is not None
        }

    return measure
