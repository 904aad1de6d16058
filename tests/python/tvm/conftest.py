import importlib.util

import places
import pytest


@pytest.fixture(autouse=True, scope="session")
def tvm_and_counterpoint():
    if importlib.util.find_spec("tvm") is None:
        pytest.skip("TVM is not installed")
    if not (places.DIST / "bin/counterpoint").is_file():
        pytest.skip(f"no {places.DIST}/bin/counterpoint")


@pytest.fixture(scope="module")
def mlp():
    """Returns a virtual machine with the model `mlp`, the name of its entry function, and arguments
    for a call."""
    import models

    mod, entry, arrays = models.MODELS["mlp"]()
    return models.machine(mod), entry, models.tensors(arrays)
