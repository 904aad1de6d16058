"""Manages the session (the recording in this process), and runs the program that makes and reads
profiles.

Profiles that are open at the same time share the one session, so they have the same counters. In
a process that `counterpoint run` started, that run records, and no session begins.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
import warnings
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from counterpoint import _agent, _places
from counterpoint._program import run
from counterpoint._visible import visible
from counterpoint.errors import ArgumentError, ConflictError, CounterpointError

_lock = threading.RLock()
_current: Optional[Session] = None
_told: set[str] = set()


class CounterpointWarning(UserWarning):
    """A profile lacks something that the user asked for."""


class Request:
    """What the user asks a profile to record."""

    def __init__(
        self,
        counters: Optional[Sequence[str]],
        output: Optional[str],
        multiplex: bool,
        skip_missing: bool = False,
        variables: Optional[dict[str, str]] = None,
        bookkeeping: bool = False,
        loops: bool = False,
        plugins: Sequence[str] = (),
        keep_code: bool = False,
        budget: Optional[float] = None,
        plugin_ids: bool = False,
    ) -> None:
        self.counters = None if counters is None else list(counters)
        self.output = output
        self.multiplex = multiplex
        self.skip_missing = skip_missing
        # Variables COUNTERPOINT_<DEVICE>_METRICS, which choose the counters for a kind of device.
        self.variables = variables or {}
        self.bookkeeping = bookkeeping
        self.loops = loops
        # Each plugin is the path of a file or directory, or a name.
        self.plugins = list(plugins)
        self.plugin_ids = plugin_ids
        self.keep_code = keep_code
        # The fraction of each thread's processor time that recording may use, or None.
        self.budget = budget
        if budget is not None and loops:
            raise ArgumentError("budget= cannot be combined with loops: all of their hits are recorded")
        if budget is not None and plugin_ids:
            raise ArgumentError("budget= cannot be combined with plugin_ids: each op needs its id")

    def same(self, other: Request) -> bool:
        """Returns whether both requests can share one session."""
        return self._key() == other._key()

    def _key(self) -> tuple[object, ...]:
        key = (self.counters, self.multiplex, self.variables, self.bookkeeping, self.loops)
        return (*key, self.keep_code, self.plugins, self.budget, self.plugin_ids)


class Session:
    """A recording in this process. It is open or has ended."""

    def __init__(self, native: _agent.Recorder, request: Request) -> None:
        self.request = request
        self.holders = 0
        self.process = os.getpid()
        self.trouble: Optional[str] = None
        self.open = True
        # The directory of the pool (the shared memory for records) of a temporary profile. `None`
        # after the records were moved to the profile, or if the profile is not temporary.
        self.pool: Optional[str] = None
        # With an empty path, session_begin reads no run file, and only tells whether `counterpoint run`
        # records this process.
        self.joined = native.session_begin("") == _agent.RUN_RECORDS
        if self.joined:
            path = native.profile()
            if path is None:
                raise CounterpointError("the run that records this process has no profile")
            self.path = path
            if request.output is not None:
                tell(
                    f"output={request.output!r} is not made: this process records into {path}"
                    " (counterpoint run)"
                )
            self._compare(request)
            return
        folder = None
        if request.output is None:
            folder = _places.make()
            # Removes the folder when no profile can make a report of this session any more.
            self._remove = weakref.finalize(self, _remove, folder, os.getpid())
        self.path = request.output or os.path.join(folder or "", "profile.cpt")
        prepared = _prepare(self.path, request)
        self.path = prepared["profile"]
        if folder is not None:
            self.pool = os.path.dirname(prepared["pool"])
            self._remove.detach()
            weakref.finalize(self, _remove, folder, os.getpid(), self.pool)
        for note in prepared["warnings"]:
            tell(note)
        answer = native.session_begin(prepared["run_file"])
        if answer != _agent.BEGAN:
            _finish(self.path)
            if answer == _agent.ANOTHER_IS_OPEN:
                raise ConflictError("a session that this package did not open is open in this process")
            if answer == _agent.OFF:
                raise CounterpointError(
                    "the recorder of this process is off: another copy of Counterpoint was loaded"
                    " first, or it had an internal error"
                )
            raise CounterpointError(f"{prepared['run_file']} cannot be recorded into")

    def _compare(self, request: Request) -> None:
        """Warns about things that were requested and that the run does not record."""
        if request.plugins:
            tell(
                "plugins= has no effect: this process runs under `counterpoint run`, which loads the"
                " plugins that `counterpoint run --plugin` names"
            )
        if not request.counters and not request.bookkeeping and request.budget is None:
            return
        try:
            manifest = json.loads((Path(self.path) / "manifest.json").read_text())
            have = {counter["name"] for counter in manifest["counters"]}
        except (OSError, ValueError, KeyError, TypeError):
            return
        has = manifest.get("budget")
        if request.budget is not None and (has is None or abs(has - request.budget) > 1e-9):
            tell(
                "budget= has no effect: this process runs under `counterpoint run`; start it as"
                f" `counterpoint run --budget {_percent(request.budget)}`"
            )
        if request.bookkeeping and have and not manifest.get("bookkeeping"):
            tell(
                "bookkeeping=True has no effect: this process runs under `counterpoint run`, which"
                " times vm.builtin.* ops without counting; start it as"
                " `counterpoint run --bookkeeping`"
            )
        if not request.counters:
            return
        asked: list[str] = []
        for text in request.counters:
            # A name such as `pmu/event=1,umask=2/` itself contains commas.
            asked += [text] if "/" in text else text.replace("{", "").replace("}", "").split(",")
        lacking = [name for name in asked if name not in have]
        if lacking:
            tell(
                f"not counted: {', '.join(lacking)}; this process runs under `counterpoint run`, which"
                " chose the counters: name them in the list of that command (`counterpoint run -e …`)"
            )

    def close(self, native: _agent.Recorder) -> None:
        """Ends the session. Must not raise, because a model's exception may be propagating."""
        self.open = False
        if self.joined or self.process != os.getpid():
            return
        native.session_end()
        if self.pool is not None:
            # Only this package reads a temporary profile. The records are collected when the profile is read
            # and not here, because starting the program `counterpoint` takes longer than one run of many
            # models. The number of profiles with uncollected records is limited, because their pools are in
            # memory.
            _uncollected.append(weakref.ref(self))
            while len(_uncollected) > _MOST_UNCOLLECTED:
                oldest = _uncollected.pop(0)()
                if oldest is not None:
                    oldest.finish()
            return
        try:
            _finish(self.path)
        except CounterpointError as error:
            self.trouble = str(error)

    def finish(self) -> None:
        """Moves the records from the pool to the profile's directory. Does not raise."""
        if self.open or self.pool is None or self.process != os.getpid():
            return
        self.pool = None
        try:
            _finish(self.path)
        except CounterpointError as error:
            self.trouble = str(error)


