"""Tests compiling the shim (the C++ library between Counterpoint and PyTorch) and keeping it in a cache. A small fake
PyTorch makes the shim compile fast."""

import contextlib
import ctypes
import fcntl
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import termios
import threading
import types

import places
import pytest

if shutil.which("c++") is None:
    pytest.skip("no C++ compiler (c++)", allow_module_level=True)
if not (places.DIST / "include/counterpoint/torch.h").is_file():
    pytest.skip(f"no {places.DIST}/include/counterpoint/torch.h", allow_module_level=True)

from counterpoint import _trust  # noqa: E402
from counterpoint.torch import _build, _cache, _prepare  # noqa: E402


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Makes an empty PyTorch, a shim of two source files, and a compiler that counts its calls."""
    folder = tmp_path / "torch"
    (folder / "include/kineto").mkdir(parents=True)
    (folder / "include/kineto/libkineto.h").write_text("")
    (folder / "lib").mkdir()
    for name in ("torch_cpu", "c10"):
        empty = ["c++", "-shared", "-x", "c++", "/dev/null", "-o", str(folder / f"lib/lib{name}.so")]
        subprocess.run(empty, check=True)
    shim = tmp_path / "shim"
    shim.mkdir()
    (shim / "one.cpp").write_text('extern "C" int one() { return COUNTERPOINT_TORCH_VERSION; }\n')
    (shim / "two.cpp").write_text('extern "C" int two() { return 2; }\n')
    monkeypatch.setattr(_build, "SHIM", shim)
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\necho call >> {tmp_path}/calls\nexec c++ "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return _build.Torch("2.15.0+cpu", "0123456789abcdef", True, folder)


def calls(tmp_path):
    path = tmp_path / "calls"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_a_shim_is_compiled_once(fake, tmp_path):
    said = []
    first = _build.shim(fake, said.append)
    assert first.temporary is None
    assert len(said) == 1
    # The compiler compiled two files and linked them.
    assert calls(tmp_path) == 3
    again = _build.shim(fake, said.append)
    assert (again, len(said), calls(tmp_path)) == (first, 1, 3)
    assert first.path.parent == tmp_path / "cache/counterpoint/torch"
    assert sorted(p.name for p in first.path.parent.iterdir()) == sorted([".lock", first.path.name])
    told = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).nothing)"
    failed = subprocess.run([sys.executable, "-c", told, first.path], capture_output=True, text=True)
    assert "undefined symbol: nothing" in failed.stderr


@pytest.mark.parametrize("change", ["version", "git", "cxx11", "source", "header", "compiler"])
def test_everything_that_matters_is_part_of_the_key(fake, tmp_path, monkeypatch, change):
    first = _build.shim(fake, lambda line: None).path
    other = fake
    if change == "version":
        other = fake._replace(version="2.15.1+cpu")
    elif change == "git":
        other = fake._replace(git="fedcba9876543210")
    elif change == "cxx11":
        other = fake._replace(cxx11=False)
    elif change == "source":
        (_build.SHIM / "two.cpp").write_text('extern "C" int two() { return 3; }\n')
    elif change == "header":
        (_build.SHIM / "shim.h").write_text("")
    else:
        monkeypatch.setenv("CXX", os.environ["CXX"] + " -g")
    assert _build.shim(other, lambda line: None).path != first
    assert calls(tmp_path) == 6


def test_the_number_of_a_version():
    number = lambda version: _build.Torch(version, "", True, places.ROOT).number()  # noqa: E731
    assert number("2.15.0+cu132") == 21500
    assert number("2.12.1") == 21201
    assert number("2.16.0a0+git123") == 21600
    assert number("3") == 30000


def asks(fake, tmp_path):
    """Returns the command and the environment of a script that asks for the shim. The script prints messages
    on stderr; on stdout, it prints the shim's path or why there is no shim."""
    script = tmp_path / "one.py"
    script.write_text(
        "import json, sys\n"
        "from pathlib import Path\n"
        "from counterpoint.torch import _build\n"
        f"_build.SHIM = Path({str(_build.SHIM)!r})\n"
        f"torch = _build.Torch({fake.version!r}, {fake.git!r}, True, Path({str(fake.folder)!r}))\n"
        "try: print(json.dumps(str(_build.shim(torch, lambda line: print(line, file=sys.stderr)).path)))\n"
        "except _build.NoShim as error: print(error)\n"
    )
    return [sys.executable, str(script)], {**os.environ, "PYTHONPATH": str(places.DIST / "lib/python")}


