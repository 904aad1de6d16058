"""Puts Counterpoint into the stock wheels of PyTorch.

`import torch` runs the entry point of this package (`_entry`), so an unchanged script gets the events
of profiler plugins in the results of `torch.profiler`. docs/pytorch.md says what a user gets.

| module | purpose |
|---|---|
| `_entry` | decides, at the end of `import torch`, which parts of the bridge are needed |
| `_complaints` | lines on stderr about what does not work |
| `_load` | checks PyTorch's version, and connects the parts |
| `_log` | hands recordings of PyTorch's own profiler to the profile of a run |
| `_build` | compiles `_shim`, once for each version of PyTorch |
| `_shim` | the C++ files that speak PyTorch's ABI |
| `_ops` | records the ops of this process |
| `_profile`, `_report` | implement `profile` and its report |

Importing this package must stay cheap, because every `import torch` does it. So what users call is
imported when it is first used.
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
