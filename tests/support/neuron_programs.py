"""Programs for the simulated NPU, with what eager PyTorch computes of the same quantised graph.

`python neuron_programs.py FOLDER NETWORK LAYOUT PRECISION [NETWORK LAYOUT PRECISION ...]` makes them in a process of its own, since ExecuTorch's
MediaTek backend stays bound to the converter that it was imported with. NETWORK is `small` or `chunk`; LAYOUT is `package` (both methods and
shared weights in one program) or `separate`. Written are `NETWORK_LAYOUT_PRECISION.pte` (with `_1`, a second one, for the layout `separate`)
and `NETWORK_LAYOUT_PRECISION.pt`, which holds inputs and outputs by method.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from etcli.export.backends.neuron import compile_specs, lower_neuron
from etcli.export.simulated_sdk import simulated_sdk

PRECISIONS = ("A16W4", "A16W8", "A16W16", "A8W4", "A8W8")
TOKENS, CACHE = 8, 32


@dataclass(frozen=True)
class Network:
    """A module of T tokens: its inputs by T and seed, and what of them is dynamic (`torch.export`'s `dynamic_shapes`)."""

    module: torch.nn.Module
    inputs: Callable[[int, int], tuple[torch.Tensor, ...]]
    dynamic: Any


class Small(torch.nn.Module):
    """A cache that moves on by T rows, and two linears around a sigmoid; the second has a bias."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.up, self.down = torch.nn.Linear(16, 24, bias=False), torch.nn.Linear(24, 16)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) / 3
            parameter.requires_grad_(False)

    def forward(self, x: torch.Tensor, cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = x.shape[1]
        moved = torch.cat([cache, x], dim=1)
        up = self.up(x)
        return self.down(up * torch.sigmoid(up)) + cache.mean(1, keepdim=True), moved[:, tokens:]


def small() -> Network:
    """A network that is lowered within seconds."""

    def inputs(tokens: int, seed: int) -> tuple[torch.Tensor, ...]:
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(1, tokens, 16, generator=generator), torch.randn(1, CACHE, 16, generator=generator)

    return Network(Small().eval(), inputs, {"x": {1: torch.export.Dim("T", min=1, max=CACHE)}, "cache": None})


def chunk() -> Network:
    """A Llama of two layers, hidden size 64, 512 words, of random weights: one chunk with caches that shift."""
    from etcli.export.samples import sample_inputs
    from etcli.llama.chunk import Chunk
    from etcli.manifests.bundle import Shape
    from etcli.manifests.model import ModelConfig, RopeConfig

    config = ModelConfig(
        architecture="llama",
        hidden_size=64,
        intermediate_size=96,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=16,
        vocab_size=512,
        context_length=256,
        rms_norm_eps=1e-5,
        rope=RopeConfig(theta=10000.0),
        tied_embeddings=True,
        stop_ids=(2,),
    )
    module = Chunk(config, 0, 2, head=True, cache="shift").eval()
    generator = torch.Generator().manual_seed(0)
    for name, parameter in list(module.named_parameters()):
        owner, _, leaf = name.rpartition(".")
        random = torch.randn(parameter.shape, generator=generator)
        value = 1 + random / 10 if parameter.dim() == 1 else random / 5
        setattr(module.get_submodule(owner), leaf, torch.nn.Parameter(value, requires_grad=False))

    def inputs(tokens: int, seed: int) -> tuple[torch.Tensor, ...]:
        return sample_inputs(config, 2, Shape(tokens=tokens, cache=CACHE), "shift", seed=seed)

    tokens = torch.export.Dim("T", min=1, max=CACHE)
    shapes = {
        "hidden": {1: tokens},
        "place": {2: tokens, 3: tokens + CACHE},
        "rotary": {2: tokens},
        "caches": (None,) * 4,
    }
    return Network(module, inputs, shapes)


def quantised(network: Network, precision: str) -> torch.fx.GraphModule:
    """The network with the wheel's own quantiser, activations measured on a few calls of either shape."""
    from executorch.backends.mediatek.quantizer import NeuropilotQuantizer, Precision
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    exported = torch.export.export(
        network.module, network.inputs(TOKENS, 0), strict=True, dynamic_shapes=network.dynamic
    )
    quantizer = NeuropilotQuantizer()
    quantizer.setup_precision(Precision[precision])
    prepared = prepare_pt2e(exported.module(), quantizer)
    for seed in range(6):
        prepared(*network.inputs((TOKENS, 1)[seed % 2], seed))
    converted: torch.fx.GraphModule = convert_pt2e(prepared, fold_quantize=False)
    return converted


def write_programs(network: str, layout: str, precision: str, folder: Path) -> None:
    """See the module."""
    made = {"small": small, "chunk": chunk}[network]()
    graph = quantised(made, precision)
    calls = {f"net_{tokens}t{CACHE}c_0": made.inputs(tokens, 100) for tokens in (TOKENS, 1)}
    programs = {name: torch.export.export(graph, inputs, strict=True) for name, inputs in calls.items()}
    with torch.no_grad():
        results = {name: (inputs, tuple(graph(*inputs))) for name, inputs in calls.items()}
    stem = f"{network}_{layout}_{precision}"
    torch.save(results, folder / f"{stem}.pt")
    if layout == "package":
        lowered = [lower_neuron(programs, compile_specs("mt6991", shared_key="net_0"))]
    else:
        lowered = [lower_neuron({name: program}, compile_specs("mt6991")) for name, program in programs.items()]
    for suffix, one in zip(("", "_1"), lowered, strict=False):
        (folder / f"{stem}{suffix}.pte").write_bytes(one.buffer)


def main() -> None:
    """See the module."""
    folder, *words = sys.argv[1:]
    with simulated_sdk():
        for network, layout, precision in zip(words[::3], words[1::3], words[2::3], strict=True):
            write_programs(network, layout, precision, Path(folder))


if __name__ == "__main__":
    main()
    os._exit(0)  # what compilers and runtimes do at the end of a process is not what is tested
