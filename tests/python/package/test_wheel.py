"""Tests the content of the wheel, and the platforms that its tag names."""

import importlib.util
import os
import subprocess
import sys
import zipfile

import places
import pytest

SOURCES = places.ROOT / "bindings/python"


@pytest.fixture(scope="module")
def backend():
    spec = importlib.util.spec_from_file_location("backend", SOURCES / "build_wheel_of_checkout.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "content, any_linux",
    [
        (b"\0GLIBC_2.2.5\0libc.so.6\0GLIBC_2.17\0", True),
        (b"\0GLIBC_2.2.5\0GLIBC_2.18\0", False),
        (b"\0GLIBC_2.34\0GLIBC_2.14\0", False),
        (b"\0GLIBC_3.0\0", False),
        (b"\0libgcc_s.so.1\0GLIBC_2.14\0", False),
        # This file only mentions a version, and does not require it.
        (b"needs GLIBC_2.34 or so\0", True),
    ],
)
def test_what_runs_on_any_linux(backend, tmp_path, content, any_linux):
    path = tmp_path / "x.so"
    path.write_bytes(content)
    assert backend.runs_on_any(path) is any_linux


def versions(path):
    """Returns the versions of glibc that a file needs, as binutils read them."""
    done = subprocess.run(["readelf", "--version-info", "--wide", path], capture_output=True, text=True, check=True)
    words = done.stdout.split("Version needs section", 1)[-1].split()
    found = (word.removeprefix("GLIBC_") for word in words if word.startswith("GLIBC_2."))
    return {tuple(map(int, word.split(".")))[:2] for word in found}


def test_the_tag_is_what_the_files_need(backend, tmp_path, monkeypatch):
    monkeypatch.setenv("COUNTERPOINT_DIST", str(places.DIST))
    name = backend.build_wheel(tmp_path)
    with zipfile.ZipFile(tmp_path / name) as wheel:
        inside = wheel.namelist()
        wheel.extractall(tmp_path / "x")
    built = [name for name in inside if name.endswith((".so", "/bin/counterpoint", "/libexec/counterpoint"))]
    assert len(built) >= 5, built
    highest = max(max(versions(tmp_path / "x" / one)) for one in built)
    assert ("manylinux_2_17_" in name) == (highest <= (2, 17)), (name, highest)
    info = backend.DIST_INFO
    for needed in ("LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY.txt"):
        assert f"{info}/licenses/{needed}" in inside
    tags = (tmp_path / "x" / info / "WHEEL").read_text()
    for platform in name.removesuffix(".whl").split("-")[-1].split("."):
        assert f"Tag: py3-none-{platform}\n" in tags
    # `man` looks for a program's manual pages in `share/man` beside the folder of PATH that
    # contains the program.
    pages = f"{backend.NAME}.data/data/share/man/man1"
    assert f"{pages}/counterpoint.1" in inside and f"{pages}/counterpoint-run.1" in inside
    first = (tmp_path / name).read_bytes()
    os.utime(places.DIST / "bin/counterpoint")
    assert backend.build_wheel(tmp_path) == name and (tmp_path / name).read_bytes() == first


def test_the_project_file_says_the_same(backend):
    """pip reads pyproject.toml before it calls our build backend, so both must state the same metadata."""
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((SOURCES / "pyproject.toml").read_text())["project"]
    metadata = backend.metadata(backend.HERE_ONLY)["METADATA"]
    assert f"\nVersion: {project['version']}\n" in metadata
    assert f"\nSummary: {project['description']}\n" in metadata
    assert f"\nRequires-Python: {project['requires-python']}\n" in metadata
    for extra in project["optional-dependencies"]:
        assert f"\nProvides-Extra: {extra}\n" in metadata


def test_every_module_is_read_by_the_oldest_python(backend):
    """The wheel requires Python 3.9. Any newer interpreter can check the grammar of 3.9."""
    import ast

    for path in backend.sources():
        if path.suffix == ".py" and "_hook" not in path.parts:
            ast.parse(path.read_text(), str(path), feature_version=(3, 9))
    assert sys.version_info >= (3, 9)
