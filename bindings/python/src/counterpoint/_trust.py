"""Checks whether other users could replace files that Counterpoint writes or loads."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path
from typing import Optional


def all_untrusted(folder: Path, strangers: bool = True) -> Optional[str]:
    """Returns why another user could replace files in a folder, or a folder above it; None if
    nobody could. A folder that others can write is accepted if its sticky bit is set, as for
    /tmp. Without `strangers`, an owner without a user id in this container is accepted, because
    it may be the user who has started the container. Raises OSError."""
    no_number = None if strangers else _no_number()
    for one in (*reversed(folder.parents), folder):
        about = one.stat()
        why = untrusted(about, one, strict=False, good=no_number)
        if why is not None:
            return why
    return None


def _no_number() -> Optional[int]:
    """Returns the user id that stands for owners without a user id in this container. Outside of a
    user namespace, this id belongs to an ordinary user (nobody), so the result is None."""
    try:
        with open("/proc/self/uid_map") as file:
            if file.read().split() == ["0", "0", "4294967295"]:
                return None
        with open("/proc/sys/kernel/overflowuid") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def untrusted(about: os.stat_result, path: Path, strict: bool, good: Optional[int] = None) -> Optional[str]:
    """Returns why another user could replace `path`; None if nobody could. `strict`: accept only this user as
    the owner, and nothing that others can write, even with the sticky bit. `good`: one more user id that is
    accepted."""
    owners = (os.geteuid(),) if strict else (os.geteuid(), 0, good)
    if about.st_uid not in owners:
        return f"{path} belongs to user {about.st_uid}"
    others = about.st_mode & stat.S_IWOTH
    if about.st_mode & stat.S_IWGRP and not _is_own_group(about.st_gid):
        others = True
    if others and (strict or not about.st_mode & stat.S_ISVTX):
        return f"{path} can be written by other users (mode {stat.S_IMODE(about.st_mode):o})"
    return None


def _is_own_group(number: int) -> bool:
    """Returns whether a group is private: it has the user's name and no other members. On systems with
    such groups, the umask often lets groups write. A group's list of members does not include the users
    whose primary group it is, so these are checked as well."""
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
        group = grp.getgrgid(number)
    except KeyError:
        return False
    if group.gr_name != user or not set(group.gr_mem) <= {user}:
        return False
    return all(other.pw_name == user for other in pwd.getpwall() if other.pw_gid == number)
