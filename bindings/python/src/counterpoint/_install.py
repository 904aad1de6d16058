"""Finds the program `counterpoint`, its shared library, the headers and the plugins.

| place | when |
|---|---|
| `$COUNTERPOINT_DIST/{bin,lib,include}` | the variable is set (tests, a build elsewhere) |
| `_dist/{bin,lib,include}` in this package | the package was installed by pip |
| `../../../{bin,lib,include}` of this package | this package is in `lib/python` of a checkout's `dist/` |
"""

from __future__ import annotations

import os
from pathlib import Path

from counterpoint.errors import NotInstalledError

_HERE = Path(__file__).resolve().parent
_REMEDY = (
    "install the wheel of a release, or the package from a checkout (pip install ./bindings/python), or set"
    " COUNTERPOINT_DIST to the folder dist/ that `cargo xtask dist` makes (docs/install.md)"
)


def program() -> str:
    """Returns the path of the program `counterpoint`."""
    return _find("bin/counterpoint")


def library() -> str:
    """Returns the path of libcounterpoint.so."""
    return _find("lib/libcounterpoint.so")


def include() -> Path:
    """Returns the folder with the headers `counterpoint/*.h`."""
    return Path(_find("include/counterpoint/torch.h")).parents[1]


def plugin(name: str) -> str:
    """Returns the path of a profiler plugin that comes with Counterpoint."""
    return _find(f"lib/counterpoint/plugins/{name}.so")


def _find(name: str) -> str:
    chosen = os.environ.get("COUNTERPOINT_DIST")
    if chosen:
        path = Path(chosen) / name
        if path.is_file():
            return str(path)
        raise NotInstalledError(f"{path}, which COUNTERPOINT_DIST names, does not exist: {_REMEDY}")
    places = [_HERE / "_dist" / name, *(p / name for p in list(_HERE.parents)[2:3])]
    for path in places:
        if path.is_file():
            return str(path)
    raise NotInstalledError(f"no {' and no '.join(map(str, places))}: {_REMEDY}")
