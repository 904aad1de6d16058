"""Runs PyTorch for the tests in separate processes, as for a user who installed the package.

The tests may run in any Python. They start the Python of the virtual environment in COUNTERPOINT_VENV_TORCH or
COUNTERPOINT_VENV_TORCH_212. PYTHONPATH contains the files that `pip install` would install.
"""

import compileall
import json
import os
import shutil
import subprocess
import sys
import uuid
import zipfile
from pathlib import Path

import places
import pytest

SCRIPTS = Path(__file__).resolve().parent / "scripts"
# A program that imports PyTorch begins with this text. See scripts/quick.py.
QUICK = f"import sys\nsys.path.insert(0, {str(SCRIPTS)!r})\nimport quick\ndel sys.path[0]\n"
PLUGINS = places.ROOT / "tests/programs/plugins"


class Outcome:
    """`found` is the JSON in the last line that the script printed."""

    def __init__(self, done):
        self.code = done.returncode
        self.output = done.stdout.decode(errors="replace")
        self.errors = done.stderr.decode(errors="replace")
        self.lines = [
            line.removeprefix("counterpoint: ")
            for line in self.errors.splitlines()
            if line.startswith("counterpoint: ")
        ]

    @property
    def found(self):
        assert self.code == 0, self.errors
        return json.loads(self.output.splitlines()[-1])


class Torch:

    def __init__(self, venv, site, cache, compiler):
        self.python = str(Path(venv) / "bin/python")
        self.site = site
        self.cache = cache
        self.compiler = compiler

    def environment(self, **variables):
        """Returns the environment of a user's shell, changed by `variables`. None removes a variable."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("COUNTERPOINT_", "KINETO_", "TORCH_", "PYTHON"))
        }
        kept.update(
            PYTHONPATH=str(self.site),
            PYTHONDONTWRITEBYTECODE="1",
            XDG_CACHE_HOME=str(self.cache),
            OMP_NUM_THREADS="2",
            KINETO_LOG_LEVEL="99",
        )
        if self.compiler is not None:
            kept["PATH"] = os.pathsep.join([str(self.compiler), os.environ["PATH"]])
        kept.update(variables)
        return {name: str(value) for name, value in kept.items() if value is not None}

    def run(self, script, *arguments, timeout=300, quick=True, **variables):
        """Runs a script of `scripts/`. A `script` with a line feed is Python text, which runs after `QUICK`
        if `quick` is true."""
        path = SCRIPTS / script
        words = [str(path)] if "\n" not in script else ["-c", QUICK * quick + script]
        done = subprocess.run(
            [self.python, *words, *map(str, arguments)],
            capture_output=True,
            timeout=timeout,
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
        )
        return Outcome(done)


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Returns a folder with the unpacked wheel, which is what `pip install` installs."""
    if not (places.DIST / "bin/counterpoint").is_file():
        pytest.skip(f"no {places.DIST}/bin/counterpoint")
    folder = tmp_path_factory.mktemp("wheel")
    build = f"import build_wheel_of_checkout as b; b.build_wheel({str(folder)!r})"
    subprocess.run(
        [sys.executable, "-c", build],
        cwd=places.ROOT / "bindings/python",
        env={**os.environ, "COUNTERPOINT_DIST": str(places.DIST), "PYTHONDONTWRITEBYTECODE": "1"},
        check=True,
        capture_output=True,
    )
    made = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(made)
    # pip also compiles bytecode and sets the rights of files, which zipfile does not restore.
    compileall.compile_dir(made, quiet=1)
    for program in ("bin", "libexec"):
        (made / f"counterpoint/_dist/{program}/counterpoint").chmod(0o755)
    return made


def kept(tmp_path_factory, name):
    """Makes the folder `name`, inside the folder that COUNTERPOINT_TORCH_SHIMS names, if it is set. Then later
    runs of the tests and the tests in Rust use `name`, too."""
    place = os.environ.get("COUNTERPOINT_TORCH_SHIMS")
    folder = Path(place) / name if place else tmp_path_factory.mktemp(name)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Most tests share this cache, so that the shim (the C++ library between Counterpoint and PyTorch) is
    compiled once for each version of PyTorch."""
    return kept(tmp_path_factory, "cache")


@pytest.fixture(scope="session")
def compiler(tmp_path_factory):
    """This `c++` keeps its results (`compiler.py`), so that tests with their own caches do not
    compile the same shim again. Returns None if there is no compiler."""
    real = shutil.which("c++")
    if real is None:
        return None
    folder = tmp_path_factory.mktemp("compiler")
    script = folder / "c++"
    script.write_text(f"#!{sys.executable}\n" + (SCRIPTS / "compiler.py").read_text())
    script.chmod(0o755)
    (folder / "real").symlink_to(real)
    (folder / "kept").symlink_to(kept(tmp_path_factory, "objects"))
    return folder


@pytest.fixture(scope="session")
def torch(site, cache, compiler):
    venv = os.environ.get("COUNTERPOINT_VENV_TORCH")
    if not venv:
        pytest.skip("COUNTERPOINT_VENV_TORCH is not set")
    return Torch(venv, site, cache, compiler)


@pytest.fixture(scope="session", params=["COUNTERPOINT_VENV_TORCH", "COUNTERPOINT_VENV_TORCH_212"])
def any_torch(request, site, cache, compiler):
    """pytest runs the tests of all modules with one PyTorch before it runs any with the next. So a fixture
    with the scope of a module would be torn down in between, and be made once more."""
    venv = os.environ.get(request.param)
    if not venv:
        pytest.skip(f"{request.param} is not set")
    return Torch(venv, site, cache, compiler)


@pytest.fixture(scope="session")
def plugins(tmp_path_factory):
    """Returns a folder with a plugin, and the random name of its kernels."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("plugins")
    return folder, compile_plugin(folder / "launches.so")


def compile_plugin(path):
    """Compiles `launches.c`, and returns the random name of its kernels."""
    name = f"kernel_{uuid.uuid4().hex}"
    subprocess.run(
        ["cc", "-std=c11", "-shared", "-fPIC", "-O1", "-I", places.ROOT / "include"]
        + [f'-DNAME="{name}"', PLUGINS / "launches.c", "-o", path],
        check=True,
    )
    return name
