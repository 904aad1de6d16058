"""Compiles the shim (`_shim/*.cpp`), and keeps it in the user's cache.

The shim speaks the C++ ABI of one version of PyTorch, so there is one file for each version:

    $XDG_CACHE_HOME/counterpoint/torch/2.15.0+cu132-<torch's git>-<sources>-<compiler>.so

Whoever can write there can run code in this process. The folder is used only if nobody but its owner
and root can write to it, nor to any folder above it; otherwise the shim is compiled in a temporary
folder for this process alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import grp
import hashlib
import os
import pwd
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, NamedTuple, Optional

from counterpoint._install import include

SHIM = Path(__file__).resolve().parent / "_shim"
LONGEST_BUILD_S = 600.0


class NoShim(Exception):
    """There is no shim. The text says why."""


class Torch(NamedTuple):
    """What the shim depends on of the installed PyTorch."""

    version: str
    """As `torch.__version__`, for example 2.15.0+cu132."""
    git: str
    cxx11: bool
    """Whether it was compiled with the new ABI of libstdc++'s strings."""
    folder: Path
    """The folder of the package, with `include` and `lib`."""

    def number(self) -> int:
        """21500 for 2.15.0."""
        parts = [int("".join(c for c in p if c.isdigit()) or 0) for p in self.version.split("+")[0].split(".")]
        major, minor, patch = (*parts, 0, 0, 0)[:3]
        return major * 10_000 + min(minor, 99) * 100 + min(patch, 99)


class Built(NamedTuple):
    """A shim that can be loaded."""

    path: Path
    temporary: Optional[Path]
    """A folder to remove after the file was loaded."""


def shim(torch: Torch, say: Callable[[str], None]) -> Built:
    """Returns the shim, and compiles it if the cache does not have it. `say` receives lines for the user.
    Raises NoShim."""
    sources = sorted(SHIM.glob("*.cpp"))
    headers = include()
    if not sources:
        raise NoShim(f"{SHIM} has no C++ files")
    if not (torch.folder / "include/kineto/libkineto.h").is_file():
        raise NoShim(f"{torch.folder}/include has no headers of Kineto, which PyTorch's wheels have")
    compiler = _compiler()
    first = _first_part(torch, sources, headers)
    name = f"{first}-{compiler.key}.so" if compiler else None
    cache, why_not = _cache()
    if cache is None:
        if compiler is None:
            raise NoShim(_NO_COMPILER)
        folder = Path(tempfile.mkdtemp(prefix="counterpoint-torch-"))
        try:
            say(f"{why_not}; the bridge to PyTorch is compiled for this process alone, which takes seconds")
            return Built(_compile(compiler, torch, sources, headers, folder, folder / "shim.so"), folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    found = _found(cache, first, name)
    if found is not None:
        return Built(found, None)
    if compiler is None or name is None:
        raise NoShim(_NO_COMPILER)
    with _locked(cache / ".lock") as alone:
        # Another process may have made it meanwhile.
        if _trusted_file(cache / name):
            return Built(cache / name, None)
        if alone:
            # Left behind by a process that was killed.
            for left in cache.glob(".build-*"):
                shutil.rmtree(left, ignore_errors=True)
        say(f"compiling the bridge to PyTorch {torch.version} (once; about ten seconds)")
        folder = Path(tempfile.mkdtemp(prefix=".build-", dir=cache))
        try:
            made = _compile(compiler, torch, sources, headers, folder, folder / name)
            made.replace(cache / name)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return Built(cache / name, None)


_NO_COMPILER = (
    "no C++ compiler was found (c++, g++ or clang++ in PATH, or CXX); one with C++20 is needed to build"
    " the bridge, once for each version of PyTorch"
)


class _Compiler(NamedTuple):
    words: list[str]
    key: str
    """Changes when the compiler does."""


def _compiler() -> Optional[_Compiler]:
    chosen = os.environ.get("CXX", "").strip()
    for words in ([shlex.split(chosen)] if chosen else [["c++"], ["g++"], ["clang++"]]):
        path = shutil.which(words[0]) if words else None
        if path is None:
            continue
        # Asking it for its version would take 20 ms at each start.
        real = os.path.realpath(path)
        about = os.stat(real)
        text = repr((words[1:], real, about.st_size, about.st_mtime_ns))
        return _Compiler([path, *words[1:]], _digest(text.encode())[:8])
    return None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _first_part(torch: Torch, sources: list[Path], headers: Path) -> str:
    """Returns the part of the name that does not depend on the compiler."""
    files = [*sources, *sorted(SHIM.glob("*.h")), *sorted((headers / "counterpoint").glob("torch*.h"))]
    text = b"".join(file.name.encode() + b"\0" + file.read_bytes() + b"\0" for file in files)
    text += repr((_flags(torch), torch.folder)).encode()
    version = "".join(c if c.isalnum() or c in ".+" else "_" for c in torch.version)
    return f"{version}-{torch.git[:8]}-{_digest(text)[:16]}"


def _flags(torch: Torch) -> list[str]:
    return [
        "-std=c++20",
        "-O2",
        "-fPIC",
        "-fvisibility=hidden",
        "-DUSE_KINETO",
        "-DKINETO_NAMESPACE=libkineto",
        "-DFMT_HEADER_ONLY",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.cxx11)}",
        f"-DCOUNTERPOINT_TORCH_VERSION={torch.number()}",
    ]


