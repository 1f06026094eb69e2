"""The peer of the export and decode benchmarks: ExecuTorch's own `export_llm`, and the tokenizer its LLM runner needs.

A library: the default model as a Meta-style checkpoint, which `export_llm` reads, and a run of `export_llm` on it with wall time and peak
memory. Its artefacts are kept in the cache folder, by ExecuTorch's version, because it takes minutes to make one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from etcli.checkpoint.base import Checkpoint
from etcli.checkpoint.layout import EMBEDDING, HEAD, NORM
from etcli.checkpoint.opening import open_checkpoint
from etcli.checkpoint.source import fetch
from etcli.common.workspace import cache_dir
from etcli.manifests.model import ModelConfig
from etcli.output.console import Console
from etcli.recipe.loader import load
from etcli.tokenizer.opening import open_tokenizer

CONTEXT = 512
GROUP_SIZE = 32
_LAYER_NAMES = {
    "self_attn.q_proj": "attention.wq",
    "self_attn.k_proj": "attention.wk",
    "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
    "input_layernorm": "attention_norm",
    "post_attention_layernorm": "ffn_norm",
}


@dataclass(frozen=True)
class PeerExport:
    """One run of `export_llm`: wall seconds, peak resident bytes, and the program it wrote."""

    seconds: float
    peak_bytes: int
    program: str


@dataclass(frozen=True)
class PeerModel:
    """What the peer reads: folder with `params.json`, `consolidated.00.pth` and `tokenizer/tokenizer.json`."""

    folder: Path

    @property
    def tokenizer(self) -> Path:
        """The tokenizer file of its LLM runner."""
        return self.folder / "tokenizer" / "tokenizer.json"


def peer_folder() -> Path:
    """Where the peer's files are kept."""
    return cache_dir() / "benchmarks" / f"executorch-{version('executorch')}"


def default_checkpoint() -> Checkpoint:
    """The default recipe's checkpoint."""
    return open_checkpoint(fetch(load("smollm2-135m"), Console()))


def peer_model() -> PeerModel:
    """The default model in Meta's form, written once."""
    folder = peer_folder() / "model"
    done = folder / "params.json"
    if not done.exists():
        import torch

        checkpoint = default_checkpoint()
        folder.mkdir(parents=True, exist_ok=True)
        weights = {name: checkpoint.read(canonical) for name, canonical in _meta_names(checkpoint.config)}
        for name in weights:
            heads = {"wq": checkpoint.config.num_heads, "wk": checkpoint.config.num_kv_heads}.get(name.split(".")[-2])
            if heads is not None:  # Meta's order of rows: the two halves of a head's rotation interleaved
                rows = weights[name].view(heads, 2, -1, weights[name].shape[1])
                weights[name] = rows.transpose(1, 2).reshape(weights[name].shape).contiguous()
        torch.save(weights, folder / "consolidated.00.pth")
        tokenizer = folder / "tokenizer"
        tokenizer.mkdir(exist_ok=True)
        open_tokenizer(checkpoint.path).save(tokenizer)
        done.write_text(json.dumps(_params(checkpoint.config)))
    return PeerModel(folder)


def run_export_llm(precision: str, *, force: bool = False) -> PeerExport:
    """The default model through `export_llm` with XNNPACK, `fp32` or `8da4w`; kept unless `force`.

    Raises:
        RuntimeError: it failed; the message ends with what it printed last.
    """
    model = peer_model()
    folder = peer_folder() / precision
    record = folder / "export.json"
    if record.exists() and not force:
        return PeerExport(**json.loads(record.read_text()))
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "model.pte"
    settings = [
        "base.model_class=llama3",
        f"base.checkpoint={model.folder / 'consolidated.00.pth'}",
        f"base.params={model.folder / 'params.json'}",
        "model.use_kv_cache=true",
        "model.use_sdpa_with_kv_cache=true",
        "backend.xnnpack.enabled=true",
        "backend.xnnpack.extended_ops=true",
        f"export.max_seq_length={CONTEXT}",
        f"export.max_context_length={CONTEXT}",
        f"export.output_name={program}",
        f"hydra.run.dir={folder}",
    ]
    if precision == "8da4w":
        settings += ["quantization.qmode=8da4w", f"quantization.group_size={GROUP_SIZE}"]
    seconds, peak = measured(
        [sys.executable, "-m", "executorch.extension.llm.export.export_llm", *settings], folder / "export.log"
    )
    found = PeerExport(seconds, peak, str(program))
    record.write_text(json.dumps(asdict(found)))
    return found


def measured(argv: list[str], log: Path, environment: Mapping[str, str] | None = None) -> tuple[float, int]:
    """Wall seconds and peak resident bytes of a process; the peak is that of the largest single process of its tree.

    Raises:
        RuntimeError: it failed.
    """
    start, peak = time.perf_counter(), 0
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
        )
        while process.poll() is None:
            peak = max(peak, _peak_of_tree(process.pid))
            time.sleep(0.05)
    seconds = time.perf_counter() - start
    if process.returncode:
        tail = log.read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{' '.join(argv[:4])} ended with status {process.returncode}:\n{tail}")
    return seconds, peak


def _peak_of_tree(root: int) -> int:
    """The largest VmHWM, which starts anew at exec, of a process and its descendants."""
    import psutil

    peak = 0
    with suppress(psutil.Error):
        process = psutil.Process(root)
        for member in (process, *process.children(recursive=True)):
            with suppress(OSError):
                status = Path(f"/proc/{member.pid}/status").read_text(encoding="ascii")
                match = re.search(r"VmHWM:\s+(\d+) kB", status)
                peak = max(peak, int(match[1]) * 1024 if match else 0)
    return peak


def _meta_names(config: ModelConfig) -> Iterator[tuple[str, str]]:
    """Meta's name and our canonical name of every tensor; `export_llm` wants a head even where it is tied."""
    yield "tok_embeddings.weight", EMBEDDING
    yield "norm.weight", NORM
    yield "output.weight", EMBEDDING if config.tied_embeddings else HEAD
    for layer in range(config.num_layers):
        for canonical, meta in _LAYER_NAMES.items():
            yield f"layers.{layer}.{meta}.weight", f"model.layers.{layer}.{canonical}.weight"


def _params(config: ModelConfig) -> dict[str, object]:
    return {
        "dim": config.hidden_size,
        "n_layers": config.num_layers,
        "n_heads": config.num_heads,
        "n_kv_heads": config.num_kv_heads,
        "vocab_size": config.vocab_size,
        "hidden_dim": config.intermediate_size,
        "norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope.theta,
    }


if __name__ == "__main__":
    sys.exit("this is a library; run one of the benchmarks beside it")
