"""What the simulated converter raises."""

from __future__ import annotations


class ConversionError(RuntimeError):
    """The simulated converter refuses."""
