"""Keeps compiled shims in the user's cache.

Whoever can write there can run code in this process. The folder is used only if nobody but its owner
and root can write to it, nor to any folder above it. That is checked from the root downwards, before
anything is made, so that root with the HOME of another user leaves nothing there.

A shim's name ends with a digest of its content, which is compared before the file is loaded: a file that
was cut (a full disk, a copy that was interrupted) kills the process that loads it by SIGBUS.

    .lock                           held while one process compiles
    .build-*                        where it compiles
    <what it is made of>-<digest>.so
    <what it is made of>.failed     why it could not be compiled, for an hour
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pwd
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Optional

from counterpoint._trust import all_untrusted, untrusted

REMEMBERED_S = 3600.0
"""How long a failure is remembered. What the compiler lacked may have been installed since."""

_LONGEST_REASON = 4096
_SILENT_S = 1.0


def folder() -> tuple[Optional[Path], str]:
    """Returns the folder of the cache, or `None` and why there is none."""
    # The specification says that a relative path is to be ignored, and an empty one.
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    home = _home()
    if os.path.isabs(chosen):
        missing = Path(chosen)
    elif home is None:
        return None, "there is no home folder for a cache"
    else:
        # A home that does not exist is not made.
        missing = home / ".cache"
    wanted = missing / "counterpoint" / "torch"
    try:
        place = wanted.resolve()
        made_from = len(missing.resolve().parts) if not os.path.isabs(chosen) else 0
        for one in (*reversed(place.parents), place):
            # `parents=True` would give all folders but the last the umask's mode, so they are made one by one.
            if not os.path.lexists(one) and len(one.parts) >= made_from:
                one.mkdir(mode=0o700, exist_ok=True)
            why = untrusted(one.stat(), one, strict=one == place)
            if why is not None:
                return None, why
        if not os.access(place, os.W_OK | os.X_OK):
            return None, f"{place} cannot be written"
    except (OSError, RuntimeError, ValueError) as error:
        return None, f"{wanted} cannot be used: {error}"
    return place, ""


def _home() -> Optional[Path]:
    """Returns the home folder. Ignores a HOME that is empty or relative."""
    home = os.environ.get("HOME", "")
    if not os.path.isabs(home):
        try:
            home = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError:
            return None
    return Path(home) if os.path.isabs(home) else None


def temporary() -> tuple[Optional[Path], str]:
    """Makes a folder for this process alone. Returns `None` and why if others could replace it."""
    try:
        place = Path(tempfile.gettempdir()).resolve()
        why = all_untrusted(place)
        if why is not None:
            return None, why
        return Path(tempfile.mkdtemp(prefix="counterpoint-torch-", dir=place)), ""
    except (OSError, RuntimeError) as error:
        return None, str(error)


def find(cache: Path, name: str) -> Optional[Path]:
    """Returns the shim with this `name` (which may end with a pattern), if it is whole.
    Removes one that is not."""
    for path in sorted(cache.glob(f"{name}-*.so")):
        content = _content(path)
        if content is None:
            continue
        if content and path.name.endswith(f"-{_digest(content)}.so"):
            return path
        path.unlink(missing_ok=True)
    return None


def put(cache: Path, name: str, made: Path) -> Path:
    """Moves a shim into the cache, and returns its path there."""
    content = made.read_bytes()
    with made.open("rb") as file:
        # Otherwise, the name can be on the disk before the content is.
        os.fsync(file.fileno())
    path = cache / f"{name}-{_digest(content)}.so"
    made.replace(path)
    _failed(cache, name).unlink(missing_ok=True)
    return path


def remember_failure(cache: Path, name: str, why: str) -> None:
    """Notes that `name` cannot be compiled, so that other processes do not try."""
    with contextlib.suppress(OSError):
        number, path = tempfile.mkstemp(prefix=".build-", dir=cache)
        with os.fdopen(number, "wb") as file:
            file.write(why.encode(errors="replace")[:_LONGEST_REASON])
        os.replace(path, _failed(cache, name))


def failure(cache: Path, name: str) -> Optional[str]:
    """Returns why `name` could not be compiled a short time ago, and how to try again."""
    path = _failed(cache, name)
    try:
        age = time.time() - path.stat().st_mtime
    except OSError:
        return None
    why = _content(path, _LONGEST_REASON)
    if not why or not 0 <= age < REMEMBERED_S:
        return None
    return f"{why.decode(errors='replace')} ({age / 60:.0f} min ago; remove {path} to try again)"


def _failed(cache: Path, name: str) -> Path:
    return cache / f"{name}.failed"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _content(path: Path, most: int = -1) -> Optional[bytes]:
    """Returns the content of a plain file that nobody else can write; otherwise `None`."""
    try:
        # Without O_NONBLOCK, opening a FIFO would wait for a writer.
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    except OSError:
        return None
    with file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or untrusted(about, path, strict=True) is not None:
            return None
        return file.read(most)


@contextlib.contextmanager
def locked(cache: Path, longest_s: float, waits: Callable[[], None]) -> Iterator[bool]:
    """Keeps other processes from building at the same time, and says whether it could. A file system without
    locks is no reason not to build, because the file is put into its place at once. `waits` is called once if
    another process builds for longer than a second."""
    file = os.open(cache / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        since = time.monotonic()
        until = since + longest_s
        alone = is_told = False
        while not alone and time.monotonic() < until:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                alone = True
            except BlockingIOError:
                time.sleep(0.05)
                if not is_told and time.monotonic() - since > _SILENT_S:
                    is_told = True
                    waits()
            except OSError:
                break
        yield alone
    finally:
        os.close(file)
