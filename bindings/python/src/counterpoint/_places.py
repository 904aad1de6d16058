"""Makes directories for profiles without an `output=`.

They are in the directory for temporary files and are removed with their profile. A process that is
killed, or ends by `os._exit` as forked children do, cannot remove its own. Whenever a process makes
or removes a directory, it also looks for those of processes that are gone. So a directory's name
says which process it belongs to:

    counterpoint-<machine>-<process id>-<start of the process>-<random>

where <machine> identifies the boot and the namespace in which the process id is valid. Directories
of another machine, container or user are left alone.
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
# True if this process, or a process that it was forked from, has made a directory.
_made = False
_forked = False


def make() -> str:
    """Makes a new directory that only this user can access. Raises CounterpointError if this is root and another user
    could replace the directory."""
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
    """Says why root must not use the directory for temporary files. The recorder writes to a profile by path, so with
    the TMPDIR of another user it would write where that user puts a link. Others than root may share a directory with
    people whom they trust."""
    if os.geteuid() != 0:
        return None
    try:
        return all_untrusted(Path(tempfile.gettempdir()).resolve(), strangers=False)
    except (OSError, RuntimeError) as error:
        return str(error)


def sweep() -> None:
    """Removes the directories of processes that have ended."""
    if _start_of(os.getpid()) is None:
        return  # Not even this process is found, so nobody knows which are alive.
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
    """Notes that this process has forked, because a child that ends by `os._exit` may leave
    directories."""
    global _forked
    if not _forked:
        _forked = True
        atexit.register(sweep)


def _remove_pool(folder: str) -> None:
    """Removes the pool of the profile in this directory, if there still is one. The profile names its
    pool by a path, and may be anybody's. So this is left to the program, which deletes a pool only if
    the pool itself says that it belongs to this very directory."""
    profile = os.path.join(folder, "profile.cpt")
    if not os.path.lexists(os.path.join(profile, "manifest.json")):
        return
    try:
        run(["session", "discard", profile])
    except CounterpointError:
        return  # The next run or session frees it.


def _start_of(process: int) -> Optional[str]:
    """Returns when a process began, in ticks since the boot; `None` if there is no such process, or
    only a zombie."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def _machine() -> str:
    """Returns eight digits that identify the boot and the namespace of process ids."""
    words = []
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            words.append(file.read().strip())
        words.append(os.readlink("/proc/self/ns/pid"))
    except OSError:
        pass
    return f"{zlib.crc32(' '.join(words).encode()):08x}"
