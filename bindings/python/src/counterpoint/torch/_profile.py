"""Implements `counterpoint.torch.profile`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, Optional, Union

from counterpoint import _session
from counterpoint._agent import recorder
from counterpoint._arguments import names_of, part_of, place
from counterpoint.errors import CounterpointError
from counterpoint.loops import LoopReport
from counterpoint.loops import read as read_loops
from counterpoint.metrics import Count, Metric, Text
from counterpoint.report import Report
from counterpoint.torch import _ops, _report


class Profile:
    """The result of `profile`. It records what happens inside the `with` block. Read its report after the
    block."""

    def __init__(self, request: _session.Request, shapes: bool) -> None:
        self._request = request
        self._shapes = shapes
        self._session: Optional[_session.Session] = None
        self._ops: Optional[_ops.Ops] = None
        self._unseen: Optional[str] = None
        self._since = self._until = 0
        self._process = 0
        self._open = False
        self._document: Optional[dict[str, Any]] = None

    @property
    def path(self) -> str:
        """The profile's directory, for `counterpoint report` and other commands. It is temporary
        unless `output` was given or `counterpoint run` records this process. A temporary directory
        is removed when no profile or report that uses it exists any more."""
        if self._session is None:
            raise CounterpointError("the profile has not been opened: use it in a `with`")
        self._session.finish()
        return self._session.path

    def __enter__(self) -> Profile:
        if self._session is not None:
            raise CounterpointError("a profile can only be opened once: make another one with profile(…)")
        ops, native = _ops.connect(), recorder()
        session = _session.begin(native, self._request)
        try:
            self._unseen = ops.watch_parallel()
            if self._unseen is not None:
                native.lose(_ops.PARALLEL_UNSEEN, 1)
            ops.ready()
            ops.start(self._shapes)
            self._since = native.ticks()
        except BaseException:
            _session.end(native, session)
            raise
        self._session, self._ops = session, ops
        self._process, self._open = os.getpid(), True
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> Literal[False]:
        self._open = False
        if self._session is None or self._ops is None or self._process != os.getpid():
            # This process was forked inside the `with` block, so the profile belongs to its parent.
            return False
        try:
            native = recorder()
            # The session must be ended even after Ctrl-C.
            try:
                self._until = native.ticks()
                self._ops.stop(self._shapes)
                if not self._session.joined and self._session.holders == 1:
                    cut = self._ops.open_ranges()
                    if cut:
                        native.lose("call_cut_short", cut)
            finally:
                _session.end(native, self._session)
        except Exception as trouble:
            # An error of Counterpoint must not replace an exception of the program.
            self._session.trouble = self._session.trouble or str(trouble)
        return False

    def report(self) -> Report:
        """Returns a report of the ops and ranges that this process has run inside the `with` block so far. An
        op or range inside others belongs to the profile if the outermost of them began inside the block."""
        if self._session is None:
            raise CounterpointError("the profile has not been opened: use it in a `with`")
        document = self._document
        if document is None:
            document = _session.read(self._session, self._since, self._until)
            if not self._open:
                self._document = document
        report = _report.report(document, self._process, self._configuration())
        if self._unseen is not None:
            report.notes.append(f"what PyTorch's other threads do counts for no op: {self._unseen}")
        if not report.calls and not self._open:
            report.notes.append("PyTorch called no op while the profile was open")
        if not self._open and not self._session.joined:
            report._recorded = self
        return report

    def loops(self) -> LoopReport:
        """Returns the loops of instrumented modules that ran in this process while the profile was recorded.
        Call this after the `with` block. If `counterpoint run` records this process, the loops of the block
        cannot be separated from the others. In this case, returns all loops that the run has recorded so far."""
        if self._session is None or self._open:
            raise CounterpointError("the profile is not closed yet: ask for its loops after the `with`")
        if not self._session.joined and not self._request.loops:
            raise CounterpointError("no loops were recorded: open the profile with loops=True")
        return read_loops(self.path)

    def _configuration(self) -> dict[str, Metric]:
        import torch

        return {
            "Executor": Text(f"PyTorch {torch.__version__}"),
            "Number of threads": Count(int(torch.get_num_threads())),
        }


def profile(
    counters: Union[str, Sequence[str], None] = None,
    *,
    output: Union[str, os.PathLike[str], None] = None,
    multiplex: bool = False,
    shapes: bool = False,
    loops: bool = False,
    budget: Union[str, float, None] = None,
) -> Profile:
    """Profiles what PyTorch does in this process inside a `with` block, on all threads.

    `counters`: names of counters that `counterpoint list` shows, or `[]` to record only times. By default,
    the variable `COUNTERPOINT_CPU_METRICS` chooses the counters. If it is not set, the default counters are
    recorded if they can be read without a system call; otherwise only times are recorded. If a counter is not
    available, the `with` statement raises an error that says why. `multiplex`: if there are more counters
    than the processor has, let them take turns.

    `output`: a directory for the profile. By default, the profile is temporary: it is removed when neither
    the returned object nor a report of it exists any more.

    `shapes`: distinguish ops by the types, shapes and devices of their tensors. PyTorch then also passes the
    arguments of each op to Counterpoint, which costs more than recording the op itself.

    `loops`: also record the loops of modules that Counterpoint has instrumented; `Profile.loops()`
    shows them.

    `budget`: the largest fraction of each thread's processor time that recording may use, for example `"2%"`
    or 0.02. With a budget, all calls of ops are counted, but only some calls, chosen at random, are timed.
    The report has one row for each timed call; its column `Weight` is the number of calls that the row
    represents (docs/sampling.md). With 0, calls are only counted. `budget` cannot be combined with `loops`.

    If `torch.profiler` records at the same time, the values of the counters also become arguments of the
    events that it records for ops.

    In a process that `counterpoint run` started, the profile is a part of the run and has the run's counters.
    Profiles that are open at the same time must have the same counters.
    """
    request = _session.Request(
        None if counters is None else names_of(counters, "counters="),
        place(output),
        bool(multiplex),
        loops=bool(loops),
        budget=part_of(budget),
    )
    return Profile(request, bool(shapes))
