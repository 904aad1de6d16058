"""Finds the fixed functions of an executable: those that make the same calls, with the same shapes,
in each run.

The bytecode of a virtual machine has four instructions: call, return, goto and if. A function
without `if` and `goto` makes its calls in the same order for all arguments. A function whose shapes
are not constant must allocate a heap for them.
"""

from __future__ import annotations

import re
from typing import Any

_FUNCTION = re.compile(r"^@(.+):$")
_CALL = re.compile(r"^\s+call\s+(\S+)\s")
_RETURN = re.compile(r"^\s+ret\s")
# Calls of these builtins show that a called function or a shape is known only at run time.
_UNKNOWN = frozenset(
    {"vm.builtin.invoke_closure", "vm.builtin.make_closure", "vm.builtin.call_tir_dyn", "vm.builtin.alloc_shape_heap"}
)


def functions(executable: Any) -> frozenset[str]:
    """Returns the fixed functions, or none if the executable cannot show its code."""
    try:
        return _of_text(_text(executable))
    except Exception:  # The executable is of another kind; all runs of its functions are watched.
        return frozenset()


def _text(executable: Any) -> str:
    shown = getattr(executable, "as_text", None)
    if callable(shown):
        return str(shown())
    return str(executable["as_text"]())


def _of_text(text: str) -> frozenset[str]:
    calls: dict[str, set[str]] = {}
    open_ended: set[str] = set()
    name = ""
    for line in text.splitlines():
        if (found := _FUNCTION.match(line)) is not None:
            name = found[1]
            calls[name] = set()
        elif line.startswith("@"):
            name = ""  # A kernel, which has no bytecode.
        elif not line.strip() or not name:
            continue
        elif (found := _CALL.match(line)) is not None:
            calls[name].add(found[1])
        elif _RETURN.match(line) is None:
            # The instruction is a jump, or one that only a later version of TVM has.
            open_ended.add(name)
    open_ended |= {name for name, called in calls.items() if called & _UNKNOWN}
    # A function that calls a function that is not fixed is not fixed either.
    while more := {n for n, called in calls.items() if called & open_ended} - open_ended:
        open_ended |= more
    return frozenset(calls) - open_ended