def started(fake, tmp_path, count):
    """Starts `count` processes that ask for the shim at the same time. Returns what they print."""
    words, environment = asks(fake, tmp_path)
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) for _ in range(count)]
    return [process.communicate()[0] for process in running]


def on_a_terminal(words, environment, columns):
    """Runs a process whose stderr is a terminal with `columns` columns. Returns the terminal's text."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=theirs, env={**environment, "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    # At the end, reading fails, because no process has the terminal open any more.
    with contextlib.suppress(OSError):
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    assert process.wait() == 0
    return shown.decode().replace("\r\n", "\n")


def test_compiling_shows_on_a_terminal_how_far_it_is(fake, tmp_path):
    slow = tmp_path / "compiler"
    slow.write_text(f'#!/bin/sh\necho call >> {tmp_path}/calls\ncase "$*" in *two.cpp*) sleep 2;; esac\nexec c++ "$@"\n')
    words, environment = asks(fake, tmp_path)
    said, *lines, left = on_a_terminal(words, environment, 66).split("\r\x1b[K")
    assert said.startswith("compiling the bridge to PyTorch 2.15.0+cpu (once; ") and said.endswith("\n")
    assert len(lines) > 1
    for line in lines:
        # The line that shows the progress leaves the terminal's last column empty.
        assert line.startswith("counterpoint: compiling the bridge to PyTorch 2.15.0+cpu: ") and len(line) <= 65
    # The line is erased in the end.
    assert left == ""
    # If stderr is not a terminal, there is no such line. With the shim in the cache, there is no
    # message at all.
    (_build.SHIM / "one.cpp").write_text('extern "C" int one() { return 1; }\n')
    done = subprocess.run(words, capture_output=True, env=environment, text=True, check=True)
    assert len(done.stderr.splitlines()) == 1 and "\x1b" not in done.stderr
    assert on_a_terminal(words, environment, 80) == ""


def test_who_waits_for_another_process_says_so(fake, tmp_path):
    cache = tmp_path / "cache/counterpoint/torch"
    _build.shim(fake, lambda line: None)
    (_build.SHIM / "one.cpp").write_text('extern "C" int one() { return 1; }\n')
    words, environment = asks(fake, tmp_path)
    with (cache / ".lock").open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        waits = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, text=True)
        first = waits.stderr.readline()
    # The process prints once that it waits, and continues when it has the lock.
    rest = waits.stderr.read()
    assert waits.wait() == 0
    assert "another process does that, and this one waits for it" in first
    assert rest.startswith("compiling the bridge to PyTorch 2.15.0+cpu (once;") and len(rest.splitlines()) == 1


def test_processes_at_the_same_time_compile_once(fake, tmp_path):
    paths = {json.loads(text) for text in started(fake, tmp_path, 6)}
    assert len(paths) == 1
    assert calls(tmp_path) == 3


def test_threads_at_the_same_time_compile_once(fake, tmp_path):
    paths = []
    work = lambda: paths.append(_build.shim(fake, lambda line: None).path)  # noqa: E731
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 4
    assert len(set(paths)) == 1
    assert calls(tmp_path) == 3


def broken(path):
    path.chmod(0o777)


def linked(path):
    path.rmdir()
    elsewhere = path.parent.parent / "elsewhere"
    elsewhere.mkdir(mode=0o777)
    elsewhere.chmod(0o777)
    path.symlink_to(elsewhere)


@pytest.mark.parametrize("harm", [broken, linked])
def test_a_cache_that_others_can_write_is_not_used(fake, tmp_path, harm):
    folder = tmp_path / "cache/counterpoint/torch"
    folder.mkdir(parents=True, mode=0o700)
    harm(folder)
    said = []
    built = _build.shim(fake, said.append)
    assert built.temporary is not None
    assert built.path.parent == built.temporary
    assert built.temporary.stat().st_mode & 0o077 == 0
    assert len(said) == 1
    assert "can be written by other users" in said[0]
    assert not list(folder.glob("*.so"))
    shutil.rmtree(built.temporary)


def test_a_parent_of_the_cache_that_others_can_write_is_not_good_either(fake, tmp_path):
    open_folder = tmp_path / "cache"
    open_folder.mkdir()
    open_folder.chmod(0o777)
    built = _build.shim(fake, lambda line: None)
    assert built.temporary is not None
    shutil.rmtree(built.temporary)
    # With the sticky bit, as /tmp has it, other users cannot replace our files.
    open_folder.chmod(0o1777)
    assert _build.shim(fake, lambda line: None).temporary is None


def test_a_umask_that_lets_the_group_write_does_no_harm(fake, tmp_path):
    before = os.umask(0o002)
    try:
        assert _build.shim(fake, lambda line: None).temporary is None
    finally:
        os.umask(before)
    for folder in ("cache", "cache/counterpoint", "cache/counterpoint/torch"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700


def test_a_private_group_may_write_and_any_other_may_not(fake, tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o770)
    groups = {"own": ("me", []), "with a friend": ("me", ["me", "friend"]), "users": ("users", [])}
    groups["primary of another"] = ("me", ["me"])

    class Of:
        def __init__(self, **values):
            self.__dict__.update(values)

    here = folder.stat().st_gid
    me, other = Of(pw_name="me", pw_gid=here), Of(pw_name="other", pw_gid=here)
    monkeypatch.setattr(_trust.pwd, "getpwuid", lambda number: me)
    for name, (group, members) in groups.items():
        users = [Of(pw_name="root", pw_gid=here + 1), me] + [other] * (name == "primary of another")
        monkeypatch.setattr(_trust.pwd, "getpwall", lambda: users)
        monkeypatch.setattr(_trust.grp, "getgrgid", lambda number: Of(gr_name=group, gr_mem=members))
        built = _build.shim(fake, lambda line: None)
        assert (built.temporary is None) == (name == "own"), name
        if built.temporary is not None:
            shutil.rmtree(built.temporary)


def test_what_a_killed_process_left_is_removed(fake, tmp_path):
    left = tmp_path / "cache/counterpoint/torch/.build-killed"
    left.mkdir(parents=True, mode=0o700)
    left.parent.chmod(0o700)
    left.parent.parent.chmod(0o700)
    left.parent.parent.parent.chmod(0o700)
    (left / "one.o").write_text("")
    built = _build.shim(fake, lambda line: None)
    assert built.temporary is None
    assert not left.exists()


def damaged(path, harm):
    if harm == "writable":
        path.write_bytes(b"planted")
        path.chmod(0o722)
    elif harm == "foreign":
        if os.geteuid() != 0:
            pytest.skip("only root can give files to another user")
        path.write_bytes(b"planted")
        os.chown(path, 12345, 12345)
    elif harm == "fifo":
        path.unlink()
        os.mkfifo(path)
    elif harm == "link":
        path.unlink()
        path.symlink_to("/dev/null")
    elif harm == "empty":
        path.write_bytes(b"")
    elif harm == "cut":
        os.truncate(path, path.stat().st_size // 2)
    elif harm == "changed":
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)


@pytest.mark.parametrize("harm", ["writable", "foreign", "fifo", "link", "empty", "cut", "changed"])
def test_a_file_that_is_not_whole_or_not_ours_is_made_again(fake, tmp_path, harm):
    path = _build.shim(fake, lambda line: None).path
    content = path.read_bytes()
    damaged(path, harm)
    again = _build.shim(fake, lambda line: None).path
    assert again.is_file() and not again.is_symlink()
    assert len(again.read_bytes()) == len(content)
    assert calls(tmp_path) == 6
    assert _build.shim(fake, lambda line: None).path == again and calls(tmp_path) == 6
    assert [p.name for p in again.parent.glob("*.so")] == [again.name]


def test_without_a_compiler_a_bad_file_is_not_loaded(fake, tmp_path, monkeypatch):
    path = _build.shim(fake, lambda line: None).path
    monkeypatch.setenv("CXX", "/nonexistent/c++")
    assert _build.shim(fake, lambda line: None).path == path
    damaged(path, "cut")
    with pytest.raises(_build.NoShim, match=r"no C\+\+ compiler"):
        _build.shim(fake, lambda line: None)


def test_no_home_no_space_and_no_headers(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (tmp_path / "file").write_text("")
    said = []
    built = _build.shim(fake, said.append)
    assert "cannot be used" in said[0]
    shutil.rmtree(built.temporary)
    # The specification of XDG_CACHE_HOME says that a relative path is ignored.
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert _build.shim(fake, said.append).path.parent == tmp_path / ".cache/counterpoint/torch"
    with pytest.raises(_build.NoShim, match="no headers of Kineto"):
        _build.shim(fake._replace(folder=tmp_path), said.append)


def test_what_the_compiler_says_is_passed_on(fake, tmp_path):
    (_build.SHIM / "two.cpp").write_text("#error two is broken\n")
    with pytest.raises(_build.NoShim, match="two.cpp.*two is broken"):
        _build.shim(fake, lambda line: None)
    (_build.SHIM / "two.cpp").write_text('extern "C" int three(); extern "C" int two() { return three(); }')
    with pytest.raises(_build.NoShim, match="three"):
        _build.shim(fake, lambda line: None)
    folder = tmp_path / "cache/counterpoint/torch"
    assert sorted(path.suffix for path in folder.iterdir()) == ["", ".failed", ".failed"]


def test_a_failure_is_remembered_until_something_changes(fake, tmp_path, monkeypatch):
    (_build.SHIM / "two.cpp").write_text("#error two is broken\n")
    said = []
    with pytest.raises(_build.NoShim, match="two is broken"):
        _build.shim(fake, said.append)
    tried = calls(tmp_path)
    with pytest.raises(_build.NoShim, match=r"two is broken.*remove .*\.failed to try again"):
        _build.shim(fake, said.append)
    assert (calls(tmp_path), len(said)) == (tried, 1)
    (note,) = (tmp_path / "cache/counterpoint/torch").glob("*.failed")
    # With a changed compiler, compiling is tried again.
    monkeypatch.setenv("CXX", os.environ["CXX"] + " -g")
    with pytest.raises(_build.NoShim, match="two is broken"):
        _build.shim(fake, said.append)
    assert (len(said), calls(tmp_path) > tried) == (2, True)
    monkeypatch.setenv("CXX", os.environ["CXX"].removesuffix(" -g"))
    # Compiling is tried again after an hour, because headers may be installed by then. It is also
    # tried again if other users can write to the file with the reason.
    for harm in (lambda: os.utime(note, (0, note.stat().st_mtime - 2 * _cache.REMEMBERED_S)), lambda: note.chmod(0o722)):
        harm()
        before = calls(tmp_path)
        with pytest.raises(_build.NoShim, match="two is broken$"):
            _build.shim(fake, said.append)
        assert calls(tmp_path) > before
    (_build.SHIM / "two.cpp").write_text('extern "C" int two() { return 2; }\n')
    assert _build.shim(fake, said.append).temporary is None


def test_processes_at_the_same_time_fail_once(fake, tmp_path):
    (_build.SHIM / "two.cpp").write_text("#error two is broken\n")
    assert all(b"two is broken" in text for text in started(fake, tmp_path, 4))
    # Each of the two files was compiled once, and nothing was linked.
    assert calls(tmp_path) == 2


def test_nothing_is_made_before_it_is_trusted(fake, tmp_path, monkeypatch):
    """Root may run with the HOME of another user. Nothing must be written there."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(home))
    stat = os.stat

    def foreign(path, **words):
        about = stat(path, **words)
        if str(path) == str(home):
            fields = list(about)
            fields[4] = 12345
            return os.stat_result(fields)
        return about

    monkeypatch.setattr(_cache.Path, "stat", lambda self, **words: foreign(self, **words))
    said = []
    built = _build.shim(fake, said.append)
    shutil.rmtree(built.temporary)
    assert "belongs to user 12345" in said[0]
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("home", ["", "relative", None])
def test_a_home_that_is_no_place_is_ignored(fake, tmp_path, monkeypatch, home):
    class User:
        pw_dir = str(tmp_path / "real")
        pw_name = "me"

    monkeypatch.setattr(_cache.pwd, "getpwuid", lambda number: User)
    (tmp_path / "real").mkdir()
    monkeypatch.chdir(tmp_path)
    for chosen in ("", "relative", None):
        for name, value in (("HOME", home), ("XDG_CACHE_HOME", chosen)):
            monkeypatch.setenv(name, value) if value is not None else monkeypatch.delenv(name, raising=False)
        built = _build.shim(fake, lambda line: None)
        assert built.path.parent == tmp_path / "real/.cache/counterpoint/torch"
    assert not (tmp_path / "relative").exists() and calls(tmp_path) == 3
    User.pw_dir = str(tmp_path / "missing")
    said = []
    shutil.rmtree(_build.shim(fake, said.append).temporary)
    assert "cannot be used" in said[0] and not (tmp_path / "missing").exists()


