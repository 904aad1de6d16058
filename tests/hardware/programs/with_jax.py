"""Lets JAX compile a function that contains a matrix product, runs it, and prints a sum."""

import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp


@jax.jit
def layer(x: jax.Array) -> jax.Array:
    return jnp.maximum(x @ x, 0) * 0.5


def main() -> int:
    x = jnp.eye(128, dtype=jnp.float32) * 2
    for _ in range(3):
        x = layer(x)
    print("sum", float(x.sum()), jax.devices()[0].platform)
    return 5


sys.exit(main())
