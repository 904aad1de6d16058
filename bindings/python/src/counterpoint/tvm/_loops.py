"""Implements `instrument_module`, which counts and times the loops of a module that TVM has already compiled.

```
 executable ── imports ──► LLVM module ── inspect_source("ll") ──► text
     │ copied                                                        │ counterpoint loops instrument
     ▼                                                               ▼
 executable ◄── import ─── LLVM module ◄── load_module("….ll") ── instrumented text
```

TVM's own LLVM has written the text and compiles the instrumented text, so no other version of LLVM
has to read it. LLVM has already optimised this text, so the instrumented loops are the loops that
run. The original module is not changed.

The added code finds the recorder of this process by itself, when TVM compiles the first function
(`docs/loops.md`). This code counts nothing until `profile(vm, loops=True)` or `counterpoint run
--loops` records it.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional, Union

from counterpoint._program import run
from counterpoint.errors import ArgumentError, CounterpointError, UnsupportedError
from counterpoint.tvm import _native
from counterpoint._arguments import described

MODES = ("sampled", "timed", "count", "log")
_LLVM, _VM = "llvm", "relax.VMExecutable"
_LOAD_VM = "ffi.Module.load_from_file.relax.VMExecutable"

# A declaration in LLVM's text: linkage and attributes, and the name with or without quotes.
_DECLARED = re.compile(r'^declare\b([^@\n]*)@("(?:[^"\\]|\\.)*"|[\w.$-]+)\(', re.MULTILINE)


def instrument_module(
    module: Any,
    *,
    mode: str = "sampled",
    max_depth: Optional[int] = None,
    min_height: Optional[int] = None,
    siblings: bool = False,
    functions: Optional[bool] = None,
    filter: Union[str, Sequence[str], None] = None,
) -> Any:
    """Returns a copy of a compiled module in which loops are counted and timed.

    `module`: the result of `tvm.compile` or `relax.build`, or a `tvm.runtime.Module`. It must contain code
    that TVM compiled with LLVM in this process. Whole Relax models are supported, with `exec_mode="bytecode"`
    and with `exec_mode="compiled"`. The copy has the same type, is used in the same way, and computes the
    same results.

    `mode`: a hit is one entry into a loop. `sampled` counts each hit, and times the first 100 hits of each
    loop on each thread, and then random ones. `timed` counts and times each hit. `count` only counts hits.
    `log` counts each hit, and records when each of the first 100 hits of each loop on each thread begins and
    ends.

    `max_depth`: leave out loops that have more than this number of loops around them (0: only outermost
    loops; default 2, or no limit with `siblings`). `min_height`: leave out loops that have fewer than this
    number of levels of loops inside (0: also innermost loops; default 1, or 0 for outermost loops).
    `siblings`: instrument only loops that have siblings, which are other loops directly in the same loop or
    function. `functions`: False instruments loops, but no whole functions; True also instruments functions
    without an instrumented loop. `filter`: instrument only functions whose name matches one of these
    patterns; `*` matches any text, `?` one character.

    To record the loops, use `profile(vm, loops=True)`, or start the process with
    `counterpoint run --loops`."""
    words = _words(mode, max_depth, min_height, siblings, functions, filter)
    root = _root(module)
    # Loads the recorder, so that the instrumented code finds it.
    _native.load()
    folder = tempfile.mkdtemp(prefix="counterpoint-loops-")
    try:
        rebuilt = _Rebuilt(Path(folder), words)
        made = rebuilt.module(root)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if rebuilt.count == 0:
        raise UnsupportedError(_no_code(root))
    return made if made is None or module is root else type(module)(made)


def _words(
    mode: object,
    max_depth: object,
    min_height: object,
    siblings: object,
    functions: Optional[bool],
    filter: object,
) -> list[str]:
    """Returns the options of `counterpoint loops instrument`."""
    if mode not in MODES:
        raise ArgumentError(f"mode= must be one of {', '.join(MODES)}, not {described(mode)}")
    words = ["--mode", str(mode)]
    for name, value in (("max_depth", max_depth), ("min_height", min_height)):
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ArgumentError(f"{name}= must be a whole number of at least 0, not {described(value)}")
        words += [f"--{name.replace('_', '-')}", str(value)]
    if siblings:
        words.append("--siblings")
    if functions is not None:
        words.append("--functions" if functions else "--no-functions")
    patterns = [filter] if isinstance(filter, str) else filter
    if patterns is None:
        patterns = []
    if not isinstance(patterns, (list, tuple)) or not all(isinstance(p, str) for p in patterns):
        raise ArgumentError(f"filter= must be a pattern or a list of patterns, not {described(filter)}")
    for pattern in patterns:
        words += [f"--filter={pattern}"]
    return words


def _root(module: object) -> Any:
    import tvm

    if isinstance(module, tvm.runtime.Module):
        return module
    root = getattr(module, "mod", None)
    if isinstance(root, tvm.runtime.Module):
        return root
    if hasattr(module, "_set_instrument"):
        raise ArgumentError(
            "instrument the executable that a virtual machine is made of, and make the machine of the"
            " result: relax.VirtualMachine(instrument_module(executable), device)"
        )
    if hasattr(module, "functions") or hasattr(module, "script"):
        raise ArgumentError(
            f"{described(module)} is not compiled yet: give what tvm.compile or relax.build makes of it"
        )
    raise ArgumentError(
        f"instrument an executable or a tvm.runtime.Module, not {described(module)}"
    )


def _kinds(module: Any) -> list[str]:
    kinds = [str(module.kind)]
    for child in module.imports:
        kinds += [kind for kind in _kinds(child) if kind not in kinds]
    return kinds


def _no_code(root: Any) -> str:
    kinds = _kinds(root)
    loaded = any("library" in kind for kind in kinds)
    why = (
        "it was loaded from a library, which has machine code only: instrument it before export_library"
        if loaded
        else "compile it for the target llvm"
    )
    return f"the module has no code whose LLVM text is known (it has {', '.join(kinds)}): {why}"

# A module's destructors in LLVM's text.
_DESTRUCTORS = re.compile(r"^@llvm\.global_dtors = .*\n", re.MULTILINE)


def _crashes_in_destructors() -> bool:
    """Returns whether this is TVM 0.25. Its JIT looks for a module's destructors when the JIT is
    already partly destroyed, does not find them, and throws. Instrumented code works without its
    destructor, which only notifies the recorder."""
    import tvm

    return str(tvm.__version__).split(".")[:2] == ["0", "25"]


class _Rebuilt:
    """Copies modules, and instruments the LLVM modules in them."""

    def __init__(self, folder: Path, words: list[str], count: int = 0) -> None:
        self.folder = folder
        self.words = words
        # The number of modules instrumented so far; it is a part of the next module's name, which
        # makes the names unique.
        self.count = count
        # The modules and their copies, by the module's hash, because a module may be imported
        # twice.
        self.made: dict[int, tuple[Any, Any]] = {}

    def module(self, module: Any) -> Any:
        """Returns the copy of a module, or the module itself if nothing in it is instrumented."""
        known = self.made.get(hash(module))
        if known is None:
            # The original is kept as well, so that its hash stays unique.
            known = self.made[hash(module)] = module, self._make(module)
        return known[1]

    def _make(self, module: Any) -> Any:
        children = [(child, self.module(child)) for child in module.imports]
        changed = any(new is not child for child, new in children)
        if str(module.kind) == _LLVM:
            made = self._instrumented(module)
        elif not changed:
            return module
        elif str(module.kind) == _VM:
            made = self._machine(module)
        else:
            raise UnsupportedError(
                f"the module has LLVM code inside a module of the kind {module.kind}, which cannot be"
                " copied; supported are Relax executables and LLVM modules"
            )
        for _, new in children:
            made.import_module(new)
        return made

    def _machine(self, module: Any) -> Any:
        """Returns a copy of a virtual machine's program, without the modules that the program imports."""
        import tvm_ffi

        path = str(self.folder / "machine.vm")
        module.write_to_file(path, _VM)
        return tvm_ffi.get_global_func(_LOAD_VM)(path)

    def _instrumented(self, module: Any) -> Any:
        import tvm

        text = str(module.inspect_source("ll"))
        if "define " not in text:
            raise UnsupportedError(
                "TVM has no text of this LLVM module (it has compiled it already, or was built without"
                " its text): compile the model again in this process"
            )
        self.count += 1
        # Reports show the path of this file, so the name is short.
        name = "tvm" if self.count == 1 else f"tvm{self.count}"
        (self.folder / f"{name}.ll").write_text(text)
        after = self.folder / f"{name}.lwp.ll"
        words = ["loops", "instrument", f"{name}.ll", "-o", after.name, *self.words]
        run(words, folder=str(self.folder))
        instrumented = after.read_text()
        if _crashes_in_destructors():
            instrumented = _DESTRUCTORS.sub("", instrumented)
            after.write_text(instrumented)
        _check_symbols(text, instrumented)
        try:
            return tvm.runtime.load_module(str(after))
        except Exception as error:
            raise CounterpointError(
                f"TVM's LLVM does not accept the instrumented text: {str(error).strip()}"
            ) from None


def _check_symbols(before: str, after: str) -> None:
    """Raises an error if the instrumented text adds calls of a function that this process does not have.
    TVM's JIT would crash when it looks for the function."""
    known = {name for _, name in _DECLARED.findall(before)}
    process = ctypes.CDLL(None)
    for linkage, name in _DECLARED.findall(after):
        plain = name.strip('"')
        if name in known or plain.startswith("llvm.") or "extern_weak" in linkage:
            continue
        if not hasattr(process, plain):
            raise UnsupportedError(
                f"the instrumented code needs the function {plain}, and nothing in this process has it:"
                " start Python with the library that does (LD_PRELOAD), or use another mode="
            )
