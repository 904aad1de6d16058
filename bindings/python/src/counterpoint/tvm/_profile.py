"""Implements `profile` and `profile_function`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, Optional, Union

from counterpoint import _ops, _session
from counterpoint._arguments import described, names_of, part_of, place
from counterpoint.errors import ArgumentError, CounterpointError
from counterpoint.loops import LoopReport
from counterpoint.loops import read as read_loops
from counterpoint.metrics import Count, Duration, Metric, Text
from counterpoint.report import Loss, Report
from counterpoint.tvm import _cuda, _machines, _native
from counterpoint.tvm.collectors import Chosen, Collector, Registered, checked, counters_of

_prepared = False
_UNSEEN = "parallel_unseen"
_FAILED = "collector_failed"


def prepare() -> None:
    """Replaces methods of `VirtualMachine`, and intercepts parallel launches of modules that are
    loaded from now on. An error is only reported when a profile is opened."""
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


class _Recorded:
    """What a profile stores about a machine when the profile begins. Another profile may later give the
    machine another name."""

    def __init__(self, state: _machines.Machine, asked: Optional[str], calls: int) -> None:
        self.unseen = state.unseen
        self.number = state.number
        # The name in the records, and the name to show.
        self.name = state.name
        self.label = asked if asked is not None else state.name
        # The number of the machine's ops before the profile; after its end, the number of ops in
        # the profile.
        self.calls = calls


def _explained(loss: Loss, name: str, first: str) -> Loss:
    """Returns the loss. If its name is `name`, `first` (a collector's first error) is added to its
    explanation."""
    if loss.name != name:
        return loss
    word = "the first error" if "the first error" not in loss.explanation else "another"
    return replace(loss, explanation=f"{loss.explanation}; {word}: {first}")


def _register(
    native: _native.Native,
    chosen: Chosen,
    devices: list[Any],
    registered: list[Union[Registered, _cuda.Registered]],
) -> None:
    """Registers collectors. A collector is appended to `registered` as soon as it is registered, so that the
    caller can remove it after an error."""
    for collector in chosen.own:
        registered.append(Registered(native, collector, devices))
    for counters in chosen.devices:
        of_device = _cuda.register(native, counters)
        if of_device is not None:
            registered.append(of_device)


class Profile:
    """The result of `profile`. It records what happens inside the `with` block. Read its report after the
    block."""

    def __init__(
        self,
        machines: list[tuple[Optional[str], Any]],
        request: _session.Request,
        chosen: Chosen,
    ) -> None:
        self._vms = machines
        self._request = request
        self._chosen = chosen
        self._registered: list[Union[Registered, _cuda.Registered]] = []
        self._machines: list[_Recorded] = []
        self._session: Optional[_session.Session] = None
        self._since = self._until = 0
        self._process = 0
        self._open = False
        self._documents: Optional[dict[str, Any]] = None

    @property
    def path(self) -> str:
        """The profile's directory, for `counterpoint report` and other commands. It is temporary unless
        `output` was given or `counterpoint run` records this process. A temporary directory is removed when
        no profile or report that uses it exists any more."""
        if self._session is None:
            raise CounterpointError("the profile has not been opened: use it in a `with`")
        self._session.finish()
        return self._session.path

    def __enter__(self) -> Profile:
        if self._session is not None:
            raise CounterpointError("a profile can only be opened once: make another one with profile(…)")
        native = _native.load()
        _machines.install()
        for _, vm in self._vms:
            if _machines.is_remote(vm):
                _machines.attach(vm, native)  # This raises the error.
        session = _session.begin(native, self._request)
        attached: list[Any] = []
        try:
            devices = {str(d): d for _, vm in self._vms for d in _machines.state_of(vm).devices}
            _register(native, self._chosen, list(devices.values()), self._registered)
            self._since = native.ticks()
            for name, vm in self._vms:
                state = _machines.attach(vm, native, name)
                attached.append(vm)
                if state.unseen is not None:
                    native.lose(_UNSEEN, 1)
                self._machines.append(_Recorded(state, name, native.calls(state.number)))
                native.ready(state.number)
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
            # This process was forked inside the `with` block, so the profile belongs to its parent.
            return False
        try:
            native = _native.load()
            # The session must be ended even after Ctrl-C.
            try:
                self._until = native.ticks()
                for machine in self._machines:
                    machine.calls = native.calls(machine.number) - machine.calls
                for registered in self._registered:
                    registered.remove()
            finally:
                try:
                    for _, vm in self._vms:
                        _machines.detach(vm)
                finally:
                    _session.end(native, self._session)
        except Exception as trouble:
            # An error of Counterpoint must not replace an exception of the model.
            self._session.trouble = self._session.trouble or str(trouble)
        self._tell(error)
        return False

    def _tell(self, error: Optional[BaseException]) -> None:
        """If Python turns warnings into errors, raises the error of a failed collector, unless an
        error of the model is already propagating."""
        try:
            for registered in self._registered:
                if registered.failure is not None:
                    _session.tell(f"a collector failed: {registered.failure}")
        except Warning:
            if error is None:
                raise

    def report(self, all: bool = False) -> Report:
        """Returns a report of the calls that the machines have made inside the `with` block so far.

        `all`: show each bookkeeping call (`vm.builtin.*`) as a row. By default, one row for each device
        contains all of them."""
        if self._session is None:
            raise CounterpointError("the profile has not been opened: use it in a `with`")
        document = self._documents
        if document is None:
            document = _session.read(self._session, self._since, self._until)
            if not self._open:
                self._documents = document
        names = {machine.name for machine in self._machines}
        report = _ops.report(
            document,
            lambda process, name: process == self._process and name in names,
            self._configuration(),
            fold=not all,
        )
        self._remark(report, document, names)
        if not self._open and not self._session.joined:
            report._recorded = self
        return report

    def loops(self) -> LoopReport:
        """Returns the loops of instrumented modules that ran in this process while the profile was recorded.
        Call this after the `with` block. If `counterpoint run` records this process, the loops of the block
        cannot be separated from the others. In this case, returns all loops that the run has recorded so
        far."""
        if self._session is None or self._open:
            raise CounterpointError("the profile is not closed yet: ask for its loops after the `with`")
        if not self._session.joined and not self._request.loops:
            raise CounterpointError("no loops were recorded: open the profile with loops=True")
        return read_loops(self.path)

    def _configuration(self) -> dict[str, Metric]:
        import tvm

        settings: dict[str, Metric] = {"Executor": Text("VM")}
        try:
            threads = int(tvm.get_global_func("runtime.NumThreads")())
            settings["Number of threads"] = Count(threads)
        except Exception:  # The setting was renamed or does not exist.
            pass
        return settings

    def _remark(self, report: Report, document: Mapping[str, Any], names: set[str]) -> None:
        """Adds losses and notes to the report. They say what is missing for the profile's machines."""
        for registered in self._registered:
            if registered.failure is not None:
                report.losses = [_explained(loss, _FAILED, registered.failure) for loss in report.losses]
        blind = [machine for machine in self._machines if machine.unseen is not None]
        if blind:
            # The loss `_UNSEEN` that the profile contains names neither the machine nor the reason,
            # so it is replaced.
            report.losses = [loss for loss in report.losses if loss.name != _UNSEEN]
            why = "; ".join(f"{machine.label}: {machine.unseen}" for machine in blind)
            report.losses.append(
                Loss(
                    _UNSEEN,
                    len(blind),
                    "missing",
                    "virtual machines whose parallel launches cannot be seen: what pool threads"
                    f" counted is not part of any op ({why}); import counterpoint.tvm before the model is"
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
        for machine in self._machines:
            if machine.calls == 0 and machine.name in ran:
                report.notes.append(
                    f"{machine.label}: its functions ran and no op was seen, as with"
                    ' exec_mode="compiled": build with exec_mode="bytecode" for ops; loops can be'
                    " instrumented in either mode"
                )
            elif machine.calls == 0:
                report.notes.append(f"{machine.label}: nothing ran while the profile was open")


def profile(
    vm: Union[Any, Iterable[Any], Mapping[str, Any]],
    counters: Union[str, Sequence[str], None] = None,
    *,
    collectors: Sequence[Collector] = (),
    output: Union[str, os.PathLike[str], None] = None,
    multiplex: bool = False,
    bookkeeping: bool = False,
    loops: bool = False,
    plugins: Union[str, os.PathLike[str], Sequence[Union[str, os.PathLike[str]]]] = (),
    keep_code: bool = False,
    budget: Union[str, float, None] = None,
    plugin_ids: bool = False,
) -> Profile:
    """Profiles what virtual machines do inside a `with` block.

    `vm`: a `relax.VirtualMachine`, a list of virtual machines, or a mapping from the names in the report to
    virtual machines.

    `counters`: names of counters that `counterpoint list` shows, or `[]` to record only times. By default,
    the variable `COUNTERPOINT_CPU_METRICS` chooses the counters. If it is not set, the default counters are
    recorded if they can be read without a system call; otherwise only times are recorded. If a counter is not
    available, the `with` statement raises an error that says why. `multiplex`: if there are more counters
    than the processor has, let them take turns.

    `collectors`: objects that measure further values of each op (`counterpoint.tvm.collectors`). The counters
    of a `CounterCollector` are added to `counters`.

    `output`: a directory for the profile. By default, the profile is temporary: it is removed when neither
    the returned object nor a report of it exists any more.

    `bookkeeping`: also read counters for bookkeeping ops (`vm.builtin.*`). By default, these ops are only
    timed, and their counts are part of the row `(entry function)`.

    `loops`: also record the loops of modules that were compiled inside `with loops()` or made by
    `instrument_module`. `Profile.loops()` returns them. `keep_code`: copy the machine code of these modules
    into the profile, for `counterpoint loops report --asm`.

    `plugins`: profiler plugins to load into this process: files, directories, or names of plugins that come
    with Counterpoint. They record while the profile is open. `counterpoint report` and `trace export` show
    their events, if the profile is kept with `output`. Plugins do not work in forked children.

    `plugin_ids`: pass an id for each op to the plugins. If a plugin uses these ids, a timeline has arrows
    from an op to the kernels that it launched. This costs time in each op. `plugin_ids` cannot be combined
    with `budget`.

    `budget`: the largest fraction of each thread's processor time that recording may use, for example `"2%"`
    or 0.02. With a budget, all calls of ops are counted, but only some calls, chosen at random, are timed.
    The report has one row for each timed call; its column `Weight` is the number of calls that the row
    represents (docs/sampling.md). With 0, calls are only counted. With collectors of your own, each call is
    timed. `budget` cannot be combined with `loops`.

    In a process that `counterpoint run` started, the profile is a part of the run and has the run's counters.
    Profiles that are open at the same time must have the same counters.
    """
    machines = _machines_of(vm)
    names = None if counters is None else names_of(counters, "counters=")
    collectors = checked(collectors)
    chosen = counters_of(collectors)
    more, variables = chosen.names, chosen.variables
    if chosen.counts:
        if names is not None and (variables or more is None):
            raise CounterpointError(
                "counters= cannot be combined with a CounterCollector for the default set or for"
                " other devices: name all counters in the CounterCollector"
            )
        names = [*(names or []), *(n for n in more if n not in (names or []))] if more else more
    request = _session.Request(
        names,
        place(output),
        bool(multiplex),
        variables=variables,
        bookkeeping=bool(bookkeeping),
        loops=bool(loops) or bool(keep_code),
        plugins=_plugins(plugins),
        keep_code=bool(keep_code),
        budget=part_of(budget),
        plugin_ids=bool(plugin_ids),
    )
    return Profile(machines, request, chosen)


def _plugins(
    given: Union[str, os.PathLike[str], Sequence[Union[str, os.PathLike[str]]]],
) -> list[str]:
    """Returns the paths and names in `given`, which may also be a single plugin."""
    if isinstance(given, (str, os.PathLike)):
        given = [given]
    texts = []
    for one in given:
        text = os.fspath(one)
        if not isinstance(text, str) or not text:
            raise ArgumentError(f"plugins={one!r}: not the path or name of a plugin")
        texts.append(text)
    return texts


def _machines_of(vm: object) -> list[tuple[Optional[str], Any]]:
    if isinstance(vm, Mapping):
        machines: list[tuple[Optional[str], Any]] = [(str(name), one) for name, one in vm.items()]
    elif _is_machine(vm):
        machines = [(None, vm)]
    elif isinstance(vm, (list, tuple, set, frozenset)) or isinstance(vm, Iterator):
        machines = [(None, one) for one in vm]
    else:
        raise _no_machine(vm)
    if not machines:
        raise ArgumentError("there is no virtual machine to profile")
    known: dict[int, Optional[str]] = {}
    for name, one in machines:
        if not _is_machine(one):
            raise _no_machine(one)
        if id(one) in known:
            names = "" if name is None else f" as {known[id(one)]!r} and as {name!r}"
            raise ArgumentError(f"the same virtual machine is there twice{names}")
        known[id(one)] = name
    return machines


def _is_machine(vm: object) -> bool:
    return hasattr(vm, "_set_instrument") and not isinstance(vm, type)


def _no_machine(vm: object) -> ArgumentError:
    made = ": make one of it, relax.VirtualMachine(executable, device)"
    is_executable = hasattr(vm, "jit") or hasattr(vm, "get_function")
    return ArgumentError(
        "profile a relax.VirtualMachine, several of them in a list, or a mapping from names to them,"
        f" not {described(vm)}{made if is_executable else ''}"
    )


def profile_function(
    mod: Any,
    dev: Any,
    collectors: Sequence[Collector],
    func_name: Optional[str] = None,
    warmup_iters: int = 10,
) -> Callable[..., dict[str, Metric]]:
    """Returns a Python function that measures one call of a function of `mod`.

    `mod`: an executable, a module or a virtual machine. `func_name`: the name of the measured function in
    `mod` (default `main`). The returned function takes the same arguments as the measured function. It calls
    the measured function `warmup_iters` times, and measures one more call. It returns a dictionary of
    `Duration (us)` and the metrics that the collectors measured. The values of counters include the counts of
    TVM's pool threads. If pool threads took part in the call, their counts alone are the metrics
    `NAME (workers)`.
    """
    collectors = checked(collectors)
    chosen = counters_of(collectors)
    name = "main" if func_name is None else func_name
    if not isinstance(name, str):
        raise ArgumentError(f"func_name= must be the name of a function, not {described(name)}")
    if not isinstance(warmup_iters, int) or warmup_iters < 0:
        raise ArgumentError(f"warmup_iters= must be a number of at least 0, not {described(warmup_iters)}")
    if not hasattr(dev, "sync"):
        raise ArgumentError(f"dev= must be a device such as tvm.cpu(), not {described(dev)}")
    native = _native.load()
    function = _function(mod, dev, name)

    def measure(*args: Any) -> dict[str, Metric]:
        for _ in range(warmup_iters):
            function(*args)
        dev.sync()
        counters = chosen.names if chosen.counts else []
        request = _session.Request(counters, None, False, variables=chosen.variables)
        session = _session.begin(native, request)
        registered: list[Union[Registered, _cuda.Registered]] = []
        try:
            _register(native, chosen, [dev], registered)
            machine = _machines.Machine([dev], None)
            machine.register(native, f"{name} of profile_function")
            label = machine.name
            around = native.instrument(machine.number, None)
            native.ready(machine.number)
            since = native.ticks()
            # The call is recorded like an op, so that the counts of TVM's pool threads are added to
            # those of the calling thread.
            around(function, name, True, None, *args)
            result = function(*args)
            dev.sync()
            around(function, name, False, result, *args)
            until = native.ticks()
        finally:
            for one in registered:
                one.remove()
            _session.end(native, session)
        for one in registered:
            if one.failure is not None:
                _session.tell(f"a collector failed: {one.failure}")
        document = _session.read(session, since, until)
        pid = os.getpid()
        report = _ops.report(document, lambda p, vm: p == pid and vm == label, {}, fold=False)
        if not report.calls:
            why = "; ".join(map(str, report.losses)) or "no loss is known"
            if session.joined:
                why += ". In a run with a budget, a call may be only counted"
            raise CounterpointError(f"the call of {name} was not recorded: {why}")
        row = report.calls[-1]
        about = ("Name", "Percent", "Device", "Count", "Argument Shapes", "Timing")
        return {
            key: value
            for key, value in row.items()
            if key not in about and value is not None
        }

    return measure


def _function(mod: Any, dev: Any, name: str) -> Any:
    try:
        import tvm
        from tvm import relax

        if isinstance(mod, relax.VMExecutable):
            # The functions of a `VMExecutable` can only be called through a virtual machine.
            mod = relax.VirtualMachine(mod, dev)
        elif not isinstance(mod, (tvm.runtime.Module, relax.VirtualMachine)):
            if not isinstance(mod, tvm.runtime.Executable):
                raise ArgumentError(
                    "profile_function measures a function of an executable (what tvm.compile gives), of"
                    f" a tvm.runtime.Module or of a relax.VirtualMachine, not of {described(mod)}"
                )
            mod = mod.jit()
        return mod[name]
    except (AttributeError, KeyError, ValueError, RuntimeError) as error:
        if isinstance(error, CounterpointError):
            raise
        which = " (func_name= says which; without it, main)" if name == "main" else ""
        raise ArgumentError(f"{described(mod)} has no function {name!r}{which}: {error}") from None
