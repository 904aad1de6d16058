"""Makes untrusted text safe to print, by the rule of `crates/cli/src/terminal.rs`, which gives the
reasons. A test in that file compares the table below with that rule.
"""

from __future__ import annotations

import re

STAND_IN = "\ufffd"
"""Replaces each character that a terminal would obey or hide, or that reorders others."""

HIDDEN = """
    0-1f 7f-9f ad 34f 600-605 61c 6dd 70f 890-891 8e2 115f-1160 17b4-17b5 180b-180f 200b-200f 2028-202e
    2060-206f 3164 fdd0-fdef fe00-fe0f feff ffa0 fff0-fffb fffe-ffff 110bd 110cd 13430-1343f 1bca0-1bca3
    1d173-1d17a 1fffe-1ffff 2fffe-2ffff 3fffe-3ffff 4fffe-4ffff 5fffe-5ffff 6fffe-6ffff 7fffe-7ffff
    8fffe-8ffff 9fffe-9ffff afffe-affff bfffe-bffff cfffe-cffff dfffe-dffff e0000-e0fff efffe-effff
    ffffe-fffff 10fffe-10ffff
"""

# Python's strings can also contain halves of surrogate pairs, which cannot be printed.
_SURROGATES = "\ud800-\udfff"


def _class() -> str:
    ends = ([chr(int(end, 16)) for end in part.split("-")] for part in HIDDEN.split())
    return "[" + "".join("-".join(map(re.escape, part)) for part in ends) + _SURROGATES + "]"


_hidden = re.compile(_class())


def visible(text: str) -> str:
    """Returns the text as one line of the same length, in which `STAND_IN` replaces each hidden character."""
    return text if text.isascii() and text.isprintable() else _hidden.sub(STAND_IN, text)
