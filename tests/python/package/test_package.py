"""Tests the package as people install and check it."""

import importlib.util
import os
import shutil
import subprocess
import sys

import places
import pytest

SOURCES = places.ROOT / "bindings/python"


def run(*words, good=0, **variables):
    done = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        cwd=variables.get("PWD"),
    )
    assert done.returncode == good, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_pip_installs_it_with_program_and_library(tmp_path):
    site = tmp_path / "site"
    pip = (sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--target", site, SOURCES)
    run(*pip, COUNTERPOINT_DIST=str(places.DIST))
    code = (
        "import counterpoint._install as i, counterpoint.report;"
        "print(i.program()); print(i.library()); print(counterpoint.report.Report())"
    )
    environment = {"PYTHONPATH": str(site), "COUNTERPOINT_DIST": ""}
    out = run(sys.executable, "-c", code, **environment)
    assert f"{site}/counterpoint/_dist/bin/counterpoint\n" in out
    assert f"{site}/counterpoint/_dist/lib/libcounterpoint.so\n" in out
    # The installed command finds its library and its hook.
    command = site / "bin/counterpoint"
    assert "counterpoint" in run(command, "--version", **environment)
    show = "import os; print(os.environ['PYTHONPATH'], os.environ['LD_PRELOAD'])"
    out = run(
        command, "run", "-e", "none", "-o", tmp_path / "x.cpt", "--", sys.executable, "-c", show, **environment
    )
    assert f"{site}/counterpoint/_hook:{site} {site}/counterpoint/_dist/lib/libcounterpoint.so" in out


def checkout(tmp_path):
    """Copies the part of the checkout that pip needs, without dist/."""
    copy = tmp_path / "checkout"
    unwanted = shutil.ignore_patterns("_dist", "__pycache__")
    shutil.copytree(SOURCES, copy / "bindings/python", ignore=unwanted)
    return copy


def test_without_rust_it_says_what_to_do(tmp_path):
    words = (sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--target", tmp_path / "s")
    copy = checkout(tmp_path)
    (copy / "Cargo.toml").touch()
    out = run(*words, copy / "bindings/python", good=1, COUNTERPOINT_DIST="", PATH="/nowhere")
    assert "Rust is not installed" in out and "COUNTERPOINT_DIST" in out and "docs/tvm.md" in out
    assert "COUNTERPOINT_DIST" in (places.ROOT / "docs/tvm.md").read_text().split("## A worked example")[0]


def test_a_dist_in_the_checkout_is_used_without_rust(tmp_path):
    copy = checkout(tmp_path)
    for name in ("bin/counterpoint", "libexec/counterpoint", "lib/libcounterpoint.so"):
        (copy / "dist" / name).parent.mkdir(parents=True)
        shutil.copy2(places.DIST / name, copy / "dist" / name)
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    python = venv / "bin/python"
    install = (sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps")
    bare = {"COUNTERPOINT_DIST": "", "PATH": "/nowhere", "PYTHONPATH": ""}
    run(*install, copy / "bindings/python", **bare)
    # The installed package needs nothing of the checkout.
    shutil.rmtree(copy)
    out = run(python, "-c", "import counterpoint._install as i; print(i.program()); print(i.library())", **bare)
    assert str(venv) in out.splitlines()[0] and str(venv) in out.splitlines()[1]
    assert "counterpoint" in run(venv / "bin/counterpoint", "--version", **bare)


def test_a_dist_of_another_version_is_not_taken(tmp_path):
    copy = checkout(tmp_path)
    for name in ("bin/counterpoint", "libexec/counterpoint", "lib/libcounterpoint.so"):
        (copy / "dist" / name).parent.mkdir(parents=True)
        (copy / "dist" / name).write_text("#!/bin/sh\necho counterpoint 0.0.1\n")
        (copy / "dist" / name).chmod(0o755)
    words = (sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--target", tmp_path / "s")
    out = run(*words, copy / "bindings/python", good=1, COUNTERPOINT_DIST="", PATH="/nowhere")
    assert "is not of version" in out and "counterpoint 0.0.1" in out


def test_the_wheel_is_installed_where_nothing_else_is(tmp_path):
    wheels = tmp_path / "wheels"
    pip = (sys.executable, "-m", "pip")
    run(*pip, "wheel", "--no-index", "--no-deps", "--wheel-dir", wheels, SOURCES, COUNTERPOINT_DIST=str(places.DIST))
    (wheel,) = wheels.glob("*.whl")
    run(*pip, "install", "--no-index", "--no-deps", "--target", tmp_path / "site", wheel, PATH="/nowhere")
    environment = {"PYTHONPATH": str(tmp_path / "site"), "COUNTERPOINT_DIST": ""}
    assert "counterpoint" in run(sys.executable, "-m", "counterpoint", "--version", **environment)


USER = '''
from collections.abc import Mapping
from typing import Optional

import counterpoint.tvm as cp
from counterpoint.report import Report

def use(vm: object) -> Optional[str]:
    with cp.profile(vm, counters=["page-faults"]) as prof:
        pass
    report: Report = prof.report(all=True)
    first: Optional[cp.Metric] = report.calls[0].get("Name")
    metrics: dict[str, cp.Metric] = cp.profile_function(vm, None, [])()
    reveal_type(report.table(sort=True, aggregate=True, col_sums=True))
    return None if first is None else str(first) + str(metrics)

class Mine(cp.Collector):
    metrics = {"n": cp.Count}

    def start(self, device: object) -> int:
        return 1

    def stop(self, state: int) -> Mapping[str, cp.Metric]:
        return {"n": cp.Count(state)}

use(1).upper()
'''


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_types(tmp_path):
    mypy = (sys.executable, "-m", "mypy", "--cache-dir", tmp_path / "cache")
    out = run(*mypy, "--config-file", SOURCES / "pyproject.toml", PWD=str(SOURCES))
    assert "Success: no issues found" in out
    # The user's program has one type error.
    (tmp_path / "user.py").write_text(USER)
    out = run(
        *mypy, "--strict", tmp_path / "user.py",
        good=1, PYTHONPATH=str(places.DIST / "lib/python"), PWD=str(tmp_path),
    )
    assert 'Revealed type is "str"' in out or 'Revealed type is "builtins.str"' in out
    assert 'error: Item "None" of' in out and "Found 1 error in 1 file" in out


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
def test_root_makes_no_profile_where_another_user_can_replace_it(tmp_path):
    code = (
        "import os, sys\n"
        "from counterpoint import _places\n"
        "from counterpoint.errors import CounterpointError\n"
        "try: print(os.path.isdir(_places.make()))\n"
        "except CounterpointError as error: print(error)\n"
    )
    package = str(places.DIST / "lib/python")
    if not os.path.isfile(f"{package}/counterpoint/_trust.py"):
        pytest.skip(f"no {package}")

    def made(folder, *before):
        return run(*before, sys.executable, "-c", code, PYTHONPATH=package, TMPDIR=str(folder))

    theirs, shared, ours = (tmp_path / name for name in ("theirs", "shared", "ours"))
    for folder in (theirs, shared, ours):
        folder.mkdir(mode=0o700)
    (theirs / "below").mkdir()
    os.chown(theirs, 12345, 12345)
    shared.chmod(0o777)
    assert f"{theirs} belongs to user 12345" in made(theirs)
    assert f"{theirs} belongs to user 12345" in made(theirs / "below")
    assert f"{shared} can be written by other users" in made(shared)
    assert not list(theirs.glob("counterpoint-*")) + list(shared.glob("counterpoint-*"))
    assert made(ours) == "True\n"
    shared.chmod(0o1777)
    assert made(shared) == "True\n"
    # Outside of a container, 65534 is a user like any other.
    os.chown(theirs, 65534, 65534)
    assert f"{theirs} belongs to user 65534" in made(theirs)
    # In a container, the id 65534 stands for every user outside who has no id in the container. The
    # owner 65534 may then be the user who started the container, so the folder is accepted, unless
    # other users can replace files in it.
    container = ("unshare", "--user", "--map-root-user")
    if subprocess.run([*container, "true"], capture_output=True).returncode != 0:
        pytest.skip("no user namespaces")
    theirs.chmod(0o755)
    assert made(theirs / "below", *container) == "True\n"
    theirs.chmod(0o777)
    assert f"{theirs} can be written by other users" in made(theirs / "below", *container)
    theirs.chmod(0o1777)
    assert made(theirs / "below", *container) == "True\n"
