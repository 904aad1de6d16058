"""Counterpoint shows where compiled machine learning spends its time, and which counter explains it.

`counterpoint.tvm` profiles virtual machines of TVM; `counterpoint.report` has the reports, which
do not need TVM.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
