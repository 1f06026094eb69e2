"""What a `config.json` says of AQLM: `quantization_config` as transformers reads it, or the older `aqlm` block; what is refused, with the reason.

Keys and their defaults are those of transformers' `AqlmConfig`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from etcli.checkpoint.aqlm_spelling import METHOD, is_aqlm
from etcli.checkpoint.hf_keys import Keys
from etcli.checkpoint.layout import linear_shapes
from etcli.checkpoint.numbers import told
from etcli.common.errors import CheckpointError
from etcli.manifests.model import AQLM_GROUP, AqlmConfig, ModelConfig

KEPT = "linear_weights_not_to_quantize"

_NUMBERS = {"nbits_per_codebook": 16, "num_codebooks": 1, "out_group_size": 1, "in_group_size": 8}
_FAR = 1 << 40  # no number of a network has as many digits
_BITS = 8
CODEBOOKS = (1, 2)
"""How many there may be."""

INSTEAD = (
    "Use a checkpoint of the same model with one or two codebooks of 8 bits for groups of 8 (2x8 or 1x8; publishers end such names in -2Bit-2x8-hf), "
    "or the unquantised model: with export.precision: 8da4w, or for a demonstration with model.quantize: aqlm."
)
"""What to use in place of what is refused."""


@dataclass(frozen=True)
class AqlmKeys:
    """How many codebooks there are, and `not_quantized`: what the configuration names as left plain."""

    codebooks: int
    not_quantized: frozenset[str]


def read_aqlm(keys: Keys) -> AqlmKeys | None:
    """What the configuration says of AQLM; None for weights of another kind, or, with every reason among the problems of `keys`, where it cannot be
    read."""
    if not is_aqlm(keys.config):
        return None
    own, older = keys.config.get("quantization_config"), keys.config.get(METHOD)
    blocks = [block for block in (own, older) if block and isinstance(block, dict)]
    block = blocks[0]
    sound = True
    numbers: dict[str, int] = {}
    for key, default in _NUMBERS.items():
        value = block.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < _FAR:
            keys.wrong(f"{key} of AQLM is {told(value)}, not a positive whole number")
            sound = False
        elif any(other.get(key, value) != value for other in blocks):
            keys.wrong(f"{key} is {value} in quantization_config and {told(blocks[1][key])} in {METHOD}")
            sound = False
        else:
            numbers[key] = value
    listed: Any = next((found[KEPT] for found in blocks if found.get(KEPT) is not None), [])
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        keys.wrong(f"{KEPT} is {told(listed)}, not a list of names")
        sound = False
    if not sound:
        return None
    refused = list(_refusals(numbers))
    for message, code, reason in refused:
        keys.problems.add(
            CheckpointError.problem(
                f"{keys.path.parent.name} is quantised by AQLM with {message}, which is not supported: {reason}",
                code=f"checkpoint.{code}",
                hint=INSTEAD,
                file=keys.path,
            )
        )
    return None if refused else AqlmKeys(numbers["num_codebooks"], frozenset(listed))


def _refusals(numbers: Mapping[str, int]) -> Iterator[tuple[str, str, str]]:
    """What no operator computes: the thing, its code, the reason."""
    bits, codebooks = numbers["nbits_per_codebook"], numbers["num_codebooks"]
    inputs, outputs = numbers["in_group_size"], numbers["out_group_size"]
    if bits > _BITS:
        reason = f"a table of {1 << bits} entries for each group of inputs" if bits <= 16 else "so large a table"
        yield (
            f"codebooks of {bits} bits ({codebooks}x{bits})",
            "aqlm_1x16",
            f"{reason} fits no cache of a CPU, and filling it costs more than the product itself",
        )
    elif bits < _BITS:
        yield f"codebooks of {bits} bits ({codebooks}x{bits})", "aqlm_bits", "the operators look up codes of 8 bits"
    if codebooks not in CODEBOOKS:
        yield (
            f"{codebooks} codebooks ({codebooks}x{bits})",
            "aqlm_codebooks",
            "the operators add up one or two look-ups a group",
        )
    if outputs != 1:
        yield (
            f"groups of {outputs} outputs (out_group_size)",
            "aqlm_out_group",
            "a table of products serves outputs one at a time",
        )
    if inputs != AQLM_GROUP:
        yield (
            f"groups of {inputs} inputs (in_group_size)",
            "aqlm_in_group",
            f"the operators take {AQLM_GROUP} inputs at a time",
        )


def quantised(config: ModelConfig, said: AqlmKeys, keys: Keys) -> ModelConfig | None:
    """`config` with what AQLM does to its layers; None, with the problem noted, for linears that no groups divide."""
    linears = {
        f"model.layers.{layer}.{name}": shape
        for layer in range(config.num_layers)
        for name, shape in linear_shapes(config).items()
    }
    kept = {name for name in linears if _named(name, said.not_quantized)}
    uneven = sorted({shape[1] for name, shape in linears.items() if name not in kept and shape[1] % AQLM_GROUP})
    if uneven:
        keys.problems.add(
            CheckpointError.problem(
                f"{keys.path.parent.name} is said to be quantised by AQLM in groups of {AQLM_GROUP} inputs, "
                f"which do not divide linears of {' and '.join(map(str, uneven))} inputs",
                code="checkpoint.aqlm_columns",
                hint="The configuration is of another model than the weights; use the config.json that came with them.",
                file=keys.path,
            )
        )
        return None
    codebooks = 1 if said.codebooks == 1 else 2
    return config.model_copy(update={"aqlm": AqlmConfig(codebooks=codebooks, kept=tuple(sorted(kept)))})


def _named(linear: str, names: frozenset[str]) -> bool:
    """Whether `names` has the linear: by its own name or its weight's, by a module that it is in, or by the last parts of its name.

    That is how transformers takes the list (`should_convert_module`), but that it knows no `.weight` and takes patterns.
    """
    parts = linear.split(".")
    forms = {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
    forms |= {".".join(parts[start:]) for start in range(len(parts))}
    return not forms.isdisjoint(names) or any(f"{form}.weight" in names for form in forms)
