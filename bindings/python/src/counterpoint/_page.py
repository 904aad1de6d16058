"""Shows a profile in a notebook: puts the page that `counterpoint report --html` writes into a frame.

The frame is a sandbox without the notebook's origin. So the page's own script can run, but has no
access to the notebook or its cookies. The page requests nothing from the network.
"""

from __future__ import annotations

import html
import os
import tempfile
from typing import Any

from counterpoint._program import run
from counterpoint.errors import CounterpointError

MOST = 8_000_000
"""The greatest length, in characters, of a page in a frame. A longer page becomes a link, because a
notebook's file contains all of its outputs."""

_HEIGHT = "min(85vh, 60em)"

_large: list[Any] = []
"""Keeps the directories of pages that are shown as a link, until the process ends."""


def text(words: str) -> str:
    """Returns a plain text as HTML."""
    return f'<pre style="line-height:1.25">{html.escape(words)}</pre>'


def frame(profile: str) -> str:
    """Returns HTML with the page in a frame, or with a link if the page is too long."""
    folder = tempfile.TemporaryDirectory(prefix="counterpoint-page-")
    path = os.path.join(folder.name, "report.html")
    try:
        write(profile, path)
        with open(path, encoding="utf-8", newline="") as file:
            page = file.read()
    except BaseException:
        folder.cleanup()
        raise
    if len(page) > MOST:
        _large.append(folder)
        link = html.escape(f"file://{path}")
        return (
            f"<p>The page of this profile has {len(page) / 1e6:.1f} MB, which is too much for a notebook:"
            f' <a href="{link}" target="_blank">{link}</a></p>'
        )
    folder.cleanup()
    return (
        '<iframe sandbox="allow-scripts allow-downloads" allow="clipboard-write"'
        ' referrerpolicy="no-referrer" title="Counterpoint"'
        f' style="width:100%;height:{_HEIGHT};border:1px solid #8886"'
        f' srcdoc="{html.escape(page)}"></iframe>'
    )


def write(profile: str, path: str) -> None:
    """Writes the page of a profile to a file."""
    run(["report", os.path.abspath(profile), "--html", os.path.abspath(path)], good=(0, 1))
    if not os.path.exists(path):
        raise CounterpointError(f"counterpoint report --html wrote no {path}")