def _found(cache: Path, first: str, name: Optional[str]) -> Optional[Path]:
    """Returns the shim in the cache. Without a compiler, one that any compiler made will do."""
    names = [cache / name] if name is not None else sorted(cache.glob(f"{first}-*.so"))
    return next((path for path in names if _trusted_file(path)), None)


def _compile(
    compiler: _Compiler, torch: Torch, sources: list[Path], headers: Path, folder: Path, output: Path
) -> Path:
    """Compiles all files at the same time, and links them. Raises NoShim."""
    flags = _flags(torch)
    for path in (SHIM, headers):
        flags += ["-I", str(path)]
    for path in ("include", "include/kineto", "include/torch/csrc/api/include"):
        flags += ["-isystem", str(torch.folder / path)]
    objects = [folder / f"{source.stem}.o" for source in sources]
    running = []
    try:
        for source, made in zip(sources, objects):
            words = [*compiler.words, *flags, "-c", str(source), "-o", str(made)]
            running.append((source.name, _start(words, folder / f"{source.stem}.log")))
        until = time.monotonic() + LONGEST_BUILD_S
        for name, process in running:
            _finish(process, name, folder / f"{Path(name).stem}.log", compiler, until)
        libraries = ["-L", str(torch.folder / "lib"), "-ltorch_cpu", "-lc10"]
        # Without a run path: PyTorch has loaded its libraries, which are found by their names.
        link = [*compiler.words, "-shared", "-Wl,-z,defs", "-o", str(output), *map(str, objects), *libraries]
        running.append(("the shim", _start(link, folder / "link.log")))
        _finish(running[-1][1], "the shim", folder / "link.log", compiler, until)
    finally:
        for _, process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
    output.chmod(0o700)
    return output


def _start(words: list[str], log: Path) -> "subprocess.Popen[bytes]":
    # The compiler must not be recorded if `counterpoint run` records this program.
    environment = {**os.environ, "LC_ALL": "C", "COUNTERPOINT_RUN_FILE": ""}
    environment.pop("LD_PRELOAD", None)
    try:
        with log.open("wb") as output:
            return subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
            )
    except OSError as error:
        raise NoShim(f"start {words[0]}: {error}") from None


def _finish(
    process: "subprocess.Popen[bytes]", name: str, log: Path, compiler: _Compiler, until: float
) -> None:
    try:
        code = process.wait(max(until - time.monotonic(), 0.0))
    except subprocess.TimeoutExpired:
        raise NoShim(f"{compiler.words[0]} took more than {LONGEST_BUILD_S:.0f} s for {name}") from None
    if code != 0:
        lines = log.read_text(errors="replace").splitlines()
        # The linker names what is missing before the compiler says that the linker failed.
        telling = (line for line in lines if "error" in line or "undefined" in line)
        told = next(telling, lines[-1] if lines else f"exit code {code}")
        raise NoShim(f"{compiler.words[0]} cannot compile {name}: {told.strip()}")


def _cache() -> tuple[Optional[Path], str]:
    """Returns the folder of the cache, or `None` and why it is not used."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    # The specification says that a relative path is to be ignored.
    base = Path(chosen) if os.path.isabs(chosen) else Path(os.path.expanduser("~")) / ".cache"
    if not base.is_absolute():
        return None, "there is no home folder for a cache"
    folder = base / "counterpoint" / "torch"
    try:
        # One by one, because `parents=True` would make all but the last as the umask has it.
        for place in (*reversed(folder.parents), folder):
            if not place.exists():
                place.mkdir(mode=0o700, exist_ok=True)
        folder = folder.resolve(strict=True)
        for place in (folder, *folder.parents):
            why = _untrusted(place.stat(), place, strict=place == folder)
            if why is not None:
                return None, why
        if not os.access(folder, os.W_OK | os.X_OK):
            return None, f"{folder} cannot be written"
    except (OSError, RuntimeError) as error:
        return None, f"{folder} cannot be used: {error}"
    return folder, ""


def _untrusted(about: os.stat_result, path: Path, strict: bool) -> Optional[str]:
    """Says why another user could replace what is at `path`. `strict`: a folder whose sticky bit is set
    is not good enough either."""
    owners = (os.geteuid(),) if strict else (os.geteuid(), 0)
    if about.st_uid not in owners:
        return f"{path} belongs to user {about.st_uid}"
    others = about.st_mode & stat.S_IWOTH
    if about.st_mode & stat.S_IWGRP and not _is_own_group(about.st_gid):
        others = True
    if others and (strict or not about.st_mode & stat.S_ISVTX):
        return f"{path} can be written by other users (mode {stat.S_IMODE(about.st_mode):o})"
    return None


def _is_own_group(number: int) -> bool:
    """Whether a group is the user's private one, which has the user's name and no other members. Where users
    have such groups, the umask often lets groups write."""
    try:
        user = pwd.getpwuid(os.geteuid()).pw_name
        group = grp.getgrgid(number)
    except KeyError:
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}


def _trusted_file(path: Path) -> bool:
    try:
        about = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(about.st_mode) and about.st_size > 0 and _untrusted(about, path, strict=True) is None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Keeps other processes from building the same file, and says whether it could. A file system without
    locks is no reason not to build, because the file is put into its place at once."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        until = time.monotonic() + LONGEST_BUILD_S
        alone = False
        while not alone and time.monotonic() < until:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                alone = True
            except BlockingIOError:
                time.sleep(0.05)
            except OSError:
                break
        yield alone
    finally:
        os.close(file)
