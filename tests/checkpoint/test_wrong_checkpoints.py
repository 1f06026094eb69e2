"""Every kind of wrong checkpoint in one table: what is said of it, from headers alone, without torch.

The rows of pickled files stand in `test_torch_file.py` and its neighbours.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import safetensors.torch
import torch
from wrong_scene import (
    LFS,
    Scene,
    above,
    changed,
    dangling,
    eight_billion,
    half,
    leaving,
    misplaced,
    piped,
    put,
    without_shard,
    zero_blocks,
)

Build = Callable[..., Path]


@dataclass(frozen=True)
class Row:
    """A wrong checkpoint: how it is made, the code of its first problem, words of all its messages and hints."""

    name: str
    make: Callable[[Scene], Path]
    code: str
    words: tuple[str, ...]
    failure: str | None = None


def row(name: str, make: Callable[[Scene], Path], code: str, *words: str, failure: str | None = None) -> Row:
    return Row(name, make, f"checkpoint.{code}", words, failure)


Q0, Q1 = "model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj"
ROPE = {"rope_theta": 1e4, "rope_parameters": None}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

ROWS = (
    # files that are not what they should be
    row("nothing", lambda s: s.root / "none", "missing", "there is no checkpoint"),
    row("empty file", lambda s: s.content("m.gguf", b""), "truncated", "empty"),
    row("web page", lambda s: s.content("m.gguf", b"<!DOCTYPE html>"), "unknown", "text", "error page"),
    row(
        "pointer file",
        lambda s: s.content("m.gguf", LFS.encode()),
        "lfs_pointer",
        "git lfs pull",
        failure="checkpoint-lfs-pointer",
    ),
    row(
        "pointer weights",
        lambda s: put(s.folder(), "model.safetensors", LFS),
        "lfs_pointer",
        "model.safetensors",
        "git lfs pull",
        failure="checkpoint-lfs-pointer",
    ),
    row(
        "pointer config",
        lambda s: put(s.folder(), "config.json", LFS),
        "lfs_pointer",
        "config.json",
        failure="checkpoint-lfs-pointer",
    ),
    row("no config", lambda s: put(s.folder(), "config.json", None), "missing", "config.json"),
    row("no weights", lambda s: put(s.folder(), "model.safetensors", None), "missing", "model.safetensors"),
    row("dangling links", dangling, "missing", "links lead nowhere", "cp -rL"),
    row("folder above", above, "unsupported", "Did you mean", "model"),
    row(
        "cut off",
        lambda s: changed(s.folder() / "model.safetensors", lambda b: b[:-9]).parent,
        "truncated",
        "should have",
        failure="checkpoint-truncated",
    ),
    row(
        "too long",
        lambda s: changed(s.folder() / "model.safetensors", lambda b: b + b"xx").parent,
        "safetensors",
        "2 bytes too many",
    ),
    row(
        "no header",
        lambda s: changed(s.folder() / "model.safetensors", lambda _: b"\xff" * 64).parent,
        "safetensors",
        "no header",
    ),
    row("damaged config", lambda s: put(s.folder(), "config.json", '{"a":'), "config", "config.json"),
    # shards
    row("missing shard", without_shard, "shard_missing", "1 of 3 shards", "model-00002-of-00003.safetensors"),
    row("wrong index", misplaced, "index", "model.norm.weight"),
    row("index leaves the folder", leaving, "index", "../model-00002-of-00003.safetensors"),
    # weights and configuration that do not go together
    row(
        "KV heads",
        lambda s: s.folder(num_key_value_heads=4),
        "tensor_shape",
        "num_key_value_heads: 2",
        failure="checkpoint-shape-mismatch",
    ),
    row(
        "query heads",
        lambda s: s.folder(num_attention_heads=2, num_key_value_heads=1),
        "tensor_shape",
        "num_attention_heads: 4",
    ),
    row(
        "head dim",
        lambda s: s.folder("qwen3", head_dim=16),
        "tensor_shape",
        "heads of 32",
        "head_dim: 32",
        failure="checkpoint-head-dim",
    ),
    row("vocabulary", lambda s: s.folder(vocab_size=300), "tensor_shape", "[320, 64]", "vocab_size: 320"),
    row("hidden size", lambda s: s.folder(hidden_size=128), "tensor_shape", "hidden_size: 64"),
    row("intermediate size", lambda s: s.folder(intermediate_size=128), "tensor_shape", "intermediate_size: 96"),
    row(
        "untied without head",
        lambda s: s.folder(drop=("lm_head.weight",)),
        "tensor_missing",
        "lm_head.weight",
        "tie_word_embeddings: true",
    ),
    row(
        "more layers",
        lambda s: s.folder(num_hidden_layers=1),
        "tensor_unknown",
        "have 2 layers, the configuration says 1",
    ),
    row(
        "fewer layers",
        lambda s: s.folder(num_hidden_layers=4),
        "tensor_missing",
        "layers 2 to 3",
        "end after layer 1",
        failure="checkpoint-tensors-checked-late",
    ),
    row(
        "missing tensor",
        lambda s: s.folder(drop=("model.norm.weight",)),
        "tensor_missing",
        "model.norm.weight is missing",
    ),
    row(
        "biases unmentioned",
        lambda s: s.folder(made={"attention_bias": True}, attention_bias=False),
        "tensor_unknown",
        "bias",
        "attention_bias",
        failure="checkpoint-bias-dropped",
    ),
    row("biases absent", lambda s: s.folder(attention_bias=True), "tensor_missing", "o_proj.bias", "attention_bias"),
    row(
        "bias in one layer",
        lambda s: s.folder("qwen2", drop=(f"{Q1}.bias",)),
        "tensor_missing",
        f"{Q1}.bias is missing",
        failure="checkpoint-bias-dropped",
    ),
    row(
        "a layer's number of thousands of digits",
        lambda s: s.folder(extra={f"model.layers.{'9' * 5000}.x.weight": half(1)}),
        "tensor_unknown",
        "no place for 1 tensor",
    ),
    row("pipe among the shards", piped, "unreadable", "model-00001-of-00002.safetensors", "Remove it"),
    row("head bias", lambda s: s.folder(extra={"lm_head.bias": torch.zeros(320)}), "tensor_unknown", "lm_head.bias"),
    row(
        "norms of another family",
        lambda s: s.folder("qwen3", architectures=["LlamaForCausalLM"], model_type="llama"),
        "tensor_unknown",
        "q_norm",
        "Qwen3",
    ),
    row(
        "norms absent",
        lambda s: s.folder("llama", architectures=["Qwen3ForCausalLM"], model_type="qwen3"),
        "tensor_missing",
        "q_norm",
        "normalises queries",
    ),
    row(
        "names of another program",
        lambda s: s.folder(
            drop=tuple(safetensors.torch.load_file(s.model("llama") / "model.safetensors")),
            extra={"transformer.h.0.attn.c_attn.weight": half(4)},
        ),
        "dialect",
        "GPT-2",
        failure="checkpoint-dialect",
    ),
    # quantised
    *(
        row(
            f"quantised by {method}",
            lambda s, method=method: s.folder(quantization_config={"quant_method": method}),
            "unsupported",
            f"quantised by {method}",
        )
        for method in ("gptq", "awq", "bitsandbytes", "fp8", "vptq", "compressed-tensors")
    ),
    row(
        "GPTQ parts",
        lambda s: s.folder(drop=(f"{Q0}.weight",), extra={f"{Q0}.qweight": half(4), f"{Q0}.g_idx": half(4)}),
        "tensor_missing",
        "quantised by GPTQ",
    ),
    row(
        "AWQ parts",
        lambda s: s.folder(drop=(f"{Q0}.weight",), extra={f"{Q0}.qzeros": half(4)}),
        "tensor_missing",
        "quantised by GPTQ or AWQ",
    ),
    row(
        "bitsandbytes parts",
        lambda s: s.folder(extra={f"{Q0}.weight.absmax": half(4)}),
        "tensor_unknown",
        "quantised by bitsandbytes",
    ),
    row(
        "MLX",
        lambda s: s.folder(quantization={"group_size": 64, "bits": 4}, extra={f"{Q0}.scales": half(4)}),
        "unsupported",
        "quantised by MLX",
    ),
    row(
        "MLX parts",
        lambda s: s.folder(drop=(f"{Q0}.weight",), extra={f"{Q0}.scales": half(4), f"{Q0}.biases": half(4)}),
        "tensor_missing",
        "quantised by MLX",
    ),
    row("AQLM parts", lambda s: s.folder(extra={f"{Q0}.codebooks": half(4)}), "tensor_unknown", "quantised by AQLM"),
    row(
        "FP8",
        lambda s: s.folder(drop=(f"{Q0}.weight",), extra={f"{Q0}.weight": torch.zeros(64, 64).to(torch.float8_e4m3fn)}),
        "dtype",
        "F8_E4M3",
    ),
    # networks that compute otherwise
    *(
        row(
            f"architecture {name}",
            lambda s, name=name: s.folder(architectures=[name]),
            "unsupported",
            f"the architecture {name}",
        )
        for name in (
            "Gemma2ForCausalLM",
            "Phi3ForCausalLM",
            "MixtralForCausalLM",
            "Qwen2MoeForCausalLM",
            "MllamaForConditionalGeneration",
        )
    ),
    row(
        "two families",
        lambda s: s.folder(model_type="qwen2"),
        "unsupported",
        "LlamaForCausalLM with the model_type qwen2",
    ),
    row("remote code", lambda s: s.folder(auto_map={"AutoModel": "x.Y"}), "unsupported", "auto_map"),
    row("activation", lambda s: s.folder(hidden_act="gelu"), "unsupported", "gelu"),
    row(
        "sliding layers",
        lambda s: s.folder("qwen2", use_sliding_window=True, sliding_window=8, max_window_layers=1, layer_types=None),
        "unsupported",
        "1 layer of sliding attention",
    ),
    row("partial rotation", lambda s: s.folder(partial_rotary_factor=0.5), "unsupported", "partial_rotary_factor 0.5"),
    # rope
    *(
        row(
            f"rope {kind}",
            lambda s, kind=kind: s.folder(**ROPE, rope_scaling={"type": kind, "factor": 2.0}),
            "unsupported",
            f"the rope scaling '{kind}'",
            failure="rope-type-spelling",
        )
        for kind in ("yarn", "dynamic", "longrope", "su", "mrope", "of tomorrow")
    ),
    row(
        "rope without a factor",
        lambda s: s.folder(**ROPE, rope_scaling={k: v for k, v in LLAMA3.items() if k != "factor"}),
        "config",
        "factor is missing",
        failure="rope-scale-factor-guessed",
    ),
    row(
        "rope spelt twice",
        lambda s: s.folder(rope_theta=1e4, rope_parameters=LLAMA3, rope_scaling=LLAMA3 | {"factor": 32.0}),
        "config",
        "factor 8",
        "factor 32",
        "disagree",
        failure="rope-parameters-renamed",
    ),
    row(
        "two thetas",
        lambda s: s.folder(rope_theta=5e5, rope_parameters={"rope_type": "default", "rope_theta": 1e4}),
        "config",
        "10000 and 500000 at once",
        failure="rope-parameters-renamed",
    ),
    # GGUF
    row(
        "gguf cut off",
        lambda s: changed(s.gguf(), lambda b: b[:-400]),
        "truncated",
        "cut off",
        failure="checkpoint-truncated",
    ),
    row("gguf header cut off", lambda s: changed(s.gguf(), lambda b: b[:200]), "gguf", "ends within its header"),
    row(
        "gguf version 1",
        lambda s: changed(s.gguf(), lambda b: b[:4] + struct.pack("<I", 1) + b[8:]),
        "gguf",
        "version is 1",
    ),
    row(
        "gguf big-endian",
        lambda s: changed(s.gguf(), lambda b: b[:4] + struct.pack(">I", 3) + b[8:]),
        "gguf",
        "big-endian",
    ),
    row("before gguf", lambda s: s.content("m.bin", b"tjgg\1\0\0\0"), "unsupported", "older than GGUF"),
    row("gguf architecture", lambda s: s.gguf(arch="gemma2"), "unsupported", "the architecture gemma2"),
    row("gguf experts", lambda s: s.gguf(expert_count=8), "unsupported", "mixture of experts"),
    row("gguf yarn", lambda s: s.gguf(rope__scaling__type="yarn"), "unsupported", "the rope scaling yarn"),
    row(
        "gguf divisors",
        lambda s: s.gguf(extra={"rope_freqs.weight": np.linspace(1, 9, 8, dtype=np.float32)}),
        "unsupported",
        "rope_freqs.weight",
        failure="rope-scaling-dropped",
    ),
    row(
        "gguf divisors of zero",
        lambda s: s.gguf(extra={"rope_freqs.weight": np.zeros(8, np.float32)}),
        "unsupported",
        "rope_freqs.weight",
    ),
    row(
        "gguf layer by another number",
        lambda s: s.gguf(extra={"blk.00.attn_q.weight": np.zeros((64, 64), np.float32)}),
        "tensor_unknown",
        "holds 1 tensor of no network",
    ),
    row(
        "gguf long and short factors",
        lambda s: s.gguf(extra={"rope_factors_long.weight": np.ones(8, np.float32)}),
        "tensor_unknown",
        "rope_factors_long",
    ),
    row("gguf KV heads", lambda s: s.gguf(attention__head_count_kv=4), "tensor_shape", "num_key_value_heads: 2"),
    row("gguf vocabulary", lambda s: s.gguf(vocab_size=300), "tensor_shape", "vocab_size: 320"),
    row("gguf fewer layers", lambda s: s.gguf(block_count=3), "tensor_missing", "model.layers.2."),
    row("gguf more layers", lambda s: s.gguf(block_count=1), "tensor_unknown", "have 2 layers"),
    row(
        "gguf without biases",
        lambda s: s.gguf("qwen2", drop=(f"{Q0}.bias", f"{Q1}.bias")),
        "tensor_missing",
        "q_proj.bias (layers 0 to 1)",
        failure="checkpoint-bias-dropped",
    ),
    row("gguf part", lambda s: s.gguf(change=lambda w: w.add_uint16("split.count", 3)), "split", "one of 3 parts"),
    row(
        "gguf type",
        lambda s: s.gguf(kind=gguf.GGMLQuantizationType.Q8_1, encode=zero_blocks),
        "dtype",
        "Q8_1",
        "token_embd.weight",
    ),
    # size
    row("8 billion parameters", eight_billion, "tensor_shape", "layers 0 to 31", "num_key_value_heads: 8"),
)

PROGRAM = """
import json, pathlib, sys, time
import numpy, safetensors, gguf.quants
from etcli.checkpoint.checks import header_problems

