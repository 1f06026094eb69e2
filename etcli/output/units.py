"""Quantities as people read them."""

from __future__ import annotations

import math


def bytes_text(count: int | float | None) -> str:
    """`1.5 MB`: powers of 1000, as disks and adb count; `-` for None."""
    if count is None:
        return "-"
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if abs(value) < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.2f} GB"


def seconds_text(seconds: float | None) -> str:
    """`1.1 ms`, `0.31 s`, `12.3 s` or `3 min 05 s`; `-` for None."""
    if seconds is None:
        return "-"
    if 0 < seconds < 0.1:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"


def estimate_text(seconds: float) -> str:
    """A time that is only known roughly, to go with "about": `5 s`, `50 s`, `2 min`, `1 h 50 min`, `6 h`."""
    if seconds < 90:
        step = 5 if seconds < 27.5 else 10
        return f"{max(step, round(seconds / step) * step)} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    if minutes >= 360:
        return f"{round(minutes / 60)} h"
    hours, tens = divmod(round(minutes / 10), 6)
    return f"{hours} h {tens}0 min" if tens else f"{hours} h"


def counted(count: int, noun: str) -> str:
    """`1 chunk`, `5 chunks`, `1,234 tokens`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def figure_text(value: float | None) -> str:
    """A measured number with four significant digits and never an exponent: `13,271`, `42.31`, `0.004213`; `-` for None."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def value_text(value: object) -> str:
    """A value of a document in words: `none`, `yes`, `no`, `1, 2`."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (tuple, list)):
        return ", ".join(map(value_text, value)) or "none"
    return str(value)


def rate_text(rate: float | None) -> str:
    """`12.3 tok/s`, or `-` where nothing was timed."""
    return "-" if rate is None else f"{rate:.1f} tok/s"