# Sessions whose records are still in their pools, the oldest first.
_uncollected: list[weakref.ref[Session]] = []
_MOST_UNCOLLECTED = 4


def begin(native: _agent.Recorder, request: Request) -> Session:
    """Returns the open session, or a new one."""
    global _current
    with _lock:
        session = _current
        if session is not None and session.process == os.getpid():
            if session.joined:
                session._compare(request)
            elif not session.request.same(request):
                raise ConflictError(
                    f"a profile that counts {_list(session.request)} is open in this process, and one"
                    f" that counts {_list(request)} cannot be open at the same time: end the first, or"
                    " ask both for the same counters"
                )
            elif request.output is not None and request.output != session.request.output:
                tell(
                    f"output={request.output!r} is not made: a profile that is already open in this"
                    f" process records into {session.path}"
                )
            session.holders += 1
            return session
        session = Session(native, request)
        session.holders = 1
        _current = session
        return session


def end(native: _agent.Recorder, session: Session) -> None:
    """Closes the session if no other profile uses it."""
    global _current
    with _lock:
        session.holders -= 1
        if session.holders == 0:
            if _current is session:
                _current = None
            session.close(native)


def _forked() -> None:
    """A forked child does not use its parent's session. The recording of `counterpoint run` continues in
    the child."""
    global _current, _lock
    _lock = threading.RLock()
    _uncollected.clear()
    if _current is not None:
        joined, _current = _current.joined, None
        if not joined:
            _agent.recorder().session_end()