def guarded(name):
    def read(*arguments, **options):
        raise AssertionError(f"a tensor was read, by {name}")
    return read

numpy.memmap = guarded("numpy.memmap")
numpy.fromfile = guarded("numpy.fromfile")
safetensors.safe_open = guarded("safe_open")
decode = gguf.quants.dequantize

def dequantize(data, kind):  # one block of zeros tells whether a type is known
    assert data.size < 1000, "a tensor was read, by dequantize"
    return decode(data, kind)

gguf.quants.dequantize = dequantize
answers, seconds = {}, {}
for name, path in json.load(sys.stdin).items():
    start = time.process_time()
    try:
        answers[name] = [
            [p.code, int(p.exit_code), p.message, p.hint, str(p.file)] for p in header_problems(pathlib.Path(path))
        ]
    except BaseException as error:
        answers[name] = repr(error)
    seconds[name] = time.process_time() - start
print(json.dumps({"answers": answers, "seconds": seconds, "torch": "torch" in sys.modules}))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory, random_model: Build) -> dict[str, Any]:
    """What a fresh process says of every row, all readers of tensors guarded."""
    root = tmp_path_factory.mktemp("wrong")
    paths = {row.name: str(row.make(Scene(root / str(number), random_model))) for number, row in enumerate(ROWS)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps(paths), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def marked(row: Row) -> Any:
    marks = [pytest.mark.known_failure(row.failure)] if row.failure else []
    return pytest.param(row, id=row.name.replace(" ", "-"), marks=marks)


@pytest.mark.parametrize("row", [marked(row) for row in ROWS])
def test_what_is_said(answers: dict[str, Any], row: Row) -> None:
    problems = answers["answers"][row.name]
    assert isinstance(problems, list), problems
    assert problems, "it was taken for a good one"
    assert problems[0][0] == row.code, problems
    said = "\n".join(f"{message} {hint}" for _, _, message, hint, _ in problems)
    for words in row.words:
        assert words in said
    for code, exit_code, message, hint, file in problems:
        assert exit_code == 5
        assert code.startswith("checkpoint.")
        assert message
        assert hint
        assert file != "None"


@pytest.mark.parametrize("name", [row.name for row in ROWS])
def test_it_is_said_at_once(answers: dict[str, Any], name: str) -> None:
    """Processor time, which is that of the work whatever else the machine does."""
    assert answers["seconds"][name] < 2


def test_torch_is_not_imported(answers: dict[str, Any]) -> None:
    assert answers["torch"] is False
