"""Finds the loops of TIR before and after TVM lowers a module, and marks them, so that they can be found in
the text of LLVM IR.

```
 TIR as scheduled ──► survey() ──► every loop with kind and extent; each gets an annotation
       │ TVM's pipeline: unrolls, vectorises, removes
       ▼
 TIR as compiled  ──► marked() ──► loops that are left are chosen by depth and height, and named
                                   after their numbers: `k` becomes `k__cpt7_`
```

In the text of LLVM IR, the labels of basic blocks contain the names of the loop variables. The debug
locations of instructions contain source lines that stand for loops (`LINE` + the loop's number).
`crates/ir/src/schedule.rs` reads the labels and the lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

_ANNOTATION = "counterpoint.loop"
_BY_TVM = "counterpoint.by_tvm"
_SCOPE = "compute_scope"
_START, _END = "start_profile_intrinsic", "end_profile_intrinsic"
# The version of the schedule file, and the source line that stands for loop 0. Both are the same in
# crates/ir/src/schedule.rs.
_VERSION, LINE = 1, 1 << 30
_HEAD = re.compile(r"^(\s*)for \S*__cpt(\d+)_ in ")
_MARK = re.compile(r"__cpt\d+_")


@dataclass
class Loop:
    """A loop of the TIR as scheduled, or a loop of the compiled TIR that matches no scheduled loop."""

    function: str
    variable: str
    kind: str
    extent: Optional[int]
    parent: Optional[Loop]
    source: Optional[tuple[str, int]] = None
    is_left: bool = False
    """Whether the loop still exists when TVM generates code."""
    by_tvm: bool = False
    """Whether TVM's own instrumentation pass has chosen the loop."""
    chosen: bool = False
    number: int = -1
    lines: Optional[tuple[int, int]] = None

    def around(self) -> Optional[Loop]:
        """Among the loops around this one that TVM has not removed, returns the innermost, if any."""
        at = self.parent
        while at is not None and not at.is_left:
            at = at.parent
        return at


@dataclass
class Choice:

    max_depth: Optional[int] = None
    min_height: Optional[int] = None
    siblings: bool = False
    takes: Callable[[str], bool] = lambda name: True
    """Takes a function's name, and returns whether loops of this function may be chosen."""
    by_tvm: bool = False
    """Whether TVM's own instrumentation pass chooses the loops, instead of `max_depth`, `min_height`
    and `siblings`."""

    def choose(self, loops: Sequence[Loop]) -> None:
        """Sets `chosen` in the loops that TVM has not removed."""
        left = [loop for loop in loops if loop.is_left]
        # The loops directly inside each loop or function. A key consists of the function's name and
        # the `id` of the loop around these loops, or 0 if no loop is around them.
        inside: dict[tuple[str, int], list[Loop]] = {}

        def place(loop: Loop) -> tuple[str, int]:
            around = loop.around()
            return loop.function, id(around) if around is not None else 0

        for loop in left:
            inside.setdefault(place(loop), []).append(loop)

        def height(loop: Loop) -> int:
            children = inside.get((loop.function, id(loop)), ())
            return max((height(child) + 1 for child in children), default=0)

        deepest = self.max_depth if self.max_depth is not None else (None if self.siblings else 2)
        for loop in left:
            depth, alone = _depth(loop), len(inside[place(loop)]) == 1
            lowest = self.min_height if self.min_height is not None else min(depth, 1)
            loop.chosen = self.takes(loop.function) and (
                loop.by_tvm
                if self.by_tvm
                else (deepest is None or depth <= deepest)
                and height(loop) >= lowest
                and not (self.siblings and alone)
            )


def _depth(loop: Loop) -> int:
    depth, around = 0, loop.around()
    while around is not None:
        depth, around = depth + 1, around.around()
    return depth


@dataclass
class Survey:
    """The loops that `survey` found. If a loop is annotated, its annotation is its index in `loops`."""

    loops: list[Loop] = field(default_factory=list)

    def of(self, function: str, found: Any, taken: set[int]) -> Optional[Loop]:
        """Returns the surveyed loop from which TVM made `found` (a loop of the compiled TIR), if there
        is one."""
        number = found.annotations.get(_ANNOTATION) if found.annotations else None
        if number is not None and int(number) < len(self.loops):
            return self.loops[int(number)]
        for loop in self.loops:
            same = (loop.function, loop.variable) == (function, str(found.loop_var.name))
            if same and id(loop) not in taken:
                return loop
        return None


def _each(statement: Any, change: Callable[[Any, int], Any]) -> Any:
    """Replaces each loop by `change(loop, inside)`, inner loops first. `inside` is the number of
    loops inside that loop."""
    import tvm_ffi
    from tvm import tirx

    def count(body: Any) -> int:
        number = 0

        def seen(loop: Any) -> Any:
            nonlocal number
            number += 1
            return loop

        tvm_ffi.structural_map(body, (tirx.For, seen))
        return number

    return tvm_ffi.structural_map(statement, (tirx.For, lambda loop: change(loop, count(loop.body))))


