"""The network's tensors as its configuration asks for them, and what a file lacks or has otherwise."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from etcli.checkpoint.aqlm import AQLM_PARTS, quantised_shapes
from etcli.checkpoint.base import TensorInfo
from etcli.checkpoint.grouping import by_pattern, in_layers, layer_pattern
from etcli.common.errors import CheckpointError, Problem
from etcli.manifests.model import AQLM_GROUP, ModelConfig
from etcli.output.units import counted
from etcli.recipe.written import shorten

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
NORM = "model.norm.weight"
_NAMED = 4
_LAYER = re.compile(r"model\.layers\.([0-9]{1,9})\.")
_OF_THE_NETWORK = re.compile(r"model\.layers\.|model\.norm\.|model\.embed_tokens\.|lm_head\.")
_QUANTISED = (
    (r"\.g_idx$", "GPTQ"),
    (r"\.(qweight|qzeros)$", "GPTQ or AWQ"),
    (r"\.(SCB|weight_format|weight\.(absmax|quant_map|nested_absmax|quant_state\..*))$", "bitsandbytes"),
    (r"\.weight_packed$", "compressed-tensors"),
    (r"\.(scales|biases)$", "MLX"),
    (r"\.(weight_scale|weight_scale_inv|input_scale|k_scale|v_scale)$", "FP8 or a relative"),
    (r"\.lora_[AB]\.", "nothing yet: a LoRA adapter that was not merged"),
)

T = TypeVar("T")


def layer_shapes(config: ModelConfig, layer: int = 0) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors of `layer` by their name after `model.layers.N.`; matrices are `[out_features, in_features]`.

    Layers differ only where the configuration keeps linears of some of them from AQLM. Its tensors: see `aqlm.aqlm_shapes`.
    """
    return _layer_shapes(config, layer, config.aqlm.kept if config.aqlm else ())


def _layer_shapes(config: ModelConfig, layer: int, kept: Collection[str]) -> dict[str, tuple[int, ...]]:
    shapes = _plain_shapes(config)
    if config.aqlm is None:
        return shapes
    prefix = f"model.layers.{layer}."
    plain = {name for name in shapes if prefix + name.removesuffix(".weight") in kept}
    return quantised_shapes(shapes, config.aqlm.codebooks, plain)


