"""Makes small models of the kinds that people profile, without torch, in every version of TVM that Counterpoint
supports.

Each function of `MODELS` returns a module, the name of its entry function, and arguments for this function.
"""

import numpy as np
import tvm
from tvm import relax
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import op
from tvm.script import tirx as T

# TVM changed these two names after version 0.25.
TENSOR = getattr(relax, "TensorStructInfo", None) or relax.TensorType
RESULT = "sinfo_args" if hasattr(relax, "TensorStructInfo") else "ty_args"


class Mlp(nn.Module):
    def __init__(self, width=64, classes=10):
        self.hidden = nn.Linear(width, 4 * width)
        self.back = nn.Linear(4 * width, width)
        self.classes = nn.Linear(width, classes)

    def forward(self, x):
        x = op.relu(self.hidden(x))
        x = op.relu(self.back(x))
        return op.softmax(self.classes(x), axis=-1)


class Cnn(nn.Module):
    def __init__(self, classes=10):
        self.first = nn.Conv2D(3, 8, 3, padding=1)
        self.second = nn.Conv2D(8, 16, 3, padding=1, stride=2)
        self.third = nn.Conv2D(16, 16, 3, padding=1)
        self.classes = nn.Linear(16 * 8 * 8, classes)

    def forward(self, x):
        x = op.relu(self.first(x))
        x = op.relu(self.second(x))
        x = op.relu(self.third(x)) + x
        return self.classes(op.reshape(x, (1, 16 * 8 * 8)))


class Block(nn.Module):
    """One block of a transformer. If `joint` is true, one matrix computes queries, keys and values."""

    def __init__(self, sequence, width, heads, joint):
        self.sequence, self.width, self.heads, self.joint = sequence, width, heads, joint
        self.before, self.behind = nn.LayerNorm(width), nn.LayerNorm(width)
        if joint:
            self.all = nn.Linear(width, 3 * width)
        else:
            self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def split(self, x):
        each = self.width // self.heads
        x = op.reshape(x, (1, self.sequence, self.heads, each))
        return op.permute_dims(x, [0, 2, 1, 3])

    def forward(self, x):
        h = self.before(x)
        parts = op.split(self.all(h), 3, axis=-1) if self.joint else (self.q(h), self.k(h), self.v(h))
        q, k, v = (self.split(part) for part in parts)
        scale = (self.width // self.heads) ** 0.5
        a = op.softmax(op.matmul(q, op.permute_dims(k, [0, 1, 3, 2])) / scale, axis=-1)
        o = op.permute_dims(op.matmul(a, v), [0, 2, 1, 3])
        x = x + self.out(op.reshape(o, (1, self.sequence, self.width)))
        return x + self.down(op.gelu(self.up(self.behind(x))))


class Transformer(nn.Module):
    def __init__(self, blocks, joint, sequence=16, width=32, heads=4):
        self.blocks = nn.ModuleList([Block(sequence, width, heads, joint) for _ in range(blocks)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def exported(model, shape):
    """Returns the module of `model`, the name of its entry function, and arguments for it: random
    numbers that are the same every time."""
    spec = {"forward": {"x": nn.spec.Tensor(shape, "float32")}}
    mod, named = model.export_tvm(spec=spec)
    rng = np.random.default_rng(0)
    made = [(rng.standard_normal(shape)).astype("float32")]
    made += [
        (rng.standard_normal(tuple(int(n) for n in p.shape)) * 0.05).astype("float32")
        for _, p in named
    ]
    return mod, "forward", made


MODELS = {
    "mlp": lambda: exported(Mlp(), (8, 64)),
    "cnn": lambda: exported(Cnn(), (1, 3, 16, 16)),
    "transformer": lambda: exported(Transformer(2, joint=True), (1, 16, 32)),
    "transformer_separate": lambda: exported(Transformer(1, joint=False), (1, 16, 32)),
}


def calls(*names, shape=(2, 2), mode="float32"):
    """Returns a module whose `main(x)` calls packed functions: the first with `x`, and each other
    with the result of the one before."""
    info = TENSOR(shape, mode)
    builder = relax.BlockBuilder()
    x = relax.Var("x", info)
    with builder.function("main", [x], pure=False):
        value = x
        for name in names:
            value = builder.emit(relax.call_pure_packed(name, value, **{RESULT: info}))
        builder.emit_func_output(value)
    return builder.finalize()


def touching(pages):
    """Returns a module whose `main(x)` runs two parallel tasks. Each task writes `pages` pages of
    `x`."""
    size = pages * 4096

    @T.prim_func
    def touch(x: T.Buffer((2 * size,), "uint8")):
        T.func_attr({"tirx.noalias": True})
        for i in T.parallel(2):
            T.evaluate(T.call_extern("handle", "memset", x.access_ptr("w", offset=i * size), 1, size))

    info = TENSOR((2 * size,), "uint8")
    builder = relax.BlockBuilder()
    function = builder.add_func(touch, "touch")
    x = relax.Var("x", info)
    with builder.function("main", [x], pure=False):
        done = builder.emit(
            relax.op.call_tir_inplace(function, [x], [0], info)
        )
        builder.emit_func_output(done)
    return builder.finalize()


def tensors(arrays):
    return [tvm.runtime.tensor(array) for array in arrays]


def executable(mod, fused=False, mode="bytecode"):
    pipeline = relax.get_default_pipeline(tvm.target.Target("llvm")) if fused else "default"
    return relax.build(mod, target="llvm", relax_pipeline=pipeline, exec_mode=mode)


def machine(mod, **how):
    return relax.VirtualMachine(executable(mod, **how), tvm.cpu())
