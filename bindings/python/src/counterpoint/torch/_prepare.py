"""Compiles the shim, the C++ library of the bridge to PyTorch, before a program needs it. PyTorch is not
imported, because that would take seconds.

    python _prepare.py doctor           prints a line of JSON about the shim for this Python's PyTorch, or
                                        nothing without PyTorch or if the bridge is switched off; if the
                                        shim must be compiled, starts compiling it in the background
    python _prepare.py compile          compiles the shim, if it is missing
    python _prepare.py prebuild FOLDER  compiles the shim for a release

This file is run by its path, so that Python imports no module from the working directory.
`counterpoint doctor` runs it.
"""

from __future__ import annotations

import ast
import fcntl
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Optional

if __name__ == "__main__":
    # Python looks for modules in `sys.path[0]`, which is the folder of this file at first. But the
    # modules here must be imported as parts of their package, so the folder that contains the
    # package takes its place.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from counterpoint.torch import _build, _cache
from counterpoint.torch._entry import is_off
from counterpoint.torch._load import known, unknown


def installed() -> Optional[_build.Torch]:
    """Reads the properties of the installed PyTorch from its files. Returns `None` if there is no PyTorch, or
    if its version is unknown."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).resolve().parent
    try:
        text = (folder / "version.py").read_text()
    except OSError:
        return None
    values = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            values.update({target.id: node.value.value for target in node.targets if isinstance(target, ast.Name)})
    version = values.get("__version__")
    # Wheels of all known versions use the new ABI of libstdc++'s strings (`True`). For a build with
    # the old ABI, the process that imports PyTorch compiles another shim.
    git = str(values.get("git_version", ""))
    return None if version is None else _build.Torch(str(version), git, True, folder)


def state(torch: _build.Torch) -> tuple[str, str, bool]:
    """Returns the level and the text for `doctor`, and whether `doctor` must start compiling the shim."""
    name = f"PyTorch {torch.version}"
    if not known(torch.version):
        return "note", unknown(torch.version), False
    if (_build.PREBUILT / f"{_build.prebuilt_name(torch)}.so.xz").is_file():
        return "ok", f"{name}: its bridge came with Counterpoint", False
    cache, why = _cache.folder()
    if cache is None:
        return "note", f"{name}: {why}, so each process compiles its bridge ({_build.DURATION})", False
    found = _build.cached(torch, cache)
    if found is None:
        return "note", f"{name}: {_build.NO_COMPILER}", False
    path, failure = found
    if path is not None:
        return "ok", f"{name}: its bridge is compiled", False
    if failure is not None:
        return "problem", f"{name}: {failure}", False
    during = f"is being compiled in the background (once; {_build.DURATION})"
    return "note", f"{name}: its bridge {during}", not _is_locked(cache)


def _is_locked(cache: Path) -> bool:
    """Returns whether another process is compiling the shim."""
    try:
        with (cache / ".lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def main(words: list[str]) -> int:
    """Runs the command that the arguments name, and returns the exit status."""
    torch = None if is_off() else installed()
    if torch is None:
        return 0
    if words[0] == "prebuild":
        print(_build.prebuild(torch, Path(words[1])))
    elif words[0] == "compile":
        _build.shim(torch, lambda line: print(line, file=sys.stderr))
    else:
        level, sentence, must_compile = state(torch)
        if must_compile:
            subprocess.Popen(
                [sys.executable, __file__, "compile"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "COUNTERPOINT_RUN_FILE": ""},
            )
        print(json.dumps({"level": level, "state": sentence}))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except _build.NoShim as error:
        sys.exit(f"counterpoint: {error}")