def _tree(statement: Any) -> tuple[list[Any], list[Optional[int]]]:
    """Returns the loops in the order of `_each`, and for each loop the index of the loop around it, if
    any."""
    found: list[Any] = []
    parents: list[Optional[int]] = []

    def seen(loop: Any, inside: int) -> Any:
        index = len(found)
        for child in range(index - inside, index):
            if parents[child] is None:
                parents[child] = index
        found.append(loop)
        parents.append(None)
        return loop

    _each(statement, seen)
    return found, parents


def _changed(loop: Any, variable: Any, body: Any, annotations: Any, span: Any) -> Any:
    from tvm import tirx

    step = getattr(loop, "step", None)
    words = {} if step is None else {"step": step}
    return tirx.For(
        variable, loop.min, loop.extent, loop.kind, body, loop.thread_binding, annotations, span=span, **words
    )


def _extent(loop: Any) -> Optional[int]:
    value = getattr(loop.extent, "value", None)
    return int(value) if isinstance(value, int) else None


def _kind(loop: Any) -> str:
    from tvm.tirx import ForKind

    return str(ForKind(int(loop.kind)).name).lower().replace("thread_binding", "thread")


def _source(loop: Any) -> Optional[tuple[str, int]]:
    span = getattr(loop, "span", None)
    name = getattr(getattr(span, "source_name", None), "name", None)
    line = getattr(span, "line", None)
    return (str(name), int(line)) if name and line and 0 < int(line) < LINE else None


def survey(mod: Any) -> tuple[Any, Survey]:
    """Returns the module with annotations that number its loops, and a survey of the loops."""
    from tvm import tirx

    found, functions = Survey(), {}
    for variable, function in mod.functions.items():
        if not isinstance(function, tirx.PrimFunc):
            continue
        name = str(variable.name_hint)
        loops, parents = _tree(function.body)
        first = len(found.loops)
        made = [Loop(name, str(f.loop_var.name), _kind(f), _extent(f), None, _source(f)) for f in loops]
        for loop, parent in zip(made, parents):
            loop.parent = made[parent] if parent is not None else None
        found.loops += made
        numbers = iter(range(first, first + len(made)))

        def annotated(loop: Any, _inside: int, numbers: Any = numbers) -> Any:
            number = next(numbers)
            # An annotation would keep TVM from removing a loop of one iteration.
            if _extent(loop) == 1:
                return loop
            annotations = {**(loop.annotations or {}), _ANNOTATION: number}
            return _changed(loop, loop.loop_var, loop.body, annotations, loop.span)

        functions[variable] = function.with_body(_each(function.body, annotated))
    if functions:
        # The caller's module must not change.
        mod = mod.clone()
        for variable, function in functions.items():
            mod.update_func(variable, function)
    return mod, found


def _intrinsic(statement: Any) -> Optional[tuple[str, int]]:
    """If a statement calls a profile intrinsic of TVM (`_START` or `_END`), returns the intrinsic's name
    and its argument, a number."""
    call: Any = getattr(statement, "value", None)
    name = str(getattr(getattr(call, "op", None), "name", "")).rsplit(".", 1)[-1]
    if name not in (_START, _END) or not call.args:
        return None
    return name, int(call.args[0].value)


def without_intrinsics(body: Any) -> Any:
    """Removes the profile intrinsics that TVM's own instrumentation pass has put around loops, and
    annotates these loops."""
    import tvm_ffi
    from tvm import tirx

    def chosen(sequence: Any) -> Any:
        parts, changed = list(sequence.seq), False
        for i, part in enumerate(parts[:-1]):
            end = _intrinsic(parts[i + 1])
            if isinstance(part, tirx.For) and end is not None and end[0] == _END:
                annotations = {**(part.annotations or {}), _BY_TVM: 1}
                parts[i] = _changed(part, part.loop_var, part.body, annotations, part.span)
                changed = True
        return tirx.SeqStmt(parts) if changed else sequence

    def removed(statement: Any) -> Any:
        return statement if _intrinsic(statement) is None else tirx.Evaluate(0)

    body = tvm_ffi.structural_map(body, (tirx.SeqStmt, chosen))
    return tvm_ffi.structural_map(body, (tirx.Evaluate, removed))


