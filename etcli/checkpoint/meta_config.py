"""`ModelConfig` from Meta's `params.json`, and from Mistral's of the same name.

Keys and defaults: `llama_models/llama3/args.py` and `model.py`, `mistral_inference/args.py`. What the file leaves unsaid (how long a context,
by how much rope is scaled) is what Meta published for these very sizes, each time with a remark; for other sizes it must be said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pydantic

from etcli.checkpoint.base import TensorInfo
from etcli.checkpoint.layout import EMBEDDING, HEAD
from etcli.checkpoint.numbers import positive, told
from etcli.common.errors import CheckpointError, EtcliError, Problems
from etcli.common.jsonfile import read_object
from etcli.manifests.model import ModelConfig, RopeConfig

PARAMS = "params.json"
CODE = "checkpoint.config"

HF_WORDS = {
    "num_key_value_heads": "n_kv_heads",
    "num_attention_heads": "n_heads",
    "num_hidden_layers": "n_layers",
    "intermediate_size": "hidden_dim",
    "hidden_size": "dim",
}
"""`params.json`'s words for those of `config.json`."""

_GATE = "model.layers.0.mlp.gate_proj.weight"
_SCALE_FACTOR = "rope_scale_factor"
_LLAMA3_VOCABULARY = 128256
_NUMBERS = (
    "dim",
    "n_layers",
    "n_heads",
    "n_kv_heads",
    "head_dim",
    "hidden_dim",
    "vocab_size",
    "multiple_of",
    "ffn_dim_multiplier",
    "norm_eps",
)
_ROPE = ("rope_theta", "use_scaled_rope", _SCALE_FACTOR)
_CONTEXT = ("max_seq_len", "max_position_embeddings", "sliding_window")
_NEUTRAL = (
    "max_batch_size",
    "model_parallel_size",
    "flash",
    "model_type",
    "use_biases",
    "causal",
    "rope_scaling_factor",
)
_REFUSED = {
    "moe": "a mixture of experts",
    "moe_args": "a mixture of experts",
    "quantization": "quantised weights",
    "quantization_args": "quantised weights",
    "lora_args": "LoRA adapters that are not merged",
    "lora": "LoRA adapters that are not merged",
    "vision_model": "a vision model",
    "vision_encoder": "a vision model",
    "vision_chunk_size": "a vision model",
    "vision_num_cross_attention_layers": "a vision model",
    "yarn": "yarn rope scaling",
    "use_qk_norm": "normalised queries and keys of its own kind",
    "_sliding_window": "sliding windows that differ by layer",
}

_EXECUTORCH = ("use_hf_rope", "attention_qkv_bias", "qk_norm_before_rope", "partial_rotary_factor", "act_fn")
"""Keys of ExecuTorch's own `params.json` files. Its converters give weights Meta's names and leave query and key rows in Hugging Face's order,
whatever `use_hf_rope` says, so how they are to be read cannot be told."""

_FACTORS = {(4096, 32): 8.0, (8192, 80): 8.0, (16384, 126): 8.0, (2048, 16): 32.0, (3072, 28): 32.0}
"""Factor of llama3 scaling by (dim, n_layers): Llama 3.1 and 3.3 by 8, Llama 3.2 1B and 3B by 32, as in their published `config.json`."""


def read_params(
    folder: Path, tensors: Mapping[str, TensorInfo], problems: Problems, remarks: list[str]
) -> ModelConfig | None:
    """The network's numbers, or None with every reason in `problems`.

    Args:
        tensors: by canonical name; they tell the vocabulary and the feed-forward size.
        remarks: where to say what was assumed.
    """
    path = folder / PARAMS
    found = Problems()
    config = None
    try:
        values = read_object(path, code=CODE)
        inner = values.get("model")
        config = _config(_Params(path, inner if isinstance(inner, dict) else values, found), tensors, remarks)
    except EtcliError as error:
        found.absorb(error)
    except FileNotFoundError:
        found.add(
            CheckpointError.problem(
                f"{folder.name} has no {PARAMS}, which says what network these weights are",
                code="checkpoint.missing",
                hint="Fetch it too; Meta publishes it beside consolidated.*.pth.",
                file=folder,
            )
        )
    problems.found.extend(found.found)
    return config


