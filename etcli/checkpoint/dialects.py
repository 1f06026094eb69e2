"""Other programs' names for the tensors of the same network, and which of them a checkpoint speaks.

Names: Meta's `llama_models/llama3/model.py`, torchtune's `models/convert_weights.py`. Both rotate neighbouring elements of a head together, so
their query and key rows are in interleaved pairs; torchtune keeps Meta's rows unchanged (`meta_to_tune`) and permutes Hugging Face's
(`hf_to_tune`), except for Qwen, which it rotates as Hugging Face does (`qwen2_hf_to_tune`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from etcli.checkpoint.layout import EMBEDDING, HEAD, NORM
from etcli.common.errors import Problem


@dataclass(frozen=True)
class Dialect:
    """`outer` and `inner` give canonical names (inner ones after `model.layers.N.`, without `.weight`) by the dialect's own."""

    name: str
    sign: re.Pattern[str]
    outer: Mapping[str, str] = field(default_factory=dict)
    inner: Mapping[str, str] = field(default_factory=dict)
    interleaved: bool = False

    def canonical(self, name: str) -> str | None:
        """The canonical name of `name`; None for what is no part of the network, such as frequency tables.

        A name of a layer that is not known keeps its ending, so that it is found to have no place in the network.
        """
        if name.endswith(("rotary_emb.inv_freq", "rope.freqs")):
            return None
        if not self.inner:
            return name
        match = re.fullmatch(r"layers\.(0|[1-9][0-9]{0,8})\.(.+)\.(weight|scale|bias)", name)
        if match is None:
            return self.outer.get(name, f"model.{name}" if name.startswith("layers.") else None)
        known = self.inner.get(match[2])
        ending = "bias" if match[3] == "bias" else "weight"
        return f"model.layers.{int(match[1])}.{known}.{ending}" if known else f"model.{name}"

    def spoken(self, problem: Problem) -> Problem:
        """`problem` with the file's own names, where it speaks of canonical ones."""
        text = problem.message
        for own, known in self.inner.items():
            text = re.sub(rf"(?<=layers\.)(\d+|\*)\.{re.escape(known)}(?=\.)", rf"\1.{own}", text)
        for own, known in self.outer.items():
            text = re.sub(rf"(?<![\w.]){re.escape(known)}", own, text)
        if self.inner:
            text = re.sub(r"(?<![\w.])model\.layers\.", "layers.", text)
        if "norm.scale" in self.outer:
            text = re.sub(r"(layers\.(\d+|\*)\.[\w.]*norm)\.weight", r"\1.scale", text)
        return replace(problem, message=text)


HUGGING_FACE = Dialect(
    "Hugging Face's", re.compile(r"(model\.)?(layers\.\d+\.self_attn\.[qkvo]_proj\.|embed_tokens\.weight$)")
)
META = Dialect(
    "Meta's",
    re.compile(r"layers\.\d+\.(attention\.w[qkvo]\.weight|feed_forward\.w[123]\.weight)$"),
    outer={"tok_embeddings.weight": EMBEDDING, "norm.weight": NORM, "output.weight": HEAD},
    inner={
        "attention.wq": "self_attn.q_proj",
        "attention.wk": "self_attn.k_proj",
        "attention.wv": "self_attn.v_proj",
        "attention.wo": "self_attn.o_proj",
        "attention_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "feed_forward.w1": "mlp.gate_proj",
        "feed_forward.w2": "mlp.down_proj",
        "feed_forward.w3": "mlp.up_proj",
    },
    interleaved=True,
)
TORCHTUNE = Dialect(
    "torchtune's",
    re.compile(r"layers\.\d+\.(attn\.([qkv]|output)_proj\.(weight|bias)|sa_norm\.scale)$"),
    outer={"tok_embeddings.weight": EMBEDDING, "norm.scale": NORM, "output.weight": HEAD},
    inner={
        "attn.q_proj": "self_attn.q_proj",
        "attn.k_proj": "self_attn.k_proj",
        "attn.v_proj": "self_attn.v_proj",
        "attn.output_proj": "self_attn.o_proj",
        "attn.q_norm": "self_attn.q_norm",
        "attn.k_norm": "self_attn.k_norm",
        "sa_norm": "input_layernorm",
        "mlp_norm": "post_attention_layernorm",
        "mlp.w1": "mlp.gate_proj",
        "mlp.w2": "mlp.down_proj",
        "mlp.w3": "mlp.up_proj",
    },
    interleaved=True,
)
DIALECTS = (HUGGING_FACE, META, TORCHTUNE)

_FOREIGN = {
    "a LoRA adapter's (lora_A, lora_B), not merged into its base": re.compile(r"^base_model\.model\.|\.lora_[ab]\."),
    "GPT-2's (transformer.h)": re.compile(r"(^|\.)(transformer\.)?h\.\d+\.attn\.c_attn\."),
    "gpt-fast's (attention.wqkv)": re.compile(r"layers\.\d+\.attention\.wqkv\."),
    "llama.cpp's (blk, attn_q)": re.compile(r"^blk\.\d+\."),
}

_WRAPPERS = re.compile(r"(^|(?<=\.))(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|_forward_module)\.")
_PREFIXES = ("module.", "model.")


def foreign_names(names: Iterable[str]) -> str | None:
    """Whose names these are, when they are of a kind that is known and not read."""
    return next((words for words, sign in _FOREIGN.items() for name in names if sign.search(name)), None)


def dialect_of(names: Iterable[str]) -> tuple[Dialect, dict[str, str]] | None:
    """The dialect of a checkpoint's tensors, and its own name by each of `names`, without what wrappers put in front; None if unknown.

    torch.compile, FSDP, activation checkpointing, DDP and Lightning wrap a module and with it every name (`_orig_mod.`, `module.`).
    """
    plain = {name: _WRAPPERS.sub("", name) for name in names}
    while plain:
        found = next((dialect for dialect in DIALECTS if any(map(dialect.sign.match, plain.values()))), None)
        if found is not None:
            if found is HUGGING_FACE and not any(own.startswith("model.") for own in plain.values()):
                # A bare `LlamaModel` was saved without `model.`.
                plain = {name: own if own == HEAD else f"model.{own}" for name, own in plain.items()}
            return found, plain
        prefix = next((prefix for prefix in _PREFIXES if all(own.startswith(prefix) for own in plain.values())), None)
        if prefix is None:
            return None
        plain = {name: own.removeprefix(prefix) for name, own in plain.items()}
    return None
