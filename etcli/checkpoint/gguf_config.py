"""`ModelConfig` from GGUF metadata. Keys: ggml's `docs/gguf.md`; whatever would change the network and is not known here is refused by name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pydantic

from etcli.checkpoint.families import GGUF_FAMILIES, Family
from etcli.checkpoint.layout import HEAD
from etcli.checkpoint.numbers import positive, told
from etcli.checkpoint.rope import llama3_divisors
from etcli.common.errors import CheckpointError, Problems
from etcli.common.gguf_file import GgufHeader, GgufTensor
from etcli.common.gguf_vocabulary import added_bos_id, stop_ids, token_count
from etcli.manifests.model import ModelConfig, RopeConfig

ROPE_FACTORS = "rope_freqs.weight"
_NEUTRAL = {
    "expert_count": (0, "a mixture of experts"),
    "logit_scale": (1.0, "scaled logits"),
    "embedding_scale": (1.0, "a scaled embedding"),
    "residual_scale": (1.0, "scaled residuals"),
    "use_parallel_residual": (False, "parallel residuals"),
    "attention.clamp_kqv": (0.0, "clamped attention"),
    "attention.causal": (True, "attention that is not causal"),
    "attention.scale": (0.0, "an attention scale of its own"),
    "attention.sliding_window_pattern": (0, "layers that slide and layers that do not"),
    "attn_logit_softcapping": (0.0, "capped attention scores"),
    "final_logit_softcapping": (0.0, "capped logits"),
    "pooling_type": (0, "a pooled output, as models that embed texts have"),
    "rope.dimension_sections": ([], "multimodal rotary embedding"),
    "rope.scaling.attn_factor": (1.0, "rotary embedding that scales attention"),
}


def read_config(header: GgufHeader, names: Mapping[str, GgufTensor], problems: Problems) -> ModelConfig | None:
    """The network's numbers; what is wrong goes into `problems`, then None.

    Args:
        names: the file's tensors by canonical name, which tell of a tied head and of biases.
    """
    found = Problems()
    config = _config(_Keys(header, found), names)
    problems.found.extend(found.found)
    return config


def _config(keys: _Keys, names: Mapping[str, GgufTensor]) -> ModelConfig | None:
    header = keys.header
    family = keys.family()
    if family is None:
        return None
    hidden, heads = keys.positive("embedding_length"), keys.positive("attention.head_count")
    head_dim = keys.positive("attention.key_length", hidden // heads if hidden and heads else 0)
    context, window = keys.positive("context_length"), keys.get("attention.sliding_window")
    # llama.cpp reads no window for families whose layers slide by keys that GGUF does not keep.
    window = window if isinstance(window, int) and window > 0 and family.sliding is None else None
    if window is not None:
        # Up to the window's length, sliding attention is full attention. Longer caches are refused where a recipe asks for them.
        context = min(context, window)
    values = {
        "hidden_size": hidden,
        "intermediate_size": keys.positive("feed_forward_length"),
        "num_layers": keys.positive("block_count"),
        "num_heads": heads,
        "num_kv_heads": keys.positive("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "vocab_size": keys.positive("vocab_size", token_count(header.metadata)),
        "context_length": context,
        "sliding_window": window,
        "rms_norm_eps": _shortest(keys.number("attention.layer_norm_rms_epsilon")),
    }
    for key in ("attention.value_length", "rope.dimension_count"):
        if keys.positive(key, head_dim) != head_dim:
            keys.refuse(f"{key} {keys.get(key)} beside heads of {head_dim}")
    rope = _rope(keys, head_dim)
    if keys.problems or rope is None:
        return None
    try:
        return ModelConfig(
            architecture=family.architecture,
            rope=rope,
            tied_embeddings=HEAD not in names,
            attention_bias=bool(family.qkv_bias) or _any(names, r"self_attn\.[qkv]_proj\.bias"),
            attention_output_bias=_any(names, r"self_attn\.o_proj\.bias"),
            qk_norm=family.qk_norm,
            mlp_bias=_any(names, r"mlp\.\w+\.bias"),
            bos_id=added_bos_id(header.metadata),
            stop_ids=stop_ids(header.metadata),
            **values,
        )
    except pydantic.ValidationError as error:
        for item in error.errors():
            keys.wrong(f"{'.'.join(map(str, item['loc'])) or 'configuration'}: {item['msg']}")
        return None


def _any(names: Mapping[str, GgufTensor], pattern: str) -> bool:
    return any(re.fullmatch(rf"model\.layers\.\d+\.{pattern}", name) for name in names)


class _Keys:
    """The file's keys by their name after the architecture's (`llama.`); collects what is wrong with them."""

    def __init__(self, header: GgufHeader, problems: Problems) -> None:
        self.header, self.problems = header, problems
        self.prefix = header.metadata.get("general.architecture")

    def family(self) -> Family | None:
        """The family that the file names; None, with the problem noted, for any other."""
        kind = self.header.metadata.get("general.type", "model")
        if kind != "model":
            self.refuse(f"no model but {'a LoRA adapter' if kind == 'adapter' else kind} (general.type)")
            return None
        found = GGUF_FAMILIES.get(self.prefix) if isinstance(self.prefix, str) else None
        if found is None:
            self.refuse(f"the architecture {self.prefix}" if self.prefix else "no architecture")
            return None
        for key, (neutral, what) in _NEUTRAL.items():
            value = self.get(key)
            if value is not None and value != neutral:
                self.refuse(f"{what} ({key} {value})")
        return found.family

    def get(self, key: str) -> Any:
        return self.header.metadata.get(f"{self.prefix}.{key}")

    def positive(self, key: str, default: int = 0) -> int:
        """A positive whole number; 0, with the problem noted, where there is none. A value a layer is one if all are equal."""
        value = self.get(key)
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]
        if value is None and default:
            return default
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        if isinstance(value, list):
            self.refuse(f"{key} that differs from layer to layer")
        elif value is not None:
            self.wrong(f"{self.prefix}.{key} is {told(value)}, not a positive whole number")
        elif key not in ("attention.key_length", "vocab_size", "attention.head_count_kv"):
            self.wrong(f"{self.prefix}.{key} is missing")
        elif key == "vocab_size":
            self.wrong(f"there is neither {self.prefix}.vocab_size nor a list of tokens")
        return 0

    def number(self, key: str, default: float | None = None) -> float:
        value = self.get(key)
        if value is None and default is not None:
            return default
        number = positive(value)
        if number is None:
            self.wrong(f"{self.prefix}.{key} is {told(value)}")
        return 1.0 if number is None else number

    def refuse(self, what: str) -> None:
        self.problems.add(
            CheckpointError.problem(
                f"{self.header.path.name} has {what}, which is not supported",
                code="checkpoint.unsupported",
                hint=f"Supported are dense models of the architectures {', '.join(GGUF_FAMILIES)}, with default, linear or llama3 rope scaling.",
                file=self.header.path,
            )
        )

    def wrong(self, what: str) -> None:
        self.problems.add(
            CheckpointError.problem(
                f"the metadata of {self.header.path.name} is wrong: {what}",
                code="checkpoint.config",
                hint="The file was made by a faulty converter; use another one.",
                file=self.header.path,
            )
        )


def _shortest(value: float) -> float:
    """The decimal number that a float32 of the file was written for: 9.999999747378752e-06 is 1e-05."""
    return float(str(np.float32(value)))


def _rope(keys: _Keys, head_dim: int) -> RopeConfig | None:
    theta = _shortest(keys.number("rope.freq_base", 10000.0))
    kind = keys.get("rope.scaling.type")
    factor = _shortest(keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 1.0)))
    divisors = _divisors(keys)
    if kind is None:
        kind = "linear"  # what llama.cpp takes a file for that names a factor, or nothing at all
    elif kind == "none":
        factor = 1.0
    if kind not in ("none", "linear") and not (kind == "llama3" and divisors):
        keys.refuse(f"the rope scaling {kind}")
        return None
    if not divisors:
        return RopeConfig(theta=theta) if factor == 1.0 else RopeConfig(theta=theta, kind="linear", factor=factor)
    # The converter turns llama3 scaling into one divisor a frequency and drops its parameters. All published models use
    # 1, 4 and 8192 beside the factor, which is the largest divisor; whether these made the file's divisors is then checked.
    original = keys.positive("rope.scaling.original_context_length", 8192)
    rope = RopeConfig(theta=theta, kind="llama3", factor=_shortest(max(divisors)), original_context=original)
    sound = all(map(positive, divisors)) and head_dim == 2 * len(divisors)
    expected = llama3_divisors(rope, head_dim) if sound else []
    same = len(expected) == len(divisors) and np.allclose(expected, divisors, rtol=1e-4, atol=0)
    if same and (kind == "llama3" or factor == 1.0):
        return rope
    keys.refuse(f"rope divisors ({ROPE_FACTORS}) that are not those of llama3 scaling")
    return None


def _divisors(keys: _Keys) -> list[float]:
    tensor = keys.header.tensors.get(ROPE_FACTORS)
    if tensor is None:
        return []
    if tensor.type.name != "F32" or len(tensor.shape) != 1 or tensor.nbytes > 1 << 16:
        keys.refuse(f"{ROPE_FACTORS} of the type {tensor.type.name} and shape {list(tensor.shape)}")
        return []
    with tensor.file.open("rb") as file:
        file.seek(tensor.offset)
        data = file.read(tensor.nbytes)
    # A cut-off file has been reported already; what is left of it is not looked at.
    return [float(value) for value in np.frombuffer(data, "<f4")] if len(data) == tensor.nbytes else []