def test_a_temporary_folder_that_others_can_replace_is_not_used(fake, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    place = tmp_path / "tmp"
    place.mkdir()
    place.chmod(0o777)
    monkeypatch.setattr(_cache.tempfile, "tempdir", str(place))
    with pytest.raises(_build.NoShim, match="can be written by other users"):
        _build.shim(fake, lambda line: None)
    place.chmod(0o1777)
    shutil.rmtree(_build.shim(fake, lambda line: None).temporary)


@pytest.fixture
def packed(fake, tmp_path, monkeypatch):
    """Returns the path of a packed prebuilt shim. Other builds of the same commit of PyTorch can use it, too."""
    monkeypatch.setattr(_build, "PREBUILT", tmp_path / "prebuilt")
    path = _build.prebuild(fake, tmp_path / "prebuilt")
    assert path.name.startswith("2.15.0-0123456789abcdef-")
    (tmp_path / "calls").unlink()
    return path


def test_a_shim_that_came_with_the_package_is_unpacked_once(fake, packed, tmp_path):
    said = []
    other = fake._replace(version="2.15.0+cu132")
    first = _build.shim(fake, said.append)
    assert first.prebuilt and first.temporary is None
    ctypes.CDLL(str(first.path))
    assert _build.shim(other, said.append) == first
    assert (said, calls(tmp_path)) == ([], 0)
    # The caller passes `prebuilt=False` if a prebuilt shim cannot be loaded on this machine. The
    # shim is then compiled.
    compiled = _build.shim(fake, said.append, prebuilt=False)
    assert not compiled.prebuilt and compiled.path != first.path
    assert (len(said), calls(tmp_path)) == (1, 3)


@pytest.mark.parametrize("change", ["git", "cxx11", "source", "damaged", "cut"])
def test_a_shim_that_does_not_fit_is_compiled(fake, packed, tmp_path, change):
    other = fake
    if change == "git":
        other = fake._replace(git="fedcba9876543210")
    elif change == "cxx11":
        other = fake._replace(cxx11=False)
    elif change == "source":
        (_build.SHIM / "two.cpp").write_text('extern "C" int two() { return 3; }\n')
    else:
        content = packed.read_bytes()
        packed.write_bytes(content[: len(content) // 2] if change == "cut" else b"x" + content[1:])
    assert not _build.shim(other, lambda line: None).prebuilt
    assert calls(tmp_path) == 3


def test_doctor_compiles_in_the_background(fake, tmp_path, monkeypatch, capsys):
    fake.folder.joinpath("__init__.py").write_text("raise SystemExit('PyTorch is not imported')\n")
    fake.folder.joinpath("version.py").write_text(
        f"from typing import Optional\n__version__ = {fake.version!r}\ncuda: Optional[str] = None\ngit_version = {fake.git!r}\n"
    )
    monkeypatch.syspath_prepend(str(fake.folder.parent))
    monkeypatch.setattr(_build, "PREBUILT", tmp_path / "none")
    started = []
    stand_in = types.SimpleNamespace(DEVNULL=None, Popen=lambda words, **how: started.append(words))
    monkeypatch.setattr(_prepare, "subprocess", stand_in)

    def doctor():
        assert _prepare.main(["doctor"]) == 0
        return json.loads(capsys.readouterr().out)

    assert _prepare.installed() == fake._replace(folder=fake.folder.resolve())
    said = doctor()
    assert said["level"] == "note" and "is being compiled in the background (once; about" in said["state"]
    assert [words[-1] for words in started] == ["compile"]
    assert _prepare.main(started[0][2:]) == 0
    assert doctor() == {"level": "ok", "state": "PyTorch 2.15.0+cpu: its bridge is compiled"}
    assert (len(started), calls(tmp_path)) == (1, 3)
    fake.folder.joinpath("version.py").write_text("__version__ = '1.0'\n")
    assert "PyTorch 1.0 is not one of the versions" in doctor()["state"]
    monkeypatch.setenv("COUNTERPOINT_TORCH", "off")
    assert _prepare.main(["doctor"]) == 0 and capsys.readouterr().out == ""
