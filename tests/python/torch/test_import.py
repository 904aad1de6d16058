"""Tests that `import torch` works, even if Counterpoint's part of it fails."""

import os
import shutil
import stat

import pytest

# The test replaces each of these functions by one that raises an exception.
PLACES = [
    "_entry.wanted",
    "_load.begin",
    "_load.bridge",
    "_load._make",
    "_load.known",
    "_load.Bridge.begin",
    "_build.shim",
    "_build._compiler",
    "_cache.folder",
    "_cache.find",
    "_build._first_part",
    "_build.include",
]
KINDS = ["OSError", "MemoryError", "RecursionError", "SystemExit", "GeneratorExit", "Own"]

INJECT = """
import builtins, importlib, json, os, sys
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch
del os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"]
from counterpoint.torch import _build, _entry, _load
class Own(BaseException):
    def __str__(self):
        raise self
places, kinds = sys.argv[1].split(), sys.argv[2].split()
lines = []
_entry.complain = _load.complain = lines.append
raised, silent = [], []
for place in places:
    module, name = place.split(".", 1)
    owner = importlib.import_module(f"counterpoint.torch.{module}")
    while "." in name:
        first, name = name.split(".", 1)
        owner = getattr(owner, first)
    original = getattr(owner, name)
    for kind in kinds:
        def fail(*unused, **unused_too):
            raise (Own if kind == "Own" else getattr(builtins, kind))("injected")
        setattr(owner, name, fail)
        _load._bridge = _load._failure = None
        lines.clear()
        try:
            _entry.autoload()
        except BaseException as error:
            raised.append([place, kind, type(error).__name__])
        lines[:] = [line for line in lines if not line.startswith("compiling the bridge")]
        if len(lines) != 1:
            silent.append([place, kind, list(lines)])
        setattr(owner, name, original)
print(json.dumps([raised, silent, float((torch.ones(2) + 1).sum())]))
"""


def test_nothing_that_is_raised_in_any_step_reaches_torch(torch, plugins):
    found = torch.run(INJECT, " ".join(PLACES), " ".join(KINDS), KINETO_PLUGIN_LIB_DIR_PATH=plugins[0]).found
    assert found == [[], [], 4.0]


def test_ctrl_c_in_any_step_reaches_the_program(torch, plugins):
    kind = "KeyboardInterrupt"
    found = torch.run(INJECT, " ".join(PLACES), kind, KINETO_PLUGIN_LIB_DIR_PATH=plugins[0]).found
    assert found == [[[place, kind, kind] for place in PLACES], [[place, kind, []] for place in PLACES], 4.0]


USE = """
import json, torch
from torch.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CPU]) as prof:
    torch.ones(4) + 1
print(json.dumps(sorted({e.name()[:7] for e in prof.profiler.kineto_results.events()})))
"""


@pytest.fixture(scope="session")
def used(torch, plugins):
    """Runs the profiler once. After this run, the compiled shim is in the cache that most tests share."""
    return torch.run(USE, KINETO_PLUGIN_LIB_DIR_PATH=plugins[0])


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"COUNTERPOINT_DIST": "/nonexistent"}, "/nonexistent"),
        ({"PATH": "/nonexistent"}, "no C++ compiler was found"),
        ({"CXX": "false"}, "cannot compile"),
        ({"CXX": "sh -c 'echo some error >&2; exit 1'"}, "some error"),
    ],
    ids=["no library", "no compiler", "compiler fails", "compiler's error"],
)
def test_one_line_says_why_there_are_no_plugins(torch, plugins, tmp_path, variables, line):
    cache = tmp_path / "cache"
    done = torch.run(USE, KINETO_PLUGIN_LIB_DIR_PATH=plugins[0], XDG_CACHE_HOME=cache, **variables)
    assert "aten::a" in done.found
    assert "kernel_" not in done.found
    said = [text for text in done.lines if not text.startswith("compiling the bridge")]
    assert len(said) == 1, done.errors
    assert line in said[0]
    # At most the lock and the reason for the failure are left in the cache.
    left = [path for path in cache.rglob("*") if path.is_file()]
    assert all(path.name == ".lock" or path.suffix == ".failed" and line in path.read_text() for path in left)


def test_a_cut_file_in_the_cache_does_not_kill_the_program(torch, plugins, used, tmp_path):
    variables = {"KINETO_PLUGIN_LIB_DIR_PATH": plugins[0]}
    assert "kernel_" in used.found
    cache = tmp_path / "cache"
    shutil.copytree(torch.cache, cache)
    # The copy of the cache works without a compiler.
    variables.update(XDG_CACHE_HOME=cache, CXX="/nonexistent/c++")
    assert "kernel_" in torch.run(USE, **variables).found
    for path in cache.rglob("*.so"):
        os.truncate(path, 8192)
    done = torch.run(USE, **variables)
    assert "aten::a" in done.found and "kernel_" not in done.found
    assert len(done.lines) == 1 and "no C++ compiler" in done.lines[0], done.errors


