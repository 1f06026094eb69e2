"""What chunks see of calibration prompts: files with the hidden states of every call, one a chunk.

Everything else that a chunk takes follows from the calls: mask and rotary planes from their rows, caches from the chunk's own earlier outputs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from etcli.llama.caches import clear_left_padding, empty_caches
from etcli.llama.mask import additive_mask
from etcli.llama.prefill import Call
from etcli.llama.rope import rope_table, rotary_input
from etcli.manifests.model import ModelConfig

Tensors = tuple[torch.Tensor, ...]
Run = Callable[..., Sequence[torch.Tensor]]

_CALLS = "calls"


def record_file(chunk: int) -> str:
    """The name of a chunk's file."""
    return f"chunk_{chunk}.safetensors"


def write_records(path: Path, calls: Sequence[Sequence[Call]], hidden: Mapping[tuple[int, int], torch.Tensor]) -> None:
    """Write hidden states float32 `[1, T, H]` by prompt and call; `calls` are those of each prompt."""
    listed = [[(call.tokens, call.padding) for call in one] for one in calls]
    tensors = {f"{prompt}.{call}": tensor.contiguous() for (prompt, call), tensor in hidden.items()}
    save_file(tensors, path, metadata={_CALLS: json.dumps(listed)})


class Records:
    """The file that `write_records` wrote."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with safe_open(path, "pt") as file:
            listed = json.loads(file.metadata()[_CALLS])
        self.calls = [[Call(tokens, padding) for tokens, padding in one] for one in listed]

    def hidden(self, prompt: int, call: int) -> torch.Tensor:
        """Those of one call, float32 `[1, T, H]`."""
        with safe_open(self._path, "pt") as file:
            found: torch.Tensor = file.get_tensor(f"{prompt}.{call}")
        return found


def inputs_of(
    config: ModelConfig,
    layers: int,
    cache: int,
    calls: Sequence[Call],
    hidden: Callable[[int], torch.Tensor],
    run: Run,
) -> Iterator[tuple[Tensors, Tensors]]:
    """The inputs of a chunk's calls for one prompt and what `run` gave for each, one call after the other, as the runner makes them.

    Args:
        layers: of the chunk.
        cache: slots of its caches.
        hidden: gives the hidden states of the call of a number.
        run: the chunk.
    """
    table = rope_table(config.rope, config.head_dim, cache)
    caches, seen = empty_caches(config, layers, cache), 0
    for number, call in enumerate(calls):
        mask = additive_mask(call.tokens, cache, seen, left_padding=call.padding)
        rotary = rotary_input(table, seen, call.tokens, left_padding=call.padding)
        inputs = (hidden(number), mask, rotary, *caches)
        outputs = tuple(run(*inputs))
        yield inputs, outputs
        caches = tuple(tensor.clone() for tensor in outputs[1:])
        clear_left_padding(caches, call.tokens, call.padding)
        seen += call.real
