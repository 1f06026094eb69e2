"""The keys of a `config.json`, one by one: of the right type, or named; whatever would make it another network is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etcli.checkpoint.aqlm_spelling import is_aqlm, names_own_code, plain_model_type
from etcli.checkpoint.families import BY_MODEL_TYPE, FAMILIES, Family
from etcli.checkpoint.numbers import positive, told
from etcli.checkpoint.rope import RopeError, rope_from_hf
from etcli.common.errors import CheckpointError, Problems
from etcli.manifests.model import RopeConfig
from etcli.output.units import counted

CONFIG = "config.json"
CODE = "checkpoint.config"

_FAR = 1 << 40  # no number of a network has as many digits
_FULL = "full_attention"
_SILU = ("silu", "swish")  # transformers' two names of one function

# Keys of other families (in brackets, whose), by which relatives of Llama say that they compute otherwise; null or a neutral value is fine.
_FOREIGN: tuple[tuple[str, tuple[Any, ...], str], ...] = (
    ("auto_map", ({},), "code of its own (auto_map), which etcli does not run"),
    ("attn_logit_softcapping", (), "capped attention scores"),  # Gemma 2
    ("final_logit_softcapping", (), "capped logits"),
    ("query_pre_attn_scalar", (), "an attention scale of its own"),
    ("attention_multiplier", (), "an attention scale of its own"),  # Granite
    ("residual_multiplier", (1,), "scaled residuals"),
    ("embedding_multiplier", (1,), "a scaled embedding"),
    ("logits_scaling", (1,), "scaled logits"),
    ("logit_scale", (1,), "scaled logits"),  # Cohere
    ("scale_emb", (1,), "a scaled embedding"),  # MiniCPM
    ("scale_depth", (), "scaled residuals"),
    ("dim_model_base", (), "scaled logits"),
    ("clip_qkv", (), "clamped attention"),  # OLMo
    ("use_qk_norm", (False,), "normalised queries and keys"),
    ("qk_layernorm", (False,), "normalised queries and keys"),  # Persimmon
    ("parallel_attn", (False,), "parallel residuals"),  # Falcon
    ("use_parallel_residual", (False,), "parallel residuals"),  # GPT-NeoX
    ("alibi", (False,), "ALiBi positions"),
    ("rotary_pct", (1,), "partial rotary embedding"),
    ("num_local_experts", (0,), "a mixture of experts"),  # Mixtral
    ("num_experts", (0,), "a mixture of experts"),
    ("n_routed_experts", (0,), "a mixture of experts"),  # DeepSeek
    ("num_nextn_predict_layers", (0,), "extra layers that predict several tokens"),
    ("no_rope_layers", ([],), "layers without rotary embedding"),  # SmolLM3
    ("no_rope_layer_interval", (0,), "layers without rotary embedding"),
    ("attention_chunk_size", (), "chunked attention"),  # Llama 4
    ("attn_temperature_tuning", (False,), "attention that is scaled by position"),
    ("is_causal", (True,), "attention that is not causal"),
    ("use_bidirectional_attention", (False,), "attention that is not causal"),
    ("is_encoder_decoder", (False,), "an encoder"),
    ("add_cross_attention", (False,), "cross attention"),
)


class Keys:
    """The configuration's keys; collects what is wrong with them."""

    def __init__(self, path: Path, config: Mapping[str, Any], problems: Problems) -> None:
        self.path, self.config, self.problems = path, config, problems

    def family(self) -> Family | None:
        """The family that the configuration names; None, with the problem noted, for any other.

        Both names must agree: transformers goes by `model_type`, other programs by `architectures`.
        """
        named, kind = self.config.get("architectures"), plain_model_type(self.config)
        if named is not None and not isinstance(named, list):
            self.wrong(f"architectures is {told(named)}, not a list")
            return None
        names = [str(name) for name in named or ()]
        by_type = BY_MODEL_TYPE.get(kind) if isinstance(kind, str) else None
        family = FAMILIES.get(names[0]) if names else by_type
        if family is None or any(name != family.architecture for name in names):
            strange = next((name for name in names if name not in FAMILIES), names[-1] if names else kind)
            self.refuse(f"the architecture {strange}" if strange else "no architecture")
            return None
        if kind is not None and by_type is not family:
            self.refuse(f"the architecture {family.architecture} with the model_type {kind}")
            return None
        self._refuse_quantised()
        activation = self.config.get("hidden_act")
        if activation is not None and activation not in _SILU:
            self.refuse(f"the activation {activation} (hidden_act)")
        for key, neutral, what in _FOREIGN:
            value = self.config.get(key)
            if value is not None and value not in neutral and not (key == "auto_map" and names_own_code(self.config)):
                self.refuse(what if key in what else f"{what} ({key} {str(value)[:40]})")
        return family

    def _refuse_quantised(self) -> None:
        if self.config.get("quantization"):
            self._refuse_method("MLX")
            return
        if is_aqlm(self.config):
            return
        quantised = self.config.get("quantization_config") or self.config.get("compression_config")
        if not quantised:
            return
        method = quantised.get("quant_method") if isinstance(quantised, dict) else str(quantised)[:40]
        if isinstance(quantised, dict) and method is None:
            # bitsandbytes wrote its switches before it wrote its name
            loads = [key for key in ("load_in_4bit", "load_in_8bit") if quantised.get(key)]
            method = "bitsandbytes" if loads else "an unnamed method"
        self._refuse_method(str(method))

    def _refuse_method(self, method: str) -> None:
        self.refuse(
            f"weights quantised by {method}",
            hint="Use the model's unquantised weights; export.precision quantises them.",
        )

    def window(self, family: Family, layers: int) -> int | None:
        """How far attention reaches in every layer, None for all positions; layers that differ are refused."""
        kinds = self.config.get("layer_types")
        if kinds is not None:
            if not isinstance(kinds, list) or (layers and len(kinds) != layers):
                self.wrong(f"layer_types does not name each of the {layers} layers")
            other = sorted({str(kind) for kind in kinds if kind != _FULL}) if isinstance(kinds, list) else []
            if other:
                self.refuse(f"layers of {', '.join(other)} (layer_types)")
        window = self.config.get("sliding_window", family.sliding_window)
        if family.sliding is None or window is None:
            return None
        if isinstance(window, bool) or not isinstance(window, int) or window <= 0:
            self.wrong(f"sliding_window is {told(window)}, not a positive whole number")
            return None
        if family.sliding == "every":
            return window
        if self.flag("use_sliding_window") and kinds is None:
            first = self.config.get("max_window_layers", family.max_window_layers)
            if isinstance(first, bool) or not isinstance(first, int) or first < 0:
                self.wrong(f"max_window_layers is {told(first)}, not a whole number")
            elif layers > first:
                self.refuse(
                    f"{counted(layers - first, 'layer')} of sliding attention (use_sliding_window, max_window_layers {first})"
                )
        return None

    def positive(self, key: str, default: int | None = None, *, null: int | None = None) -> int:
        """A positive whole number; 0, with the problem noted, where there is none.

        Args:
            default: for an absent key.
            null: for a key that is written as null, by default as for an absent one.
        """
        value = self.config.get(key)
        if value is None:
            value = null if key in self.config and null is not None else default
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _FAR:
            return value
        written = self.config.get(key)
        if key != "head_dim" or written is not None:
            self.wrong(f"{key} is {told(written)}, not a positive whole number")
            return 0
        hidden, heads = self.config.get("hidden_size"), self.config.get("num_attention_heads")
        if hidden and heads:  # else what it would follow from is missing, and named
            self.wrong(
                f"hidden_size {told(hidden)} is no multiple of num_attention_heads {told(heads)}, and there is no head_dim"
            )
        return 0

    def number(self, key: str, default: float) -> float:
        """A positive number; the default, with the problem noted, where there is none."""
        value = self.config.get(key, default)
        number = positive(value)
        if number is None:
            self.wrong(f"{key} is {told(value)}, not a positive number")
        return default if number is None else number

    def flag(self, key: str) -> bool:
        """True or false; null and absent are false."""
        value = self.config.get(key)
        if value is not None and not isinstance(value, bool):
            self.wrong(f"{key} is {told(value)}, neither true nor false")
        return value is True

    def rope(self, family: Family) -> RopeConfig | None:
        """Rotary embedding, or None with the problem noted."""
        try:
            return rope_from_hf(self.config, by_layer_kind=family.sliding == "some")
        except RopeError as error:
            (self.refuse if error.unsupported else self.wrong)(str(error))
            return None

    def refuse(self, what: str, *, hint: str | None = None) -> None:
        """Note that the checkpoint has `what`."""
        self.problems.add(
            CheckpointError.problem(
                f"{self.path.parent.name} has {what}, which is not supported",
                code="checkpoint.unsupported",
                hint=hint
                or f"Supported: {', '.join(FAMILIES)}, not quantised or by AQLM, silu, with default, linear or llama3 rope scaling.",
                file=self.path,
            )
        )

    def wrong(self, what: str) -> None:
        """Note that the file itself is wrong."""
        self.problems.add(
            CheckpointError.problem(
                f"{CONFIG} is wrong: {what}",
                code=CODE,
                hint="Use the config.json that came with these weights.",
                file=self.path,
            )
        )
