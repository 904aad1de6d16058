"""Runs the program `counterpoint`."""

from __future__ import annotations

import os
import subprocess
from typing import Optional

from counterpoint._install import program
from counterpoint.errors import CounterpointError


def run(
    words: list[str],
    variables: Optional[dict[str, str]] = None,
    good: tuple[int, ...] = (0,),
    folder: Optional[str] = None,
) -> str:
    """Returns the program's output. If the program's exit code is not in `good`, raises an error with
    the text of its stderr."""
    environment = {**os.environ, **(variables or {})}
    # The program itself must not be recorded. The empty COUNTERPOINT_RUN_FILE tells a recorder in this
    # process that this is intended, so that it does not report a loss.
    environment.pop("LD_PRELOAD", None)
    environment["COUNTERPOINT_RUN_FILE"] = ""
    path = program()
    try:
        done = subprocess.run(
            [path, *words], stdin=subprocess.DEVNULL, capture_output=True, env=environment, cwd=folder
        )
    except OSError as error:
        raise CounterpointError(f"start {path}: {error}") from None
    if done.returncode not in good:
        told = done.stderr.decode(errors="replace").strip()
        lines = [line.removeprefix("counterpoint: ") for line in told.splitlines()]
        raise CounterpointError("\n".join(lines) or f"{path} ended with {done.returncode}")
    return done.stdout.decode()
