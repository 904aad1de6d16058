"""Implements `loops`, which instruments the code that TVM compiles inside a `with` block.

```
 tvm.compile / relax.build
   └► tvm.tirx.build            survey(): loops as they were scheduled
        └► target.build.llvm    marked(): loops as they are compiled
             │ TVM's LLVM
             ▼ text ── counterpoint loops instrument --schedule ──► text ── TVM's LLVM ──► module
```

`tvm.tirx.build` and `target.build.llvm` are replaced while any thread is in such a block. For
threads that are in no such block, they behave as before. The counting code is added to the text
that LLVM has optimised, and not to TIR, because calls in TIR would keep LLVM from vectorising and
unrolling the loops around them.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

from counterpoint.errors import ArgumentError, CounterpointError, UnsupportedError
from counterpoint.tvm import _loops, _native, _tir

_BUILD = "target.build.llvm"
_KEY = "tirx.instrument_lwp"
_NO_FUNCTIONS = "s_tir.lwp_disable_func_prof"


@dataclass
class _Wish:
    """What a `with loops(…)` block asks for, and the state of the compilation inside the block."""

    words: list[str]
    choice: _tir.Choice
    functions: Optional[bool]
    is_plain: bool
    """Whether none of `max_depth`, `min_height` and `siblings` was given."""
    surveyed: Optional[_tir.Survey] = None
    error: Optional[CounterpointError] = None
    count: int = 0


_wish: ContextVar[Optional[_Wish]] = ContextVar("counterpoint.tvm.loops", default=None)


@contextlib.contextmanager
def loops(
    *,
    mode: str = "sampled",
    max_depth: Optional[int] = None,
    min_height: Optional[int] = None,
    siblings: bool = False,
    functions: Optional[bool] = None,
    filter: Union[str, Sequence[str], None] = None,
) -> Iterator[None]:
    """Instruments all code that this thread compiles with TVM's LLVM inside the `with` block, so that its
    loops are counted and timed.

        with counterpoint.tvm.loops(max_depth=2):
            ex = tvm.compile(mod, "llvm")

    Reports then show the names, kinds and extents that the loops have in the schedule. The arguments are the
    same as for `instrument_module`, with two differences. `max_depth` and `min_height` refer to the loops of
    the schedule that are left after TVM has unrolled and vectorised; parallel loops are included. `filter`
    matches names of PrimFuncs.

    If TVM's own instrumentation pass is switched on in the `PassContext` (`tirx.instrument_lwp`), that pass
    chooses the loops, according to its own keys. Then `max_depth`, `min_height` and `siblings` cannot be
    given.

    If such `with` blocks are nested, the innermost one applies. Other threads are not affected."""
    words = _loops._words(mode, max_depth, min_height, siblings, functions, filter)
    patterns = [word.removeprefix("--filter=") for word in words if word.startswith("--filter=")]
    if patterns and functions:
        raise ArgumentError("functions=True takes all functions: give filter= or functions=, not both")
    choice = _tir.Choice(max_depth, min_height, siblings, _named_like(patterns))
    shared = ["--mode", mode]
    if functions is not None:
        shared.append("--functions" if functions else "--no-functions")
    is_plain = max_depth is None and min_height is None and not siblings
    _check_version()
    # Loads the recorder, so that the instrumented code finds it.
    _native.load()
    _hooks.enter()
    token = _wish.set(_Wish(shared, choice, functions, is_plain))
    try:
        yield
    finally:
        _wish.reset(token)
        _hooks.leave()


def _named_like(patterns: Sequence[str]) -> Any:
    if not patterns:
        return lambda name: True

    def expression(pattern: str) -> str:
        return "".join({"*": ".*", "?": "."}.get(c, re.escape(c)) for c in pattern)

    known = re.compile("|".join(f"(?:{expression(pattern)})" for pattern in patterns), re.DOTALL)
    return lambda name: known.fullmatch(name) is not None


def _check_version() -> None:
    import tvm
    import tvm_ffi

    if not hasattr(tvm_ffi, "structural_map") or not hasattr(tvm, "tirx"):
        raise UnsupportedError(
            f"loops() needs TVM 0.26 or later, this is {tvm.__version__}: compile the model, and give"
            " it to instrument_module()"
        )


class _Hooks:
    """Replaces `tvm.tirx.build` and `target.build.llvm` while any `with loops(…)` block is open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._build: Any = None
        self._generate: Any = None
        self._ours: Any = None

    def enter(self) -> None:
        import tvm
        import tvm_ffi

        with self._lock:
            if self._open == 0:
                generate = tvm_ffi.get_global_func(_BUILD, allow_missing=True)
                if generate is None:
                    raise UnsupportedError("this TVM was built without LLVM")
                build = tvm.tirx.build
                self._generate, self._build = generate, build
                self._ours = _wrapped(build)
                tvm_ffi.register_global_func(
                    _BUILD, lambda mod, target: _generated(generate, mod, target), override=True
                )
                tvm.tirx.build = self._ours
            self._open += 1

    def leave(self) -> None:
        import tvm
        import tvm_ffi

        with self._lock:
            self._open -= 1
            if self._open == 0:
                tvm_ffi.register_global_func(_BUILD, self._generate, override=True)
                # Another package may have replaced `tvm.tirx.build` since `enter`.
                if tvm.tirx.build is self._ours:
                    tvm.tirx.build = self._build
                self._generate = self._build = self._ours = None


