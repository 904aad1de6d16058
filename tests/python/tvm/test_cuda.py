"""Tests the counters of a CUDA device, which have PAPI's names and are read before and after each op. Test doubles
replace the libraries of CUPTI (`tests/programs/plugins/cupti_range.c`) and of CUDA's driver. A process can load only
one CUPTI, so each test starts a child process."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import places
import pytest

PROGRAMS = Path(__file__).parents[2] / "programs/plugins"

CHILD = """
import ctypes, json, os, sys, warnings
driver = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
cupti = ctypes.CDLL(sys.argv[2])
import numpy as np
import tvm
from tvm import relax
import counterpoint.tvm as cp

driver.double_device(1)
names = json.loads(sys.argv[3])
device = "cuda:1" if os.environ.get("TEST_DEVICE_AS_TEXT") else tvm.cuda(1)

class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("kind", ctypes.c_int32), ("id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

class OnDevice:
    # A tensor that says that it is on the device with the number 1: nobody reads it.
    def __init__(self):
        self.memory, self.shape, self.strides = (ctypes.c_float * 64)(), (ctypes.c_int64 * 1)(4), (ctypes.c_int64 * 1)(1)
        shape, strides = ctypes.addressof(self.shape), ctypes.addressof(self.strides)
        aligned = -(-ctypes.addressof(self.memory) // 64) * 64
        self.tensor = Tensor(aligned, 2, 1, 1, 2, 32, 1, shape, strides, 0, None, None)
    def __dlpack__(self, **_):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)
    def __dlpack_device__(self):
        return (2, 1)

def launch(tensor):
    for _ in range(3):
        cupti.double_op(1)
    return tensor

tvm.register_global_func("test.launch", launch)
TENSOR = getattr(relax, "TensorStructInfo", None) or relax.TensorType
RESULT = "sinfo_args" if hasattr(relax, "TensorStructInfo") else "ty_args"
x = relax.Var("x", TENSOR((4,), "float32"))
builder = relax.BlockBuilder()
with builder.function("main", [x], pure=False):
    result = {RESULT: [TENSOR((4,), "float32")]}
    builder.emit_func_output(builder.emit(relax.Call(relax.ExternFunc("test.launch"), [x], **result)))
machine = relax.VirtualMachine(tvm.compile(builder.get(), target="llvm"), tvm.cpu())
own = OnDevice()
on_device, on_host = tvm.runtime.from_dlpack(own), tvm.runtime.tensor(np.zeros(4, "float32"))
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    with cp.profile(machine, collectors=[cp.CounterCollector({device: names} if names else [device])]) as prof:
        driver.double_captures(int(os.environ.get("TEST_CAPTURE", "0")))
        machine["main"](on_device)
        driver.double_captures(0)
        machine["main"](on_host)
rows = [row for row in prof.report(all=True).calls if row["Name"].string == "test.launch"]
columns = sorted(key for key in rows[0] if key.startswith("cuda:::"))
# A count has a value, a ratio a ratio.
found = [[getattr(row.get(key), "value", getattr(row.get(key), "ratio", None)) for key in columns] for row in rows]
print(json.dumps({"columns": columns, "rows": found, "told": [str(one.message) for one in told], "left": cupti.double_left(),
    "losses": {loss.name: loss.count for loss in prof.report(all=True).losses}, "broken": driver.double_broken()}))
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("cuda")
    made = []
    for source, name, flags in [
        ("cuda_driver.c", "libcuda.so.1", ["-Wl,-soname,libcuda.so.1"]),
        ("cupti_range.c", "libcupti.so.13", ["-pthread"]),
        ("cupti.c", "older.so", []),
        ("cupti_range.c", "forbidden.so", ["-pthread", "-DRANGES_FORBIDDEN"]),
    ]:
        made.append(folder / name)
        command = ["cc", "-std=c11", "-fPIC", "-shared", *flags, "-o", made[-1], PROGRAMS / source, "-lm"]
        subprocess.run(command, check=True)
    return made


def counted(libraries, names, cupti=None, environment=None):
    """A child process counts `names` in two calls of an op that runs three kernels on device 1. The
    argument of the first call is on this device, that of the second call on the host."""
    driver, double = libraries[:2]
    path = os.pathsep.join(filter(None, [str(places.DIST / "lib/python"), os.environ.get("PYTHONPATH")]))
    variables = {**os.environ, "PYTHONPATH": path, "COUNTERPOINT_CUPTI": str(cupti or double), **(environment or {})}
    command = [sys.executable, "-c", CHILD, str(driver), str(double), json.dumps(names)]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_op_on_the_device_has_its_counters(libraries):
    names = ["cuda:::sm__cycles_active.avg", "cuda:::dram__bytes_read.sum:stat=per_second:device=1"]
    found = counted(libraries, names)
    # Each of three kernels adds 5 + c to counter number c (cupti_range.c).
    assert found["columns"] == [names[1], "cuda:::sm__cycles_active.avg:device=1"]
    assert found["rows"] == [[18.0, 15.0], [None, None]], found
    assert found["told"] == [] and found["left"] == 0 and found["losses"] == {}
    assert counted(libraries, names, environment={"TEST_DEVICE_AS_TEXT": "1"}) == found


def test_an_op_in_a_capture_is_counted_as_one_without_values(libraries):
    found = counted(libraries, ["cuda:::sm__cycles_active.avg"], environment={"TEST_CAPTURE": "1"})
    assert found["columns"] == [] and found["broken"] == 0, found
    # The calls of TVM's own functions with the device's tensor are ops, too, so the number of these
    # ops is not known in advance.
    assert list(found["losses"]) == ["collector_failed"]
    count = found["losses"]["collector_failed"]
    assert len(found["told"]) == 1 and f"{count} ops have no values" in found["told"][0], found


def test_a_text_is_a_device_if_it_is_one_of_tvms():
    from counterpoint.errors import ArgumentError
    from counterpoint.tvm._cuda import index_of

    assert [index_of(text) for text in ("cuda", "cuda:0", "cuda:12", "cuda(3)")] == [0, 0, 12, 3]
    for text in ("cuda:", "cuda:x", "cuda:-1", "cuda:1:2"):
        with pytest.raises(ArgumentError, match="is not a device of CUDA"):
            index_of(text)


def test_what_prevents_counting_is_told(libraries):
    for names, told in [
        (["cuda:::event:no_such"], "CUPTI has no events any more"),
        (["cuda:::sm__cycles_active.avg:device=0", "cuda:::ratio__without.pct"], "are of one device"),
    ]:
        found = counted(libraries, names)
        assert found["columns"] == []
        assert len(found["told"]) == 1 and told in found["told"][0], found
        assert "the counters of cuda:1 are left out" in found["told"][0]
        assert "NVreg" not in found["told"][0]
    found = counted(libraries, ["cuda:::sm__cycles_active.avg"], cupti=libraries[2])
    assert found["columns"] == [] and "has no function cupti" in found["told"][0], found
    # That a counter needs two runs of an op is discovered only when the first op is measured.
    found = counted(libraries, ["cuda:::needs__two_passes.sum"])
    assert found["columns"] == []
    assert len(found["told"]) == 1 and "these counters need 2 runs" in found["told"][0], found
    # The advice about rights is only for users who may not read the counters.
    assert "modprobe" not in found["told"][0]
    forbidden = counted(libraries, ["cuda:::sm__cycles_active.avg"], cupti=libraries[3])
    assert "error 35; root may read" in forbidden["told"][0], forbidden
    assert "put `options nvidia NVreg_RestrictProfilingToAdminUsers=0`" in forbidden["told"][0]


def test_the_default_counter_is_that_of_tvms_collector(libraries):
    found = counted(libraries, None)
    # The test double does not have the default counter, sm__cycles_elapsed.sum.
    assert "cuptiProfilerHostConfigAddMetrics: error 17" in found["told"][0], found
    chosen = counted(libraries, None, environment={"TVM_PAPI_CUDA_METRICS": "cuda:::sm__cycles_active.avg:device=1;"})
    assert (chosen["columns"], chosen["rows"]) == (["cuda:::sm__cycles_active.avg:device=1"], [[15.0], [None]])
