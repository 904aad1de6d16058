"""Builds the wheel of this package, which contains the Python files, the program `counterpoint` and
libcounterpoint.so.

This is a build backend (PEP 517, PEP 660) without dependencies. It takes the program and the library from the
first of these sources whose condition is met:

| source | condition |
|---|---|
| the folder that the variable COUNTERPOINT_DIST names | it is set and not empty |
| `dist/` of the checkout, made by `cargo xtask dist` for any glibc from 2.17 | its files are of this version |
| cargo, which builds the files for this machine in `target/` | Rust is installed |

docs/tvm.md, "Installing", describes this for users.

The package has no compiled Python module, so one wheel works with every Python from 3.9 on. The wheel's tag
says on which machines the program and the library run. The files of a release run on any Linux with glibc
2.17 or later: the tag is `manylinux_2_17`, and also its older name `manylinux2014`, because pip before 20.3
knows only this name. If one of the files needs a newer glibc or `libgcc_s.so.1`, the tag is
`linux_<architecture>`. `cargo xtask release` publishes the wheel that this file makes.
"""

import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGE = HERE / "src/counterpoint"
# The two programs and the library in a wheel. Users start bin/counterpoint, which is small;
# libexec/counterpoint contains the whole command line.
BUILT = ("bin/counterpoint", "libexec/counterpoint", "lib/libcounterpoint.so")
PROGRAMS = ("/bin/counterpoint", "/libexec/counterpoint")
VERSION = re.search(r'__version__ = "(.+)"', (PACKAGE / "__init__.py").read_text()).group(1)
NAME = f"counterpoint-{VERSION}"
# The oldest glibc with which a release works. The platform tags of a wheel for this glibc, and of any other
# wheel.
FLOOR = (2, 17)
ANY_LINUX = (f"manylinux_2_17_{platform.machine()}", f"manylinux2014_{platform.machine()}")
HERE_ONLY = (f"linux_{platform.machine()}",)
DIST_INFO = f"{NAME}.dist-info"
SUMMARY = "A profiler for compiled machine learning: PyTorch, TVM and IREE, with hardware counters"
# `import torch` runs the second entry point.
ENTRY_POINTS = """[console_scripts]
counterpoint = counterpoint.__main__:main

[torch.backends]
counterpoint = _counterpoint_torch:autoload
"""


def get_requires_for_build_wheel(config_settings=None):
    return []


get_requires_for_build_editable = get_requires_for_build_sdist = get_requires_for_build_wheel


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    folder = Path(metadata_directory) / DIST_INFO
    folder.mkdir(parents=True)
    for name, text in metadata(HERE_ONLY).items():
        (folder / name).write_text(text)
    return DIST_INFO


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = [(f"counterpoint/{p.relative_to(PACKAGE)}", p) for p in sources()]
    files.append(("_counterpoint_torch.py", PACKAGE.parent / "_counterpoint_torch.py"))
    built_files = built()
    files += [(f"counterpoint/_dist/{name}", path) for name, path in zip(BUILT, built_files)]
    files += [(f"counterpoint/_dist/{name}", path) for path, name in plugins(built_files[-1])]
    files += prebuilt(built_files[-1])
    files += [(f"counterpoint/_dist/include/counterpoint/{p.name}", p) for p in headers()]
    linked = [path for name, path in files if name.startswith("counterpoint/_dist/") and "/include/" not in name]
    files += shared(built_files[-1])
    return write(Path(wheel_directory), files, {}, ANY_LINUX if all(map(runs_on_any, linked)) else HERE_ONLY)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    # The built files are placed in the folder where an installed package has them. git ignores this folder.
    place = PACKAGE / "_dist"
    built_files = built()
    placed = list(zip(built_files, BUILT))
    placed += [(path, f"include/counterpoint/{path.name}") for path in headers()]
    placed += plugins(built_files[-1])
    for source, name in placed:
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        new = target.with_name(target.name + ".new")
        shutil.copy2(source, new)
        new.replace(target)  # A process that has mapped the old file keeps it.
    return write(Path(wheel_directory), [], {"counterpoint.pth": f"{PACKAGE.parent}\n"}, HERE_ONLY)


def build_sdist(sdist_directory, config_settings=None):
    sys.exit("counterpoint: the Python package alone has no source archive; use a checkout")


def prebuilt(library):
    """Returns the compiled shims for PyTorch that a release contains beside the library."""
    found = sorted((library.parent / "python/counterpoint/torch/_prebuilt").glob("*.so.xz"))
    return [(f"counterpoint/torch/_prebuilt/{path.name}", path) for path in found]


def plugins(library):
    """Returns the profiler plugins beside the library, with their names in the package."""
    found = sorted((library.parent / "counterpoint/plugins").glob("*.so"))
    return [(path, f"lib/counterpoint/plugins/{path.name}") for path in found]


def shared(library):
    """Returns the manual pages that come with the library, and the licences. pip installs the pages where
    `man` finds them."""
    share = library.parent.parent / "share"
    pages = sorted((share / "man/man1").glob("*.1"))
    files = [(f"{NAME}.data/data/share/man/man1/{path.name}", path) for path in pages]
    texts = [ROOT / "LICENSE-MIT", ROOT / "LICENSE-APACHE", share / "doc/counterpoint/THIRD-PARTY.txt"]
    return files + [(f"{DIST_INFO}/licenses/{path.name}", path) for path in texts if path.is_file()]


def runs_on_any(path):
    """Returns whether a program or a library needs neither a glibc newer than `FLOOR` nor
    `libgcc_s.so.1`. It searches the whole file for the names `GLIBC_…` and `libgcc_s.so.1`, so it may return
    False by mistake, but not True."""
    content = path.read_bytes()
    versions = re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?=[.\d]*\0)", content)
    return b"\0libgcc_s.so.1\0" not in content and all((int(a), int(b)) <= FLOOR for a, b in versions)


