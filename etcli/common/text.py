"""Text from elsewhere: command line, environment and file names, which Python lets hold bytes that are no UTF-8 (PEP 383), checkpoints, devices."""

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


def shown(text: str, *, keep: str = "\n\t") -> str:
    """`text` for a terminal, which it cannot drive: control characters but those to `keep` are escaped."""
    return "".join(char if char in keep or char.isprintable() else repr(char)[1:-1] for char in text)
