"""Text from the command line, the environment or file names, which Python lets hold bytes that are no UTF-8 (PEP 383)."""

from __future__ import annotations


def is_text(value: str) -> bool:
    """Whether UTF-8 can hold `value`: it has no lone surrogates, which stand for undecodable bytes."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_line(value: str) -> bool:
    """Whether `value` is text without control characters, line ends and tabs included."""
    return is_text(value) and not any(char < " " or "\x7f" <= char <= "\x9f" for char in value)
