"""Makes temporary directories for profiles without an `output=`.

These directories are in the directory for temporary files, and each is removed together with its
profile. A process that is killed, or that ends by `os._exit` as forked children do, cannot remove
its directories. So processes also remove the directories of processes that have ended: when they
make their first directory, and when they end. A directory's name says to which process it belongs:

    counterpoint-<machine>-<process id>-<start of the process>-<random>

<machine> identifies the boot and the namespace in which the process id is valid. Directories of
other machines, containers or users stay.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import Optional

from counterpoint._program import run
from counterpoint._trust import all_untrusted
from counterpoint.errors import CounterpointError

_PREFIX = "counterpoint-"
# _made: whether this process, or one from which it was forked, has made a directory. _forked:
# whether it has forked a child.
_made = False
_forked = False


def make() -> str:
    """Makes a directory that only this user can access. Raises CounterpointError if this user is
    root and another user could replace the directory."""
    global _made
    why = _danger()
    if why is not None:
        raise CounterpointError(
            f"the directory for temporary files cannot be used: {why}; give the profile an output=, or set TMPDIR"
        )
    if not _made:
        _made = True
        sweep()
        atexit.register(sweep)
    start = _start_of(os.getpid())
    return tempfile.mkdtemp(prefix=f"{_PREFIX}{_machine()}-{os.getpid()}-{start or 0}-")


def _danger() -> Optional[str]:
    """Returns why root must not use the directory for temporary files. If TMPDIR is a folder of
    another user, that user could put a link there, and root would write to the link's target. A user
    who is not root may share a directory with trusted people, so there is no check for such users."""
    if os.geteuid() != 0:
        return None
    try:
        return all_untrusted(Path(tempfile.gettempdir()).resolve(), strangers=False)
    except (OSError, RuntimeError) as error:
        return str(error)


def sweep() -> None:
    """Removes the directories of processes that have ended."""
    if _start_of(os.getpid()) is None:
        return  # Not even this process is found.
    pattern = re.compile(rf"{_PREFIX}{_machine()}-(\d+)-(\d+)-[^-]+")
    try:
        with os.scandir(tempfile.gettempdir()) as entries:
            found = [entry for entry in entries if pattern.fullmatch(entry.name)]
    except OSError:
        return
    for entry in found:
        named = pattern.fullmatch(entry.name)
        try:
            mine = entry.stat(follow_symlinks=False).st_uid == os.getuid()
        except OSError:
            continue
        if named is None or not mine or entry.is_symlink():
            continue
        if _start_of(int(named[1])) != named[2]:
            _remove_pool(entry.path)
            shutil.rmtree(entry.path, ignore_errors=True)


def expect_children() -> None:
    """Makes this process remove the directories of ended processes when it ends itself, because a forked child
    that ends by `os._exit` may leave directories behind."""
    global _forked
    if not _forked:
        _forked = True
        atexit.register(sweep)


def _remove_pool(folder: str) -> None:
    """A profile contains the path of its pool (the shared memory for records), and anybody may have written
    the profile. So the program `counterpoint` removes the pool: it checks first that the pool belongs to
    this profile and this user."""
    profile = os.path.join(folder, "profile.cpt")
    if not os.path.lexists(os.path.join(profile, "manifest.json")):
        return
    try:
        run(["session", "discard", profile])
    except CounterpointError:
        return  # The next run or session frees the pool.


def _start_of(process: int) -> Optional[str]:
    """Returns when a process began, in ticks since the boot. The result is `None` for a zombie, or if there
    is no such process."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def _machine() -> str:
    """Eight hexadecimal digits that identify the boot and the namespace of process ids."""
    words = []
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            words.append(file.read().strip())
        words.append(os.readlink("/proc/self/ns/pid"))
    except OSError:
        pass
    return f"{zlib.crc32(' '.join(words).encode()):08x}"
