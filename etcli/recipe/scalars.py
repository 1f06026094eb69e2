"""How plain (unquoted) YAML scalars are read, shared by the reader and the writer so that what is written is read back equal.

PyYAML follows YAML 1.1, where `no` is false, `1:30` is 90 and `1e3` is text. Nobody means these by accident in a recipe: what either
version of YAML takes for something other than text is not text here, and numbers are plain decimals only.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import yaml

FLOAT_TAG = "tag:yaml.org,2002:float"
_NULL, _BOOL, _INT, _STR = (f"tag:yaml.org,2002:{word}" for word in ("null", "bool", "int", "str"))

# YAML 1.2 floats that YAML 1.1 takes for text: 1e3, -2E-5, .5e1
YAML_1_2_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)")
# YAML 1.2 octals: 0o17
YAML_1_2_OCTAL = re.compile(r"0o[0-7]+")

_DECIMAL = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,19})")
_FRACTION = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
_TRUE = ("yes", "true", "on")


@dataclass(frozen=True)
class OddScalar:
    """A plain scalar that is neither text nor a number or truth value that a recipe has: a date, 0x1F, 1_000, 1:30, .inf."""

    text: str


def add_yaml_1_2_numbers(resolver: type[Any]) -> None:
    """Teach a PyYAML loader or dumper class the numbers that only YAML 1.2 has."""
    resolver.add_implicit_resolver(FLOAT_TAG, re.compile(f"^(?:{YAML_1_2_FLOAT.pattern})$"), list("-+.0123456789"))
    resolver.add_implicit_resolver(_INT, re.compile(f"^(?:{YAML_1_2_OCTAL.pattern})$"), ["0"])


def scalar_value(node: yaml.ScalarNode) -> object:
    """The value of a scalar node: str, int, float, bool, None or `OddScalar`."""
    text = str(node.value)
    if node.style is not None or node.tag == _STR:
        return text
    if node.tag == _NULL:
        return None
    if node.tag == _BOOL:
        return text.lower() in _TRUE
    if node.tag == _INT and _DECIMAL.fullmatch(text):
        return int(text)
    if node.tag == FLOAT_TAG and _FRACTION.fullmatch(text) and math.isfinite(float(text)):
        return float(text)
    return OddScalar(text)
