"""Writes numbers in the format of the user's locale. It uses `newlocale`, because `setlocale` would change
the locale of the whole process."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

_LC_NUMERIC_MASK = 1 << 1
# Values of glibc's `nl_item`: the category LC_NUMERIC (1) in the upper half, and an index from 0 to
# 2 in the lower half.
_RADIXCHAR, _THOUSEP, _GROUPING = 0x10000, 0x10001, 0x10002


# In glibc, this size means that no further groups follow.
REST = 127


@dataclass(frozen=True)
class Numbers:
    """`groups` has the sizes of groups of digits, from right to left. The last size is repeated, unless it is
    `REST`: then all other digits form one group.
    """

    point: str = "."
    separator: str = ""
    groups: tuple[int, ...] = ()

    def whole(self, number: int) -> str:
        """Writes a whole number with the locale's separators: `1,234,567`."""
        sign, digits = ("-", str(-number)) if number < 0 else ("", str(number))
        return sign + self._grouped(digits)

    def fixed(self, number: float, places: int) -> str:
        """Writes a number with `places` digits after the point."""
        text = f"{number:.{places}f}"
        sign = "-" if text.startswith("-") else ""
        whole, _, fraction = text.lstrip("-").partition(".")
        if not whole.isdigit():
            return text
        return sign + self._grouped(whole) + (self.point + fraction if fraction else "")

    def significant(self, number: float, digits: int) -> str:
        """Writes a number with at most `digits` significant digits."""
        return f"{number:.{digits}g}".replace(".", self.point)

    def _grouped(self, digits: str) -> str:
        if not self.separator or not self.groups:
            return digits
        sizes = list(self.groups)
        parts: list[str] = []
        while sizes[0] != REST and len(digits) > sizes[0]:
            parts.insert(0, digits[-sizes[0] :])
            digits = digits[: -sizes[0]]
            if len(sizes) > 1:
                sizes.pop(0)
        return self.separator.join([digits, *parts])


PLAIN = Numbers()


@functools.lru_cache(maxsize=1)
def of_user() -> Numbers:
    """Returns the format of LC_ALL, LC_NUMERIC or LANG, or `PLAIN` if this locale is not known."""
    try:
        libc = ctypes.CDLL(None)
        libc.newlocale.restype = ctypes.c_void_p
        libc.newlocale.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p]
        libc.nl_langinfo_l.restype = ctypes.c_char_p
        libc.nl_langinfo_l.argtypes = [ctypes.c_int, ctypes.c_void_p]
        libc.freelocale.argtypes = [ctypes.c_void_p]
        libc.gnu_get_libc_version
        locale = libc.newlocale(_LC_NUMERIC_MASK, b"", None)
    except (AttributeError, OSError):
        return PLAIN
    if not locale:
        return PLAIN
    try:
        point, separator, grouping = (
            libc.nl_langinfo_l(item, locale) or b"" for item in (_RADIXCHAR, _THOUSEP, _GROUPING)
        )
    finally:
        libc.freelocale(locale)
    try:
        groups = tuple(size for size in grouping if 0 < size <= REST)
        return Numbers(point.decode() or ".", separator.decode(), groups)
    except UnicodeDecodeError:
        return PLAIN