def _plain_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    query, key_value = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (query, hidden),
        "self_attn.k_proj.weight": (key_value, hidden),
        "self_attn.v_proj.weight": (key_value, hidden),
        "self_attn.o_proj.weight": (hidden, query),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    for rooms, present in (
        (("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), config.attention_bias),
        (("self_attn.o_proj",), config.attention_output_bias),
        (("mlp.",), config.mlp_bias),
    ):
        if present:
            matrices = [name for name in shapes if name.startswith(rooms)]
            shapes |= {name.removesuffix("weight") + "bias": shapes[name][:1] for name in matrices}
    if config.qk_norm:
        shapes |= {f"self_attn.{kind}_norm.weight": (config.head_dim,) for kind in ("q", "k")}
    return shapes


def linear_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """`[out_features, in_features]` of one layer's linears by their names after `model.layers.N.` (`self_attn.q_proj`), quantised or not."""
    shapes = _plain_shapes(config)
    return {name.removesuffix(".weight"): shape for name, shape in shapes.items() if len(shape) == 2}


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of the network by canonical name, in the order it is used."""
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (config.vocab_size, config.hidden_size)}
    kept = frozenset(config.aqlm.kept if config.aqlm else ())
    for layer in range(config.num_layers):
        here = _layer_shapes(config, layer, kept)
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in here.items()}
    shapes[NORM] = (config.hidden_size,)
    if not config.tied_embeddings:
        shapes[HEAD] = (config.vocab_size, config.hidden_size)
    return shapes


def layout_problems(config: ModelConfig, tensors: Mapping[str, TensorInfo], path: Path) -> Iterator[Problem]:
    """What keeps `tensors` (by canonical name) from being the network that `config` describes.

    The same fault in many layers is one problem that counts them.
    """
    missing: list[str] = []
    wrong: dict[tuple[str, tuple[int, ...], tuple[int, ...]], list[str]] = {}
    for name, shape in expected_shapes(config).items():
        info = tensors.get(name)
        if info is None:
            missing.append(name)
        elif info.shape != shape:
            wrong.setdefault((layer_pattern(name), shape, info.shape), []).append(name)
    for pattern, names in by_pattern(missing).items():
        yield CheckpointError.problem(
            f"{in_layers(pattern, names)} is missing",
            code="checkpoint.tensor_missing",
            hint=_missing_hint(config, pattern, names),
            file=path,
        )
    for (pattern, shape, found), names in wrong.items():
        yield CheckpointError.problem(
            f"{in_layers(pattern, names)} is {_show(found)}, the configuration asks for {_show(shape)}",
            code="checkpoint.tensor_shape",
            hint=_shape_hint(config, pattern, found),
            file=path,
        )


def unused_problem(config: ModelConfig, extra: list[str], path: Path) -> Problem | None:
    """The problem of layers or biases beyond the configuration, which would change the answer if left out; None for harmless extras.

    `extra` holds canonical names that the network did not take.
    """
    network = [name for name in extra if _OF_THE_NETWORK.match(name)]
    if not network:
        return None
    layers = 1 + max((int(match[1]) for match in map(_LAYER.match, network) if match), default=-1)
    hint = "The configuration describes another network than these weights; use the one that came with them."
    if layers > config.num_layers:
        hint = f"The weights have {counted(layers, 'layer')}, the configuration says {config.num_layers} (num_hidden_layers)."
    elif config.aqlm is None and any(name.endswith(".codebooks") for name in network):
        hint = "These weights are quantised by AQLM, which their configuration does not say; use the config.json that came with them."
    elif method := quantised_by([name for name in network if config.aqlm is None or not name.endswith(AQLM_PARTS)]):
        hint = f"These are the parts of weights quantised by {method}, which is not supported; use the model's unquantised weights."
    elif any(name.endswith(("q_norm.weight", "k_norm.weight")) for name in network):
        hint = (
            f"These weights normalise queries and keys, as Qwen3 does; the configuration is of {config.architecture}."
        )
    elif any(name.endswith(".bias") for name in network):
        hint = "These weights have biases that the configuration does not mention (attention_bias, mlp_bias)."
    kinds = [in_layers(pattern, names) for pattern, names in by_pattern(network).items()]
    shown = ", ".join(map(shorten, kinds[:_NAMED])) + (", ..." if len(kinds) > _NAMED else "")
    return CheckpointError.problem(
        f"the configured network has no place for {counted(len(network), 'tensor')} of the weights: {shown}",
        code="checkpoint.tensor_unknown",
        hint=hint,
        file=path,
    )


def quantised_by(names: Iterable[str]) -> str | None:
    """The method that left tensors of these names in the place of a matrix, or None. Told by their last parts, as each library writes them."""
    for pattern, method in _QUANTISED:
        if any(re.search(pattern, name) for name in names):
            return method
    return None


def _show(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def _missing_hint(config: ModelConfig, pattern: str, names: list[str]) -> str:
    if pattern == HEAD:
        return "If the head shares the embedding's weights, the configuration must say so: tie_word_embeddings: true."
    if pattern.endswith(("q_norm.weight", "k_norm.weight")) and len(names) == config.num_layers:
        return f"{config.architecture} normalises queries and keys; these weights are of a network that does not."
    if pattern.endswith(".bias") and not (config.attention_output_bias or config.mlp_bias):
        return f"{config.architecture} has biases at query, key and value, which these weights lack: they are of another network."
    if pattern.endswith(".bias"):
        return "The configuration asks for biases (attention_bias, mlp_bias) that these weights do not have."
    layers = [int(name.split(".")[2]) for name in names if ".layers." in name]
    if layers and max(layers) == config.num_layers - 1 and min(layers) > 0:
        return f"The weights end after layer {min(layers) - 1}; a part of the download may be absent, or num_hidden_layers is wrong."
    return "A part of the download may be absent; fetch the checkpoint again."


def _shape_hint(config: ModelConfig, pattern: str, found: tuple[int, ...]) -> str:
    kind, last = pattern.rsplit(".", 2)[-2:]
    if last == "codes" and len(found) == 3:
        found = (found[0], found[1] * AQLM_GROUP)  # the plain matrix that they stand for
    heads, rest = divmod(found[0], config.head_dim) if found else (0, 1)
    if kind in ("k_proj", "v_proj") and heads and not rest and config.num_heads % heads == 0:
        return f"These weights have {counted(heads, 'KV head')}; the configuration should say num_key_value_heads: {heads}."
    if kind in ("q_proj", "o_proj") and len(found) == 2:
        columns = found[0] if kind == "q_proj" else found[1]
        heads, rest = divmod(columns, config.head_dim)
        size, uneven = divmod(columns, config.num_heads)
        fitting = [f"num_attention_heads: {heads}"] if heads and not rest else []
        fitting += [f"head_dim: {size}"] if size and not uneven and size % 2 == 0 else []
        if fitting:
            return f"These weights have {counted(columns, 'query column')}; the configuration should say {' or '.join(fitting)}."
    if kind in ("q_norm", "k_norm") and len(found) == 1 and found[0] % 2 == 0:
        return f"These weights have heads of {found[0]}; the configuration should say head_dim: {found[0]}."
    if kind in ("embed_tokens", "lm_head") and len(found) == 2:
        wrong = [
            f"{key}: {right}"
            for key, said, right in (
                ("vocab_size", config.vocab_size, found[0]),
                ("hidden_size", config.hidden_size, found[1]),
            )
            if said != right
        ]
        return f"The configuration should say {' and '.join(wrong)}, if these weights are of the model it describes."
    if kind in ("gate_proj", "up_proj") and len(found) == 2 and found[1] == config.hidden_size:
        return f"These weights have intermediate_size: {found[0]}."
    if kind == "down_proj" and len(found) == 2 and found[0] == config.hidden_size:
        return f"These weights have intermediate_size: {found[1]}."
    if "norm" in kind and len(found) == 1:
        return f"These weights have hidden_size: {found[0]}."
    return "The configuration is of another model than these weights; use the one that came with them."


def stored_tensor(stored: Mapping[str, T], name: str, path: Path) -> T:
    """The tensor called `name` in `stored`, what a format knows of the file `path` by canonical name.

    Raises:
        CheckpointError: code `checkpoint.tensor_missing`.
    """
    try:
        return stored[name]
    except KeyError:
        raise CheckpointError(
            f"{path.name} has no tensor {name}", code="checkpoint.tensor_missing", file=path
        ) from None