def test_another_module_with_our_name_does_no_harm(torch, plugins, tmp_path):
    (tmp_path / "counterpoint.py").write_text("raise SystemExit('not ours')\n")
    path = os.pathsep.join([str(tmp_path), str(torch.site)])
    done = torch.run(USE, KINETO_PLUGIN_LIB_DIR_PATH=plugins[0], PYTHONPATH=path)
    assert "aten::a" in done.found
    assert done.lines == ["PyTorch is not connected: SystemExit: not ours"]
    idle = torch.run(USE, PYTHONPATH=path)
    assert "aten::a" in idle.found
    assert idle.errors == ""


VERSION = """
import json, os, sys
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import torch
del os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"]
torch.__version__ = sys.argv[1]
from counterpoint.torch import _entry
_entry.autoload()
from torch.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CPU]) as prof:
    torch.ones(4) + 1
print(json.dumps(sorted({e.name()[:7] for e in prof.profiler.kineto_results.events()})))
"""


@pytest.mark.parametrize("version", ["2.11.0", "2.99.1+cu140"])
def test_an_unknown_version_is_said_once_and_nothing_breaks(torch, plugins, version):
    done = torch.run(VERSION, version, KINETO_PLUGIN_LIB_DIR_PATH=plugins[0])
    assert "aten::a" in done.found
    assert "kernel_" not in done.found
    assert len(done.lines) == 1, done.errors
    for named in (version, "2.12", "2.15"):
        assert named in done.lines[0]


def test_an_unknown_version_can_be_tried(torch, plugins):
    done = torch.run(VERSION, "2.99.1+cu140", KINETO_PLUGIN_LIB_DIR_PATH=plugins[0], COUNTERPOINT_TORCH="try")
    assert "kernel_" in done.found


def test_a_shim_in_the_cache_needs_no_compiler(torch, plugins, used):
    assert "kernel_" in used.found
    again = torch.run(USE, KINETO_PLUGIN_LIB_DIR_PATH=plugins[0], PATH="/nonexistent")
    assert "kernel_" in again.found
    assert again.errors == ""


def test_cupti_is_turned_off_on_request(torch, plugins):
    # The tests run without a GPU, so they only show that the profiler still works with the variable.
    done = torch.run(USE, KINETO_PLUGIN_LIB_DIR_PATH=plugins[0], KINETO_DISABLE_CUPTI="1")
    assert "kernel_" in done.found
    assert all(line.startswith("compiling the bridge") for line in done.lines), done.errors
    alone = torch.run(USE, KINETO_DISABLE_CUPTI="1")
    assert "aten::a" in alone.found
    assert alone.errors == ""


LATE = """
import json, os
import torch
from torch.profiler import ProfilerActivity, profile
def names():
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        torch.ones(4) + 1
    return sorted({e.name()[:7] for e in prof.profiler.kineto_results.events()})
names()
os.environ["KINETO_DISABLE_CUPTI"] = "1"
from counterpoint.torch import _entry
_entry.autoload()
print(json.dumps(names()))
"""


def test_cupti_cannot_be_turned_off_after_the_first_recording(torch, plugins):
    # The script records before it loads the bridge (our C++ library for PyTorch), so PyTorch's
    # profiler is initialised too early for the variable.
    done = torch.run(LATE)
    assert "aten::a" in done.found
    said = [line for line in done.lines if not line.startswith("compiling the bridge")]
    assert said == ["KINETO_DISABLE_CUPTI comes too late: PyTorch's profiler is initialised already"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_a_file_that_another_user_has_planted_is_not_loaded(torch, plugins, tmp_path):
    cache = tmp_path / "cache"
    variables = {"KINETO_PLUGIN_LIB_DIR_PATH": plugins[0], "XDG_CACHE_HOME": cache}
    assert "kernel_" in torch.run(USE, **variables).found
    (shim,) = cache.rglob("*.so")
    assert stat.S_IMODE(shim.stat().st_mode) == 0o700
    shim.write_bytes(b"planted")
    os.chown(shim, 12345, 12345)
    done = torch.run(USE, **variables)
    assert "kernel_" in done.found
    assert done.lines == [line for line in done.lines if line.startswith("compiling the bridge")]
    assert shim.stat().st_uid == 0
