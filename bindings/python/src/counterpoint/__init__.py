"""Counterpoint shows where compiled machine learning spends its time, and which counter explains it.

`counterpoint.load` opens a profile as tables. `counterpoint.tvm` and `counterpoint.torch` profile inside of
a program; `counterpoint.report` has their reports, which need neither.
"""

from __future__ import annotations

import os as _os
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from counterpoint._load import LoadedProfile

__version__ = "0.1.0"

__all__ = ["__version__", "load"]


def load(profile: Union[str, _os.PathLike[str]]) -> LoadedProfile:
    """Opens a profile: its `ops`, `calls`, `loops`, `activities`, `tracks` and `losses` as tables of Arrow
    and pandas. `print` shows its report, and a notebook its page.

    `profile`: the directory that `counterpoint run` wrote, or that was named with `output=`. A directory
    that is not a profile raises a `CounterpointError`.
    """
    # Every process of PyTorch imports this package.
    from counterpoint._load import load

    return load(profile)
