"""Tests the module sitecustomize that `counterpoint run` adds. Programs must not notice it."""

import json
import os
import subprocess
import sys
import venv

import places
import pytest

HOOK = str(places.DIST / "lib/python/counterpoint/_hook")
SHOW = (
    "import sys; s = sys.modules.get('sitecustomize');"
    "print([p for p in sys.path if '_hook' in p], getattr(s, '__file__', None),"
    " sum(type(f).__name__ == 'Finder' for f in sys.meta_path))"
)


def python(*words, program=sys.executable, path=HOOK, good=0, **variables):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment.update({"PYTHONPATH": path, "COUNTERPOINT_RUN_FILE": "/nowhere/run", **variables})
    done = subprocess.run([program, *words], capture_output=True, text=True, env=environment)
    assert done.returncode == good, done.stderr
    return done.stdout, done.stderr


def test_the_path_is_as_without_it():
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    show = "import sys; print(sys.path)"
    without = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, env=environment)
    assert python("-c", show) == (without.stdout, "")
    hooked, _ = python("-c", SHOW)
    assert hooked.startswith("[] ") and hooked.endswith(" 1\n")


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_options_that_leave_it_out(option):
    out, error = python(option, "-c", SHOW)
    assert out.endswith(" 0\n") and error == ""


def test_without_a_run_it_waits_for_nothing():
    out, _ = python("-c", SHOW, COUNTERPOINT_RUN_FILE="")
    assert out.endswith(" 0\n")


def test_the_users_own_comes_next(tmp_path):
    own = tmp_path / "sitecustomize.py"
    own.write_text("print('mine')\n")
    out, error = python("-c", SHOW, path=f"{HOOK}:{tmp_path}")
    assert out == f"mine\n[] {own} 1\n" and error == ""
    # Python reports an error of the user's own file, as it would without us.
    own.write_text("raise ValueError('mine')\n")
    out, error = python("-c", "print(1)", path=f"{HOOK}:{tmp_path}")
    _, alone = python("-c", "print(1)", path=str(tmp_path))
    assert out == "1\n" and error == alone and "ValueError: mine" in error


def test_a_virtual_environment(tmp_path):
    venv.create(tmp_path / "venv", with_pip=False)
    out, error = python("-c", SHOW, program=str(tmp_path / "venv/bin/python"))
    assert out.startswith("[] ") and out.endswith(" 1\n") and error == ""


def test_a_module_of_the_name_that_is_not_tvms(tmp_path):
    # This `tvm` is the user's own package, and not TVM. Our own errors must not reach the program.
    package = tmp_path / "tvm/runtime"
    package.mkdir(parents=True)
    (tmp_path / "tvm/__init__.py").write_text("__version__ = '0.27.0'\n")
    (package / "__init__.py").write_text("")
    (package / "vm.py").write_text("here = 1\n")
    code = "import sys, tvm.runtime.vm as v; print(v.here, v.__loader__.name)"
    out, error = python("-c", code, path=f"{HOOK}:{tmp_path}")
    assert (out, error) == ("1 tvm.runtime.vm\n", "")
    # An error that the user's package raises reaches the user unchanged.
    (package / "vm.py").write_text("raise OSError('its own')\n")
    _, error = python("-c", code, path=f"{HOOK}:{tmp_path}", good=1)
    assert error.endswith("OSError: its own\n") and "During handling" not in error


def test_run_puts_it_in_front(tmp_path):
    program = str(places.DIST / "bin/counterpoint")
    show = "import os; print(os.environ['PYTHONPATH'])"
    for before, expected in ((None, HOOK), ("", HOOK), ("/a:/b", f"{HOOK}:/a:/b")):
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        if before is not None:
            environment["PYTHONPATH"] = before
        words = [program, "run", "-e", "none", "-o", tmp_path / "x.cpt", "--", sys.executable, "-c", show]
        done = subprocess.run(words, capture_output=True, text=True, env=environment)
        assert os.path.realpath(done.stdout.strip().split(":")[0]) == os.path.realpath(HOOK), done.stderr
        assert done.stdout.strip().split(":")[1:] == expected.split(":")[1:]


def test_a_program_may_look_for_a_module_before_it_imports_it(tmp_path):
    (tmp_path / "torch.py").write_text("")
    code = (
        "import importlib.util, sys\n"
        "(finder,) = [f for f in sys.meta_path if type(f).__name__ == 'Finder']\n"
        "print(importlib.util.find_spec('torch') is not None, 'torch' in finder.waiting)\n"
        "import torch\n"
        "print('torch' in finder.waiting)\n"
    )
    out, error = python("-c", code, path=f"{HOOK}:{tmp_path}", COUNTERPOINT_TORCH="0")
    assert out == "True True\nFalse\n" and error == ""


def test_ldconfig_of_ctypes_is_not_a_loss(tmp_path):
    """To find a library, Python's ctypes starts ldconfig with an almost empty environment; each
    `import torch` causes this."""
    if not os.access("/sbin/ldconfig", os.X_OK):
        pytest.skip("there is no /sbin/ldconfig")
    program, profile = str(places.DIST / "bin/counterpoint"), tmp_path / "x.cpt"
    other = "subprocess.run([sys.executable, '-c', ''], env={})"
    code = f"import ctypes.util, subprocess, sys; print(ctypes.util.find_library('c')); {other}"
    done = subprocess.run(
        [program, "run", "-e", "none", "-o", profile, "--", sys.executable, "-c", code], capture_output=True, text=True
    )
    assert done.stdout == "libc.so.6\n", done.stderr
    report = subprocess.run([program, "ops", profile, "--format", "json"], capture_output=True)
    losses = {loss["name"]: loss["count"] for loss in json.loads(report.stdout)["losses"]}
    # Other programs that start without our variables are counted as a loss.
    assert losses == {"child_without_variables": 1}


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_a_python_that_is_not_connected_is_the_reason(tmp_path, option):
    program, profile = str(places.DIST / "bin/counterpoint"), tmp_path / "x.cpt"
    words = [program, "run", "-e", "none", "-o", profile, "--", sys.executable, option, "-c", "print(1)"]
    assert subprocess.run(words, capture_output=True, text=True).stdout == "1\n"
    for view in ("ops", "report"):
        done = subprocess.run([program, view, profile], capture_output=True, text=True)
        said = " ".join((done.stdout + done.stderr).split())
        assert f"python {option} does not run the sitecustomize" in said, said