_hooks = _Hooks()


def _wrapped(build: Any) -> Any:
    import functools

    import tvm

    @functools.wraps(build)
    def surveyed(mod: Any, *words: Any, **named: Any) -> Any:
        wish = _wish.get()
        if wish is None:
            return build(mod, *words, **named)
        if isinstance(mod, tvm.tirx.PrimFunc):
            mod = tvm.IRModule.from_expr(mod)
        before = wish.surveyed
        try:
            if isinstance(mod, tvm.IRModule):
                mod, wish.surveyed = _tir.survey(mod)
            return build(mod, *words, **named)
        except Exception:
            # An exception loses its type on its way through TVM, so the original is raised here.
            error, wish.error = wish.error, None
            if error is not None:
                raise error from None
            raise
        finally:
            wish.surveyed = before

    return surveyed


def _generated(generate: Any, mod: Any, target: Any) -> Any:
    wish = _wish.get()
    if wish is None:
        return generate(mod, target)
    try:
        return _instrumented(wish, generate, mod, target)
    except CounterpointError as error:
        wish.error = error
        raise


def _instrumented(wish: _Wish, generate: Any, mod: Any, target: Any) -> Any:
    import tvm

    config = tvm.transform.PassContext.current().config
    choice, words = wish.choice, list(wish.words)
    if bool(config.get(_KEY, False)):
        if not wish.is_plain:
            raise ArgumentError(
                f"{_KEY} lets TVM's own pass choose the loops: give its s_tir.lwp_* keys, or"
                " max_depth=, min_height= and siblings=, not both"
            )
        choice = _tir.Choice(takes=choice.takes, by_tvm=True)
        if wish.functions is None and bool(config.get(_NO_FUNCTIONS, False)):
            words.append("--no-functions")
    marked, schedule = _tir.marked(mod, wish.surveyed or _tir.Survey(), choice)
    if not any(loop.get("chosen") for loop in schedule["loops"]) and not wish.functions:
        return generate(marked if choice.by_tvm else mod, target)
    folder = Path(tempfile.mkdtemp(prefix="counterpoint-loops-"))
    try:
        (folder / "schedule.json").write_text(json.dumps(schedule))
        rebuilt = _loops._Rebuilt(folder, [*words, "--schedule", "schedule.json"], wish.count)
        module = rebuilt.module(generate(marked, target))
        wish.count = rebuilt.count
        return module
    finally:
        shutil.rmtree(folder, ignore_errors=True)