def _config(params: _Params, tensors: Mapping[str, TensorInfo], remarks: list[str]) -> ModelConfig | None:
    params.check_keys()
    dim, layers, heads = (params.whole(key) for key in ("dim", "n_layers", "n_heads"))
    mistral = params.has("hidden_dim")
    vocabulary = params.whole("vocab_size", -1)
    if vocabulary == -1:
        vocabulary = _rows(tensors, EMBEDDING)
        if not vocabulary and tensors:
            params.wrong("vocab_size is -1, and there is no tok_embeddings.weight to tell the right one")
    intermediate = _intermediate(params, dim, _rows(tensors, _GATE))
    head_dim = params.whole("head_dim", dim // heads if heads and dim % heads == 0 else None)
    rope = _rope(params, dim, _layers(tensors) or layers, vocabulary, remarks)
    window = params.whole("sliding_window", -1) if params.has("sliding_window") else -1
    context = _context(params, mistral, rope, remarks)
    values = {
        "hidden_size": dim,
        "intermediate_size": intermediate,
        "num_layers": layers,
        "num_heads": heads,
        "num_kv_heads": params.whole("n_kv_heads", heads or None),
        "head_dim": head_dim,
        "vocab_size": vocabulary,
        # Up to the window's length, sliding attention is full attention. Longer caches are refused where a recipe asks for them.
        "context_length": context if window < 1 else min(context, window),
        "sliding_window": None if window < 1 else window,
        "rms_norm_eps": params.number("norm_eps", 1e-5),
    }
    if params.problems or not tensors or rope is None:
        return None
    try:
        return ModelConfig(
            architecture="MistralForCausalLM" if mistral else "LlamaForCausalLM",
            rope=rope,
            tied_embeddings=HEAD not in tensors,
            **values,
        )
    except pydantic.ValidationError as error:
        for item in error.errors():
            params.wrong(f"{'.'.join(map(str, item['loc'])) or 'the configuration'}: {item['msg']}")
        return None


def _rows(tensors: Mapping[str, TensorInfo], name: str) -> int:
    info = tensors.get(name)
    return info.shape[0] if info is not None and info.shape else 0


def _layers(tensors: Mapping[str, TensorInfo]) -> int:
    """How many layers the weights have; whether `n_layers` is right is for the comparison with all tensors to say."""
    numbers = [int(name.split(".")[2]) for name in tensors if re.match(r"model\.layers\.[0-9]{1,9}\.", name)]
    return 1 + max(numbers, default=-1)


def _intermediate(params: _Params, dim: int, stored: int) -> int:
    """Meta's rule: two thirds of 4 dim, times `ffn_dim_multiplier`, rounded up to `multiple_of`. The weights must agree."""
    if params.has("hidden_dim"):
        return params.whole("hidden_dim")
    multiple = params.whole("multiple_of", 256)
    told = params.has("multiple_of") or params.has("ffn_dim_multiplier")
    inner = int(params.number("ffn_dim_multiplier", 1.0) * int(2 * 4 * dim / 3))
    computed = -(-inner // multiple) * multiple if multiple else 0
    if not stored or not told:
        return stored or computed
    if stored != computed and computed:
        params.wrong(
            f"multiple_of and ffn_dim_multiplier give a feed-forward size of {computed}, the weights (w1) have {stored}",
        )
    return stored


def _rope(params: _Params, dim: int, layers: int, vocabulary: int, remarks: list[str]) -> RopeConfig | None:
    theta = params.number("rope_theta", 0.0) if params.has("rope_theta") else _unsaid_theta(params, vocabulary, remarks)
    scaled = params.values.get("use_scaled_rope", False)
    if not isinstance(scaled, bool):
        params.wrong(f"use_scaled_rope is {told(scaled)}, neither true nor false")
    if not scaled or theta <= 0:
        return RopeConfig(theta=theta) if theta > 0 else None
    factor = params.number(_SCALE_FACTOR, _FACTORS.get((dim, layers), 0.0))
    if not params.has(_SCALE_FACTOR):
        if not factor:
            params.wrong(
                f"use_scaled_rope does not say by how much, and dim {dim} with {layers} layers is no published model",
                f'Add the factor that the model was trained with to {PARAMS}, such as "{_SCALE_FACTOR}": 8.',
            )
            return None
        which = "Llama 3.1" if factor == 8 else "Llama 3.2"
        remarks.append(
            f"{PARAMS} scales rope without a factor; dim {dim} with {layers} layers is {which}'s, so it is {factor:g} "
            f'(otherwise add "{_SCALE_FACTOR}" to {PARAMS})'
        )
    return RopeConfig(
        theta=theta, kind="llama3", factor=factor, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8192
    )


def _unsaid_theta(params: _Params, vocabulary: int, remarks: list[str]) -> float:
    """The base of the rotary embedding where the file does not say it; 0, with the problem noted, where that cannot be told."""
    if params.has("hidden_dim") and not params.has("sliding_window"):
        # Without a window mistral-inference takes 1000000 and converters 10000; with one, all take what Mistral 7B v0.1 was trained with.
        params.wrong(
            "rope_theta is missing, and programs that read Mistral's files do not agree on what it then is",
            f'Add it to {PARAMS}: "rope_theta": 1000000 for Mistral 7B v0.2 and later; the config.json of the same model says it.',
        )
        return 0.0
    theta, why = 10000.0, "Llama 1's and 2's"
    if params.has("hidden_dim"):
        why = "Mistral 7B v0.1's, whose attention slides"
    elif vocabulary == _LLAMA3_VOCABULARY:
        theta, why = 500000.0, f"Llama 3's, whose vocabulary is {vocabulary}"
    remarks.append(f'{PARAMS} has no rope_theta; {theta:.0f} is {why} (otherwise add "rope_theta")')
    return theta


def _context(params: _Params, mistral: bool, rope: RopeConfig | None, remarks: list[str]) -> int:
    for key in ("max_seq_len", "max_position_embeddings"):
        if params.has(key):
            return params.whole(key)
    if mistral:
        context, why = 32768, "Mistral's"
    elif rope is not None and rope.kind == "llama3":
        context, why = 131072, "that of Llama 3.1 and 3.2, with scaled rope"
    elif rope is not None and rope.theta == 500000:
        context, why = 8192, "Llama 3's, with a theta of 500000"
    elif rope is not None and rope.theta > 10000:
        context, why = 16384, "Code Llama's, with a theta above 10000"
    elif params.number("norm_eps", 1e-5) == 1e-6:
        context, why = 2048, "Llama 1's, with norm_eps 1e-06"
    else:
        context, why = 4096, "Llama 2's"
    remarks.append(f'{PARAMS} does not say how long a context may be; {context} is {why} (otherwise add "max_seq_len")')
    return context


class _Params:
    """The file's keys; collects what is wrong with them."""

    def __init__(self, path: Path, values: Mapping[str, Any], problems: Problems) -> None:
        self.path, self.values, self.problems = path, values, problems

    def has(self, key: str) -> bool:
        """Whether there is a value other than null."""
        return self.values.get(key) is not None

    def check_keys(self) -> None:
        """Refuse by name what would compute another network, and what is not known."""
        for key, what in _REFUSED.items():
            if self.values.get(key) not in (None, False, 0, -1, {}, []):
                self._refuse(f"{what} ({key})")
        converted = [key for key in _EXECUTORCH if key in self.values]
        if converted:
            self._refuse(
                f"weights that ExecuTorch's converter renamed ({', '.join(converted)})",
                hint="Use the Hugging Face folder that they were converted from.",
            )
        known = {*_NUMBERS, *_ROPE, *_CONTEXT, *_NEUTRAL, *_REFUSED, *_EXECUTORCH}
        unknown = sorted(key for key in self.values if key not in known)
        if unknown:
            self._refuse(f"keys whose meaning is not known: {', '.join(key[:40] for key in unknown[:5])}")
        for key, neutral in (
            ("use_biases", False),
            ("causal", True),
            ("model_type", "transformer"),
            ("rope_scaling_factor", None),
        ):
            if self.values.get(key) not in (None, neutral):
                self._refuse(f"{key} {told(self.values[key])}")

    def whole(self, key: str, default: int | None = None) -> int:
        """A positive whole number (or the default itself); 0, with the problem noted, where there is none."""
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, str) and re.fullmatch("[0-9]{1,12}", value):
            value = int(value)  # Mistral writes some of its numbers as text
        if isinstance(value, int) and not isinstance(value, bool) and (value > 0 or value == default):
            return value
        if key != "head_dim" or value is not None:
            self.wrong(f"{key} is {told(value)}, not a positive whole number")
        elif self.values.get("dim") and self.values.get("n_heads"):
            self.wrong(f"dim {told(self.values['dim'])} is no multiple of n_heads {told(self.values['n_heads'])}")
        return 0

    def number(self, key: str, default: float) -> float:
        """A positive number, or `default` where there is none."""
        value = self.values.get(key)
        if value is None:
            return default
        number = positive(value)
        if number is None:
            self.wrong(f"{key} is {told(value)}, not a positive number")
        return default if number is None else number

    def wrong(self, what: str, hint: str = f"Use the {PARAMS} that came with these weights.") -> None:
        self.problems.add(CheckpointError.problem(f"{PARAMS} is wrong: {what}", code=CODE, hint=hint, file=self.path))

    def _refuse(self, what: str, *, hint: str | None = None) -> None:
        self.problems.add(
            CheckpointError.problem(
                f"{self.path.parent.name} has {what}, which is not supported",
                code="checkpoint.unsupported",
                hint=hint
                or f"Supported are dense Llama and Mistral models. If a key changes nothing in the network, remove it from {PARAMS}.",
                file=self.path,
            )
        )
