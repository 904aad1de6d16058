"""Counterpoint: where the time of compiled machine learning goes, and which counter explains it.

`counterpoint.tvm` profiles virtual machines of TVM; `counterpoint.report` has the reports, which
need no TVM.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]
