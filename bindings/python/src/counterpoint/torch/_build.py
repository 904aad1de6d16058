"""Compiles the shim (`_shim/*.cpp`), and stores it in the user's cache (`_cache.py`).

The shim uses the C++ ABI of one version of PyTorch, so the cache has one file for each version
(and for each state of the sources, and each compiler):

    $XDG_CACHE_HOME/counterpoint/torch/2.15.0+cu132-<torch's git>-<sources>-<compiler>-<digest>.so

If no trusted folder for the cache is available, the shim is compiled in a temporary folder, for this process
alone.

A release contains compiled shims for the versions of PyTorch with which it was tested:

    _prebuilt/2.15.0-<torch's git>-<sources>-<ABI>.so.xz

These files are unpacked into the cache. Such a shim needs C and C++ libraries that are at least as new as
those of the machine that compiled it. With older libraries, the shim is compiled as usual. The
release's files are compressed, so that they do not count as shared libraries, and the wheel's platform tag
need not cover the libraries that the shims need.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Callable, NamedTuple, Optional, Sequence

from counterpoint._install import include
from counterpoint.torch import _cache
from counterpoint.torch._progress import REDRAW_S, Progress

SHIM = Path(__file__).resolve().parent / "_shim"
PREBUILT = Path(__file__).resolve().parent / "_prebuilt"
LONGEST_BUILD_S = 600.0


class NoShim(Exception):
    """No shim can be made. The text says why."""


class Torch(NamedTuple):
    """The properties of PyTorch on which the shim depends."""

    version: str
    """As `torch.__version__`, for example 2.15.0+cu132."""
    git: str
    cxx11: bool
    """Whether it was compiled with the new ABI of libstdc++'s strings."""
    folder: Path
    """The folder of the package, with `include` and `lib`."""

    def number(self) -> int:
        """Returns the version as a number: 21500 for 2.15.0."""
        parts = [int("".join(c for c in p if c.isdigit()) or 0) for p in self.version.split("+")[0].split(".")]
        major, minor, patch = (*parts, 0, 0, 0)[:3]
        return major * 10_000 + min(minor, 99) * 100 + min(patch, 99)


class Built(NamedTuple):
    """A shim that can be loaded."""

    path: Path
    temporary: Optional[Path]
    """A folder to remove after the file was loaded."""
    prebuilt: bool = False
    """Whether it came with the package, and so may not fit the libraries of this machine."""


def shim(torch: Torch, say: Callable[[str], None], prebuilt: bool = True) -> Built:
    """Returns the shim that came with the package, if there is one and `prebuilt` is true. Otherwise
    returns the cached shim. If the cache has no shim or cannot be used, the shim is compiled. `say`
    receives lines for the user. Raises NoShim."""
    sources = sorted(SHIM.glob("*.cpp"))
    headers = include()
    if not sources:
        raise NoShim(f"{SHIM} has no C++ files")
    if not (torch.folder / "include/kineto/libkineto.h").is_file():
        raise NoShim(f"{torch.folder}/include has no headers of Kineto, which PyTorch's wheels have")
    if prebuilt:
        unpacked = _unpacked(torch, sources, headers)
        if unpacked is not None:
            return unpacked
    compiler = _compiler()
    first = _first_part(torch, sources, headers)
    cache, why_not = _cache.folder()
    if cache is None:
        if compiler is None:
            raise NoShim(NO_COMPILER)
        folder, why = _cache.temporary()
        if folder is None:
            raise NoShim(f"{why_not}, and a temporary folder cannot be used either: {why}")
        try:
            say(f"{why_not}; the bridge to PyTorch is compiled for this process alone ({DURATION})")
            return Built(_compile(compiler, torch, sources, headers, folder, folder / "shim.so"), folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    # Without a compiler, a cached shim from any compiler is accepted.
    name = f"{first}-{compiler.key if compiler else '*'}"
    found = _cache.find(cache, name)
    if found is not None:
        return Built(found, None)
    if compiler is None:
        raise NoShim(NO_COMPILER)
    waits = f"compiling the bridge to PyTorch {torch.version}: another process does that, and this one waits for it"
    with _cache.locked(cache, LONGEST_BUILD_S, lambda: say(waits)) as alone:
        # While this process waited for the lock, another one may have made the shim, or failed to.
        found = _cache.find(cache, name)
        if found is not None:
            return Built(found, None)
        before = _cache.failure(cache, name)
        if before is not None:
            raise NoShim(before)
        if alone:
            # Remove what killed processes left behind.
            for left in cache.glob(".build-*"):
                shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
        say(f"compiling the bridge to PyTorch {torch.version} (once; {DURATION})")
        folder = Path(tempfile.mkdtemp(prefix=".build-", dir=cache))
        try:
            made = _compile(compiler, torch, sources, headers, folder, folder / "shim.so")
            return Built(_cache.put(cache, name, made), None)
        except NoShim as error:
            _cache.remember_failure(cache, name, str(error))
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)


