"""Says whether other users could replace what is at a place where we write or from where we load."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path
from typing import Optional


def all_untrusted(folder: Path, strangers: bool = True) -> Optional[str]:
    """Says why another user could replace what is made in a folder, or one of the folders above it. A sticky bit, as
    that of /tmp, is good enough. Without `strangers`, an owner who has no number in this container is not another
    user: there, it may be whoever has started the container. Raises OSError."""
    no_number = None if strangers else _no_number()
    for one in (*reversed(folder.parents), folder):
        about = one.stat()
        why = untrusted(about, one, strict=False, good=no_number)
        if why is not None:
            return why
    return None


def _no_number() -> Optional[int]:
    """Returns the user id of files whose owner has none in this container. None if this is no container with
    users of its own: there, the id is that of a user like others (nobody)."""
    try:
        with open("/proc/self/uid_map") as file:
            if file.read().split() == ["0", "0", "4294967295"]:
                return None
        with open("/proc/sys/kernel/overflowuid") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def untrusted(about: os.stat_result, path: Path, strict: bool, good: Optional[int] = None) -> Optional[str]:
    """Says why another user could replace what is at `path`. `strict`: a folder whose sticky bit is set
    is not good enough either. `good`: one more owner who may."""
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
    """Returns whether a group is the user's private one, which has the user's name and no other members.
    Where users have such groups, the umask often lets groups write. The members that a group lists are
    not those users whose primary group it is."""
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
        group = grp.getgrgid(number)
    except KeyError:
        return False
    if group.gr_name != user or not set(group.gr_mem) <= {user}:
        return False
    return all(other.pw_name == user for other in pwd.getpwall() if other.pw_gid == number)