os.register_at_fork(after_in_parent=_places.expect_children, after_in_child=_forked)


def read(session: Session, since: int, until: int) -> dict[str, Any]:
    """Returns the ops between two moments, as `counterpoint ops` prints them (docs/schema.md)."""
    if session.trouble is not None:
        raise CounterpointError(session.trouble)
    words = ["ops", session.path, "--format", "json", "--all", "--since", str(since)]
    if until:
        words += ["--until", str(until)]
    document = json.loads(run(words))
    if document.get("schema") != "counterpoint.ops/2":
        raise CounterpointError(f"unknown schema {document.get('schema')!r} of counterpoint ops")
    return dict(document)


def _prepare(path: str, request: Request) -> dict[str, Any]:
    words = ["session", "prepare", "-o", path, "--format", "json"]
    if request.bookkeeping:
        words.append("--bookkeeping")
    if request.loops:
        words.append("--loops")
    if request.keep_code:
        words.append("--keep-code")
    if request.multiplex:
        words.append("--multiplex")
    if request.skip_missing:
        words.append("--skip-missing")
    for plugin in request.plugins:
        words.append(f"--plugin={plugin}")
    if request.plugin_ids:
        words.append("--plugin-ids")
    if request.budget is not None:
        words.append(f"--budget={_percent(request.budget)}")
    if request.counters is not None:
        words += ["-e", ",".join(request.counters) or "none"]
    try:
        return dict(json.loads(run(words, request.variables)))
    except CounterpointError as error:
        raise CounterpointError(_in_our_words(str(error))) from None


def _percent(part: float) -> str:
    return f"{100 * part:.10f}".rstrip("0").rstrip(".") + "%"


# Patterns for options in messages of the program `counterpoint`, and the corresponding arguments of
# this package.
_WORDS = (
    (r"(?m)^-e [^\n]*?: counter list, byte \d+: ", "counters: "),
    (r"(?m)^-e ([^\n]*?): ", r"counters \1: "),
    (r"with -o DIR", "with output="),
    (r"leave out -e\b", "leave out counters="),
    (r"(?<![\w`])-e\b", "counters="),
    (r"--multiplex\b", "multiplex=True"),
    (r"with --events-dir or an installed perf", "with perf installed"),
)


def _in_our_words(text: str) -> str:
    """Replaces the program's options in a message by our arguments. Commands that the user should
    type stay as they are."""
    for said, ours in _WORDS:
        text = re.sub(said, ours, text)
    return text


def _finish(path: str) -> None:
    run(["session", "finish", path], good=(0, 1))


def tell(text: str) -> None:
    """Warns once for each text in a process."""
    if text not in _told:
        _told.add(text)
        warnings.warn(visible(text), CounterpointWarning, stacklevel=_user_level())


def _user_level() -> int:
    """Returns the `stacklevel` of the user's code for a warning from `tell`, whose own level is 1.
    (`skip_file_prefixes` needs Python 3.12.)"""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and _is_ours(frame.f_globals.get("__name__")):
        frame, level = frame.f_back, level + 1
    return level


def _is_ours(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] == "counterpoint"


def _list(request: Request) -> str:
    counters = "the default counters"
    if request.counters is not None:
        counters = ", ".join(request.counters) or "nothing"
    elif request.variables:
        counters = "; ".join(f"{name}={text}" for name, text in request.variables.items())
    extra = [
        word
        for word, asked in (
            ("multiplex=True", request.multiplex),
            ("bookkeeping=True", request.bookkeeping),
            ("loops=True", request.loops),
            (f"plugins={request.plugins!r}", request.plugins),
            ("plugin_ids=True", request.plugin_ids),
            (f"budget={request.budget}", request.budget is not None),
        )
        if asked
    ]
    return " with ".join([counters, " and ".join(extra)]) if extra else counters


def _remove(folder: str, process: int, pool: Optional[str] = None) -> None:
    """Removes the folders of a temporary profile and of its pool, unless this process is a forked child."""
    if process == os.getpid():
        shutil.rmtree(folder, ignore_errors=True)
        if pool is not None:
            shutil.rmtree(pool, ignore_errors=True)
