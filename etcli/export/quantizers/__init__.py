"""Precisions of a chunk's linears: one module a precision, behind the interface in `base.py`, chosen from `registry.py`."""