DURATION = "about 25 s of processor time"

NO_COMPILER = (
    "no C++ compiler was found (c++, g++ or clang++ in PATH, or CXX); one with C++20 is needed to build"
    " the bridge, once for each version of PyTorch"
)


class _Compiler(NamedTuple):
    words: list[str]
    key: str
    """A text that changes when the compiler changes."""


def _compiler() -> Optional[_Compiler]:
    chosen = os.environ.get("CXX", "").strip()
    for words in ([shlex.split(chosen)] if chosen else [["c++"], ["g++"], ["clang++"]]):
        path = shutil.which(words[0]) if words else None
        if path is None:
            continue
        # The key is made of the compiler's arguments, path, size and time, because asking the
        # compiler for its version would take 20 ms at each start.
        real = os.path.realpath(path)
        about = os.stat(real)
        text = repr((words[1:], real, about.st_size, about.st_mtime_ns))
        return _Compiler([path, *words[1:]], _digest(text.encode())[:8])
    return None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def prebuilt_name(torch: Torch) -> str:
    """Builds of one commit of PyTorch (for the CPU only, for CUDA) have the same headers, so they
    use the same shim."""
    text = _contents(sorted(SHIM.glob("*.cpp")), include()) + repr(_flags(torch)).encode()
    number = torch.version.split("+")[0]
    abi = "cxx11" if torch.cxx11 else "cxx98"
    return f"{number}-{torch.git[:16]}-{_digest(text)[:16]}-{abi}-{platform.machine()}"


def prebuild(torch: Torch, folder: Path) -> Path:
    """Compiles the shim for a release, and returns the packed file in `folder`. Raises NoShim."""
    compiler = _compiler()
    if compiler is None:
        raise NoShim(NO_COMPILER)
    with tempfile.TemporaryDirectory() as temporary:
        made = Path(temporary) / "shim.so"
        _compile(compiler, torch, sorted(SHIM.glob("*.cpp")), include(), Path(temporary), made, ["-s"])
        packed = lzma.compress(made.read_bytes(), preset=9)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{prebuilt_name(torch)}.so.xz"
    path.write_bytes(packed)
    return path


def cached(torch: Torch, cache: Path) -> Optional[tuple[Optional[Path], Optional[str]]]:
    """Returns the cached shim (if there is one), and why compiling it failed (if it failed a short time
    ago). `None` if the cache has no shim and the machine has no compiler."""
    compiler = _compiler()
    first = _first_part(torch, sorted(SHIM.glob("*.cpp")), include())
    name = f"{first}-{compiler.key if compiler else '*'}"
    found = _cache.find(cache, name)
    if found is None and compiler is None:
        return None
    return found, _cache.failure(cache, name)


