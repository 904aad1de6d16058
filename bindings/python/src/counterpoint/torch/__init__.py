"""Puts Counterpoint into the stock wheels of PyTorch.

`import torch` runs the entry point of this package (`_entry`), so an unchanged script gets the events
of profiler plugins in the results of `torch.profiler`. docs/pytorch.md says what a user gets.

| module | purpose |
|---|---|
| `_entry` | decides, at the end of `import torch`, which parts of the bridge are needed |
| `_load` | checks PyTorch's version, and connects the parts |
| `_build` | compiles `_shim`, once for each version of PyTorch |
| `_shim` | the C++ files that speak PyTorch's ABI |

Importing this package must stay cheap, because every `import torch` does it.
"""
