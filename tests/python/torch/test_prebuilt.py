"""Tests a bridge (the compiled library between Counterpoint and PyTorch) that came with the package, in processes with
and without a compiler.

The tests pack the bridge from the cache of compiled bridges that most tests share.
"""

import json
import lzma
import os
import shutil
import subprocess
from pathlib import Path

import places
import pytest
from conftest import QUICK

# `about` describes PyTorch as `_load.py` does.
COMPILED = """
import json, pathlib, sys, torch
from counterpoint.torch import _build
git, cxx11 = torch.version.git_version, torch._C._GLIBCXX_USE_CXX11_ABI
about = _build.Torch(torch.__version__, git, bool(cxx11), pathlib.Path(torch.__file__).resolve().parent)
print(json.dumps([_build.prebuilt_name(about), str(_build.shim(about, print).path)]))
"""

PROGRAM = """
import torch
x = torch.ones(4, 4)
print(float((x @ x).sum()))
"""


def linked(source, target):
    """Programs are large, so a hard link is better than a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


class Release:
    """A `dist/` that contains a bridge."""

    def __init__(self, torch, bridge, folder):
        self.torch = torch
        self.dist = folder / "dist"
        self.cache = folder / "cache"
        self.cache.mkdir(mode=0o700)
        (folder / "bin").mkdir()
        shutil.copytree(places.DIST, self.dist, copy_function=linked, symlinks=True)
        name, self.bridge = bridge
        place = self.dist / "lib/python/counterpoint/torch/_prebuilt"
        place.mkdir(exist_ok=True)
        self.packed = place / f"{name}.so.xz"
        self.no_programs = folder / "bin"
        self.script = folder / "program.py"
        self.script.write_text(QUICK + PROGRAM)

    def run(self, bridge, compiler):
        """Runs the program with this bridge. Returns the recorded ops, and the messages."""
        self.packed.unlink(missing_ok=True)
        self.packed.write_bytes(lzma.compress(bridge, preset=0))
        program, profile = str(self.dist / "bin/counterpoint"), self.script.with_suffix(".cpt")
        variables = {"PYTHONPATH": None, "COUNTERPOINT_DIST": self.dist, "XDG_CACHE_HOME": self.cache}
        variables.update({} if compiler else {"PATH": self.no_programs, "CXX": None})
        environment = self.torch.environment(**variables)
        words = ["run", "-e", "page-faults:u", "-q", "-o", profile, "--", self.torch.python, self.script]
        done = subprocess.run([program, *words], capture_output=True, text=True, env=environment, timeout=300)
        assert (done.returncode, done.stdout) == (0, "64.0\n"), done.stderr
        shown = subprocess.run([program, "ops", profile, "--json"], capture_output=True, text=True)
        ops = json.loads(shown.stdout)["ops"] if shown.returncode == 0 else []
        return {op["name"] for op in ops}, done.stderr


@pytest.fixture(scope="session")
def bridge(any_torch):
    """Returns the name that the bridge of this PyTorch has in a release, and the bridge's content."""
    if any_torch.compiler is None:
        pytest.skip("there is no C++ compiler")
    name, compiled = any_torch.run(COMPILED).found
    return name, Path(compiled).read_bytes()


@pytest.fixture
def release(any_torch, bridge, tmp_path):
    return Release(any_torch, bridge, tmp_path)


def test_without_a_compiler(release):
    names, said = release.run(release.bridge, compiler=False)
    assert {"aten::matmul", "aten::mm", "aten::sum"} <= names
    assert said == ""
    assert [path.name.startswith("prebuilt-") for path in release.cache.rglob("*.so")] == [True]


def test_where_the_libraries_are_too_old(release):
    """No libstdc++ has the version GLIBCXX_9.4, so the bridge that came with the package cannot be loaded."""
    assert b"GLIBCXX_3.4" in release.bridge
    too_new = release.bridge.replace(b"GLIBCXX_3.4", b"GLIBCXX_9.4")
    names, said = release.run(too_new, compiler=False)
    assert names == set()
    assert "no C++ compiler was found" in said and "GLIBCXX_9.4" in said and len(said.splitlines()) == 1
    names, said = release.run(too_new, compiler=True)
    assert {"aten::matmul", "aten::mm", "aten::sum"} <= names
    assert "compiling the bridge to PyTorch" in said and len(said.splitlines()) == 1
