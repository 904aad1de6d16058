"""Runs the program `counterpoint`, for `python -m counterpoint` and for the installed command
`counterpoint`."""

from __future__ import annotations

import os
import sys

from counterpoint._install import program
from counterpoint.errors import NotInstalledError


def main() -> None:
    """Replaces this process with the program `counterpoint`."""
    try:
        path = program()
    except NotInstalledError as error:
        sys.exit(f"counterpoint: {error}")
    os.execv(path, ["counterpoint", *sys.argv[1:]])


if __name__ == "__main__":
    main()
