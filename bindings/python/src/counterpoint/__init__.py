"""Counterpoint shows where compiled machine learning spends its time, and which counter explains that.

`counterpoint.load` opens a profile as tables. With `counterpoint.tvm` and `counterpoint.torch`, a program
profiles a part of itself. `counterpoint.report` contains the reports of these two modules, and needs neither
TVM nor PyTorch.
"""

from __future__ import annotations

import os as _os
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from counterpoint._load import LoadedProfile

__version__ = "0.1.0"

__all__ = ["__version__", "load"]


def load(profile: Union[str, _os.PathLike[str]]) -> LoadedProfile:
    """Opens a profile. The result has the profile's `ops`, `calls`, `loops`, `activities`, `tracks` and
    `losses` as tables that can be converted to Arrow and pandas. `print` shows the profile's report as text,
    and a notebook shows it as an HTML page.

    `profile`: the directory that `counterpoint run` wrote, or that was the argument `output=` of
    `counterpoint.tvm.profile` or `counterpoint.torch.profile`. If the directory is not a profile, this raises
    a `CounterpointError`.
    """
    # Imported here and not above, because every process that uses PyTorch imports this package.
    from counterpoint._load import load

    return load(profile)
