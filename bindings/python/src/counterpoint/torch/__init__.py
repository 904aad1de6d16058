"""Connects Counterpoint with the stock wheels of PyTorch.

`import torch` runs the entry point of this package (`_entry`). So the results of `torch.profiler` contain the
events of profiler plugins, without a change to the script. docs/pytorch.md describes this for users.

| module | purpose |
|---|---|
| `_entry` | decides, at the end of `import torch`, which parts of the bridge are needed |
| `_complaints` | writes lines on stderr about things that do not work |
| `_load` | checks PyTorch's version, and connects the parts |
| `_log` | hands recordings of PyTorch's own profiler to the profile of a run |
| `_build` | compiles `_shim`, once for each version of PyTorch |
| `_shim` | the C++ files that speak PyTorch's ABI |
| `_ops` | records the ops of this process |
| `_profile`, `_report` | implement `profile` and its report |

Every `import torch` imports this package, so importing it must stay cheap. So the public names are
imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from counterpoint._session import CounterpointWarning
    from counterpoint.report import Loss, Report
    from counterpoint.torch._profile import Profile, profile

__all__ = ["CounterpointWarning", "Loss", "Profile", "Report", "profile"]

_PLACES = {
    "CounterpointWarning": "counterpoint._session",
    "Loss": "counterpoint.report",
    "Profile": "counterpoint.torch._profile",
    "Report": "counterpoint.report",
    "profile": "counterpoint.torch._profile",
}


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = getattr(importlib.import_module(place), name)
    globals()[name] = found
    return found