def sources():
    """Returns the package's files except for built ones, sorted."""
    return sorted(
        path
        for path in PACKAGE.rglob("*")
        if path.is_file()
        and not {"__pycache__", "_dist", "_prebuilt"} & set(path.relative_to(PACKAGE).parts)
    )


def headers():
    """Returns Counterpoint's C headers, which include those for compiling the bridge to PyTorch."""
    return sorted((ROOT / "include/counterpoint").glob("*.h"))


def built():
    """Returns the paths of the files that `BUILT` lists. If COUNTERPOINT_DIST is not set and `dist/` cannot
    be used, cargo builds them."""
    chosen = os.environ.get("COUNTERPOINT_DIST")
    if chosen:
        paths, why = in_dist(Path(chosen))
        if why is not None:
            sys.exit(f"counterpoint: {why} (COUNTERPOINT_DIST={chosen}); `cargo xtask dist` makes it")
        return paths
    paths, why = in_dist(ROOT / "dist")
    if why is None:
        # pip shows this line only with --verbose.
        print(f"counterpoint: taken from {ROOT / 'dist'}; remove that folder to build them instead")
        return paths
    if shutil.which("cargo") is None or not (ROOT / "Cargo.toml").is_file():
        needs = "Rust is not installed" if (ROOT / "Cargo.toml").is_file() else f"no checkout around {HERE}"
        sys.exit(
            f"counterpoint: {why}, and {needs}. Either install Rust (https://rustup.rs) and use a"
            " whole checkout, or copy dist/ into the checkout from a machine where `cargo xtask dist`"
            " has made it, or set COUNTERPOINT_DIST to its location (docs/tvm.md, Installing)"
        )
    target = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
    # `cargo xtask` builds in the same folders, so nothing is built twice.
    cargo(target, "--package", "counterpoint", "--bins")
    artifacts = target / "artifacts"
    cargo(artifacts, "--manifest-path", "artifacts/Cargo.toml", "--package", "counterpoint-so")
    programs = target / "release/counterpoint-start", target / "release/counterpoint"
    return *programs, artifacts / "release/libcounterpoint.so"


def in_dist(dist):
    """Returns the paths in a folder of the files that `BUILT` lists, and a reason if these files cannot be
    used."""
    paths = tuple(dist / name for name in BUILT)
    for path in paths:
        if not path.is_file():
            return paths, f"there is no {path}"
    try:
        told = subprocess.run([paths[0], "--version"], capture_output=True, text=True)
    except OSError as error:
        return paths, f"{paths[0]} does not start here: {error}"
    if told.stdout.split()[:2] != ["counterpoint", VERSION]:
        said = (told.stdout or told.stderr).strip()
        return paths, f"{paths[0]} is not of version {VERSION}: {said}"
    return paths, None


def cargo(target, *words):
    command = ["cargo", "build", "--release", "--target-dir", str(target), *words]
    if subprocess.run(command, cwd=ROOT).returncode != 0:
        sys.exit(f"counterpoint: {' '.join(command)} failed")


def metadata(platforms):
    """Returns the names and contents of the files in the dist-info folder, except for RECORD and the
    licences."""
    lines = [
        "Metadata-Version: 2.1",
        "Name: counterpoint",
        f"Version: {VERSION}",
        f"Summary: {SUMMARY}",
        "License: MIT OR Apache-2.0",
        "Keywords: profiler,performance,hardware counters,pytorch,tvm,iree",
        "Classifier: Development Status :: 4 - Beta",
        "Classifier: Environment :: Console",
        "Classifier: Intended Audience :: Developers",
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Programming Language :: Python :: 3",
        "Classifier: Programming Language :: Rust",
        "Classifier: Topic :: Software Development :: Debuggers",
        "Requires-Python: >=3.9",
        "Provides-Extra: tvm",
        'Requires-Dist: apache-tvm <0.28,>=0.25 ; extra == "tvm"',
        "Provides-Extra: pandas",
        'Requires-Dist: pandas ; extra == "pandas"',
        "Provides-Extra: arrow",
        'Requires-Dist: pyarrow ; extra == "arrow"',
        "Description-Content-Type: text/markdown",
        "",
        (HERE / "README.md").read_text(),
    ]
    wheel = "Wheel-Version: 1.0\nGenerator: counterpoint\nRoot-Is-Purelib: false\n"
    wheel += "".join(f"Tag: py3-none-{platform}\n" for platform in platforms)
    return {"METADATA": "\n".join(lines), "WHEEL": wheel, "entry_points.txt": ENTRY_POINTS}


def write(folder, files, texts, platforms):
    """Writes a wheel. `files` are pairs of a name in the wheel and a path; `texts` maps names to contents."""
    name = f"{NAME}-py3-none-{'.'.join(platforms)}.whl"
    record = []
    texts = {**texts, **{f"{DIST_INFO}/{key}": text for key, text in metadata(platforms).items()}}
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as wheel:

        def put(path, content, mode):
            # Without time stamps, the same input makes the same wheel.
            info = zipfile.ZipInfo(path)
            info.external_attr = (0o100000 | mode) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(info, content)

        def add(path, content, mode):
            put(path, content, mode)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            record.append(f"{path},sha256={digest.decode()},{len(content)}")

        for path, source in files:
            add(path, source.read_bytes(), 0o755 if path.endswith(PROGRAMS) else 0o644)
        for path, text in texts.items():
            add(path, text.encode(), 0o644)
        record.append(f"{DIST_INFO}/RECORD,,")
        put(f"{DIST_INFO}/RECORD", "\n".join(record) + "\n", 0o644)
    return name