def marked(mod: Any, surveyed: Survey, choice: Choice) -> tuple[Any, dict[str, Any]]:
    """Returns a module in which the name of each loop variable contains the loop's number. Also returns
    the contents of the schedule file for `loops instrument --schedule`."""
    import tvm
    from tvm import tirx

    functions = [
        (variable, function.with_body(without_intrinsics(function.body)))
        for variable, function in mod.functions.items()
        if isinstance(function, tirx.PrimFunc)
    ]
    names = {str(variable.name_hint) for variable, _ in functions}
    all_loops = [loop for loop in surveyed.loops if loop.function in names]
    found = []
    for variable, function in functions:
        name = str(variable.name_hint)
        loops, parents = _tree(function.body)
        taken: set[int] = set()
        made: list[Loop] = []
        for one in loops:
            loop = surveyed.of(name, one, taken)
            if loop is None:
                loop = Loop(name, str(one.loop_var.name), _kind(one), _extent(one), None, _source(one))
                all_loops.append(loop)
            taken.add(id(loop))
            loop.is_left = True
            loop.by_tvm |= bool(one.annotations and _BY_TVM in one.annotations)
            made.append(loop)
        for loop, parent in zip(made, parents):
            around = made[parent] if parent is not None else None
            # If TVM unrolls a loop, it copies the loops inside. All copies of a loop share one `Loop`,
            # with one parent.
            if around is not loop and around is not loop.around():
                loop.parent = around
        found.append((variable, function, made))
    loops = _ordered(all_loops)
    choice.choose(loops)
    functions_made, lines_of = {}, []
    text: list[str] = []
    for variable, function, made in found:
        body = _named(function.body, made) if made else function.body
        functions_made[variable] = function.with_body(body)
        if made:
            first = len(text) + 1
            text += _text(str(variable.name_hint), body, loops, first)
            lines_of.append({"name": str(variable.name_hint), "lines": [first, len(text)]})
    for variable, function in mod.functions.items():
        functions_made.setdefault(variable, function)
    schedule = {
        "counterpoint_schedule": _VERSION,
        "path": "tvm.tir",
        "text": "".join(f"{_MARK.sub('', line)}\n" for line in text),
        "loops": [_json(loop) for loop in loops],
        "functions": lines_of,
    }
    return tvm.IRModule(functions_made, attrs=mod.attrs), schedule


def _ordered(loops: Sequence[Loop]) -> list[Loop]:
    """Numbers the loops, outer loops first."""
    ordered: list[Loop] = []

    def add(loop: Loop, level: int = 0) -> None:
        if loop.number >= 0:
            return
        if loop.parent is not None and level < len(loops):
            add(loop.parent, level + 1)
        loop.number = len(ordered)
        ordered.append(loop)

    for loop in loops:
        loop.number = -1
    for loop in loops:
        add(loop)
    return ordered


def _named(body: Any, made: Sequence[Loop]) -> Any:
    """Adds each loop's number to the name of the loop variable. Gives the loop, and the stores directly
    inside it, the source line `LINE` + number."""
    import tvm_ffi
    from tvm import tirx
    from tvm.ir import SourceName, Span

    file = SourceName("counterpoint")
    loops = iter(made)

    def named(loop: Any, _inside: int) -> Any:
        number = next(loops).number
        span = Span(file, LINE + number, LINE + number, 0, 0)
        old = loop.loop_var
        new = tirx.Var(f"{old.name}__cpt{number}_", getattr(old, "ty", None) or old.dtype)

        def located(store: Any) -> Any:
            own = getattr(store, "span", None)
            if own is not None and int(own.line) >= LINE:
                return store
            return tirx.BufferStore(store.buffer, store.value, store.indices, span=span)

        inner = tvm_ffi.structural_map(
            loop.body,
            [
                (tirx.Var, lambda variable: new if variable.same_as(old) else variable),
                (tirx.BufferStore, located),
            ],
        )
        ours = (_ANNOTATION, _BY_TVM)
        others = {key: value for key, value in (loop.annotations or {}).items() if key not in ours}
        return _changed(loop, new, inner, others, span)

    return _each(body, named)


def _text(name: str, body: Any, loops: Sequence[Loop], first: int) -> list[str]:
    """Returns the lines of a function's text. In the schedule's text, the first of them has the number
    `first`. Sets `lines` of the function's loops."""
    import tvm_ffi
    from tvm import tirx

    inner: list[Any] = []

    def scope(statement: Any) -> Any:
        if str(statement.attr_key) == _SCOPE:
            inner.append(statement.body)
        return statement

    tvm_ffi.structural_map(body, (tirx.AttrStmt, scope))
    try:
        script = str((inner[0] if inner else body).script(syntax_sugar=False)).splitlines()
    except Exception:
        # TVM's printer does not support every statement. The text may be missing, because it is
        # only shown in reports.
        return []
    script = [line for line in script if line.strip() and not line.lstrip().startswith("#")]
    lines = [f"{name}:", *(f"    {line}" for line in script)]
    for at, line in enumerate(lines):
        head = _HEAD.match(line)
        if head is None:
            continue
        last = at
        while last + 1 < len(lines) and lines[last + 1].startswith(head[1] + " "):
            last += 1
        loop = loops[int(head[2])]
        loop.lines = loop.lines or (first + at, first + last)
    return lines


def _json(loop: Loop) -> dict[str, Any]:
    gone = None
    if not loop.is_left:
        gone = loop.kind if loop.kind in ("unrolled", "vectorized") else "removed"
    entry = {
        "function": loop.function,
        "variable": loop.variable,
        "kind": loop.kind,
        "extent": loop.extent,
        "parent": loop.parent.number if loop.parent else None,
        "depth": _depth(loop),
        "chosen": loop.chosen,
        "gone": gone,
        "source": list(loop.source) if loop.source else None,
        "lines": list(loop.lines) if loop.lines else None,
    }
    return {key: value for key, value in entry.items() if value is not None}
