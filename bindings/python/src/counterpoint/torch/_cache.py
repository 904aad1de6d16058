"""Stores compiled shims in the user's cache.

A user who can write to the cache can run code in this process. So the folder is used only if nobody
except this user and root can replace it or any folder above it. These folders are checked from the
root directory downwards, before anything is created in them. So root creates nothing in another
user's home, even if HOME names that home.

A shim's name ends with a digest of its content, which is compared before the file is loaded. This is
necessary because loading a truncated file (after a full disk, or an interrupted copy) would kill the
process by SIGBUS.

    .lock               a process locks this file while it compiles
    .build-*            folders in which processes compile
    <name>-<digest>.so  a shim; <name> identifies everything it was made of
    <name>.failed       why this shim could not be compiled; valid for an hour
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
"""For how many seconds a failure is remembered. After that, the user may have installed what the compiler
lacked."""

_LONGEST_REASON = 4096
_SILENT_S = 1.0


def folder() -> tuple[Optional[Path], str]:
    """Returns the folder of the cache. If none can be used, returns `None` and the reason."""
    # The XDG specification says that empty and relative paths must be ignored.
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    home = _home()
    if os.path.isabs(chosen):
        missing = Path(chosen)
    elif home is None:
        return None, "there is no home folder for a cache"
    else:
        # A home folder that does not exist is not created.
        missing = home / ".cache"
    wanted = missing / "counterpoint" / "torch"
    try:
        place = wanted.resolve()
        made_from = len(missing.resolve().parts) if not os.path.isabs(chosen) else 0
        for one in (*reversed(place.parents), place):
            # With `parents=True`, all folders except the last would get the mode of the umask.
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
    """Returns the home folder, unless it is a relative path."""
    home = os.environ.get("HOME", "")
    if not os.path.isabs(home):
        try:
            home = pwd.getpwuid(os.geteuid()).pw_dir
        except KeyError:
            return None
    return Path(home) if os.path.isabs(home) else None


def temporary() -> tuple[Optional[Path], str]:
    """Makes a folder for this process alone, unless other users could replace it."""
    try:
        place = Path(tempfile.gettempdir()).resolve()
        why = all_untrusted(place)
        if why is not None:
            return None, why
        return Path(tempfile.mkdtemp(prefix="counterpoint-torch-", dir=place)), ""
    except (OSError, RuntimeError) as error:
        return None, str(error)


def find(cache: Path, name: str) -> Optional[Path]:
    """Returns the shim with this `name` (which may end with a pattern). Removes files that are not
    complete."""
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
        # Without fsync, the name could be on the disk before the content.
        os.fsync(file.fileno())
    path = cache / f"{name}-{_digest(content)}.so"
    made.replace(path)
    _failed(cache, name).unlink(missing_ok=True)
    return path


def remember_failure(cache: Path, name: str, why: str) -> None:
    """Stores the reason why `name` cannot be compiled, so that other processes do not try."""
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
    """Returns the first `most` bytes of a file (without `most`, all of it). Returns `None` if the file cannot
    be opened, is not a regular file, or another user owns it or can write to it."""
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
    """Keeps other processes from compiling shims at the same time. The value of the `with` says whether
    this process has the lock. Without the lock (some file systems have none), the caller may still
    build, because the finished file is moved into its place in one step. `waits` is called once
    if another process builds for longer than a second."""
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