def _unpacked(torch: Torch, sources: list[Path], headers: Path) -> Optional[Built]:
    name = prebuilt_name(torch)
    packed = PREBUILT / f"{name}.so.xz"
    if not packed.is_file():
        return None
    cache, _ = _cache.folder()
    name = f"prebuilt-{name}"
    found = None if cache is None else _cache.find(cache, name)
    if found is not None:
        return Built(found, None, prebuilt=True)
    folder, _ = _cache.temporary() if cache is None else (Path(tempfile.mkdtemp(prefix=".build-", dir=cache)), "")
    if folder is None:
        return None
    made = folder / "shim.so"
    try:
        made.write_bytes(lzma.decompress(packed.read_bytes()))
        made.chmod(0o700)
        if cache is None:
            return Built(made, folder, prebuilt=True)
        built = Built(_cache.put(cache, name, made), None, prebuilt=True)
    except (OSError, lzma.LZMAError):
        # For example, the disk is full, or the package is damaged.
        built = None
    shutil.rmtree(folder, ignore_errors=True)
    return built


def _contents(sources: list[Path], headers: Path) -> bytes:
    files = [*sources, *sorted(SHIM.glob("*.h")), *sorted((headers / "counterpoint").glob("torch*.h"))]
    return b"".join(file.name.encode() + b"\0" + file.read_bytes() + b"\0" for file in files)


def _first_part(torch: Torch, sources: list[Path], headers: Path) -> str:
    """The part of a cached shim's name that does not depend on the compiler."""
    text = _contents(sources, headers)
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


def _compile(
    compiler: _Compiler,
    torch: Torch,
    sources: list[Path],
    headers: Path,
    folder: Path,
    output: Path,
    linking: Sequence[str] = (),
) -> Path:
    """Compiles all files in parallel, and links them. Raises NoShim."""
    flags = _flags(torch)
    for path in (SHIM, headers):
        flags += ["-I", str(path)]
    for inside in ("include", "include/kineto", "include/torch/csrc/api/include"):
        flags += ["-isystem", str(torch.folder / inside)]
    objects = [folder / f"{source.stem}.o" for source in sources]
    running: list[tuple[str, subprocess.Popen[bytes]]] = []
    progress = Progress(f"compiling the bridge to PyTorch {torch.version}")

    def tick() -> None:
        done = sum(process.poll() is not None for _, process in running)
        progress.show(f"{min(done, len(sources))} of {len(sources)} files")

    try:
        for source, made in zip(sources, objects):
            words = [*compiler.words, *flags, "-c", str(source), "-o", str(made)]
            running.append((source.name, _start(words, folder / f"{source.stem}.log")))
        until = time.monotonic() + LONGEST_BUILD_S
        for name, process in running:
            _finish(process, name, folder / f"{Path(name).stem}.log", compiler, until, tick)
        libraries = ["-L", str(torch.folder / "lib"), "-ltorch_cpu", "-lc10"]
        # These libraries are already loaded when the shim is loaded, so it needs no run path.
        link = [*compiler.words, "-shared", "-Wl,-z,defs", *linking, "-o", str(output), *map(str, objects), *libraries]
        running.append(("the shim", _start(link, folder / "link.log")))
        _finish(running[-1][1], "the shim", folder / "link.log", compiler, until, tick)
    finally:
        progress.end()
        for _, process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
    output.chmod(0o700)
    return output


def _start(words: list[str], log: Path) -> "subprocess.Popen[bytes]":
    # With this environment, Counterpoint does not record the compiler.
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
    process: "subprocess.Popen[bytes]",
    name: str,
    log: Path,
    compiler: _Compiler,
    until: float,
    tick: Callable[[], None],
) -> None:
    """Waits for a process, and calls `tick` repeatedly until it ends. Raises NoShim if the
    process fails or takes too long."""
    while True:
        left = until - time.monotonic()
        try:
            code = process.wait(min(REDRAW_S, max(left, 0.0)))
            break
        except subprocess.TimeoutExpired:
            if left <= 0:
                raise NoShim(f"{compiler.words[0]} took more than {LONGEST_BUILD_S:.0f} s for {name}") from None
            tick()
    if code != 0:
        lines = log.read_text(errors="replace").splitlines()
        # The first line about an error is the useful one: the linker names what is missing before
        # the compiler reports that the linker failed.
        telling = (line for line in lines if "error" in line or "undefined" in line)
        told = next(telling, lines[-1] if lines else f"exit code {code}")
        raise NoShim(f"{compiler.words[0]} cannot compile {name}: {told.strip()}")
