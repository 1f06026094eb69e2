"""Numbers of configurations that came from anywhere."""

from __future__ import annotations

import math

from etcli.recipe.written import shorten


def finite(value: object) -> float | None:
    """`value` as a float, or None where it is no number: text, true and false, infinities, NaN, a whole number beyond every float."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def positive(value: object) -> float | None:
    """As `finite`; None for zero and negative numbers too."""
    number = finite(value)
    return number if number is not None and number > 0 else None


def told(value: object) -> str:
    """A value for a message, of bounded length; `missing` for None."""
    return "missing" if value is None else shorten(repr(value), 80)
