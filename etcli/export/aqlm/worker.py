"""The quantiser's process: `python -m etcli.export.aqlm.worker JOB.json`, started by `export/aqlm/making.py`.

Events: `begin` (`layers` that an earlier run has finished), `linear` (`name`, `error`), `layer`. Finished layers and where the calibration
stands are kept in the job's folder, so that a run that was cut short goes on where it was.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etcli.checkpoint.base import Checkpoint
from etcli.common.errors import ExportError
from etcli.common.files import atomic_writer
from etcli.export.aqlm.settings import Settings, quantised_config
from etcli.export.isolated import Send, isolated_main

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

    from etcli.export.aqlm.layers import Made, Streams

WEIGHTS = "model.safetensors"
_STATE = "state.safetensors"


def work(job: dict[str, Any], send: Send) -> Mapping[str, Any]:
    """Write `model.safetensors` into the job's `folder`; the result has the `errors` of all linears by name.

    Raises:
        CheckpointError: the checkpoint cannot be opened or read.
        ExportError: `aqlm.moments`, or `aqlm.range`, a number of the checkpoint that float16 cannot hold.
    """
    from etcli.checkpoint.opening import open_checkpoint
    from etcli.export.aqlm.layers import LayerQuantiser, Streams
    from etcli.export.aqlm.parallel import Workers

    folder, adapter = Path(job["folder"]), job["adapter"]
    checkpoint = open_checkpoint(Path(job["checkpoint"]), None if adapter is None else Path(adapter))
    count = checkpoint.config.num_layers
    done, streams = _resumed(folder, job["sequences"])
    send({"event": "begin", "layers": done})
    with Workers(job["threads"]) as workers:
        quantiser = LayerQuantiser(checkpoint, job["sequences"], Settings.model_validate(job["settings"]), workers)
        streams = streams or Streams.start(checkpoint, job["sequences"])
        for layer in range(done, count):
            made = []
            for linear in quantiser.layer(layer, streams):
                send({"event": "linear", "name": linear.name, "error": linear.error})
                made.append(linear)
            _keep_layer(folder, layer, made)
            _keep_state(folder, layer + 1, streams)
            send({"event": "layer"})
    errors = _assemble(folder, checkpoint)
    return {"errors": errors}


def _layer_file(folder: Path, layer: int) -> Path:
    return folder / f"layer-{layer:04d}.safetensors"


def _keep_layer(folder: Path, layer: int, made: Sequence[Made]) -> None:
    tensors = {}
    for linear in made:
        tensors[f"{linear.name}.codes"] = linear.quantised.codes
        tensors[f"{linear.name}.codebooks"] = linear.quantised.codebooks
        tensors[f"{linear.name}.scales"] = linear.quantised.scales
    _write(_layer_file(folder, layer), tensors, {linear.name: repr(linear.error) for linear in made})


def _keep_state(folder: Path, layers: int, streams: Streams) -> None:
    import torch

    tensors = {"right": torch.cat(streams.right), "quantised": torch.cat(streams.quantised)}
    _write(folder / _STATE, tensors, {"layers": str(layers)})


def _write(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    from safetensors.torch import save

    with atomic_writer(path) as file:
        file.write(save({name: tensor.contiguous() for name, tensor in tensors.items()}, dict(metadata)))


def _resumed(folder: Path, sequences: Sequence[Sequence[int]]) -> tuple[int, Streams | None]:
    """How many layers an earlier run has finished, and where the calibration stood then; 0 and None for a folder without."""
    from safetensors import SafetensorError, safe_open

    from etcli.export.aqlm.layers import Streams

    lengths = [len(ids) for ids in sequences]
    try:
        with safe_open(folder / _STATE, framework="pt") as file:
            layers = int(file.metadata()["layers"])
            right, quantised = file.get_tensor("right"), file.get_tensor("quantised")
        for layer in range(layers):
            with safe_open(_layer_file(folder, layer), framework="pt"):
                pass  # opening compares the file's length with its header
        return layers, Streams(list(right.split(lengths)), list(quantised.split(lengths)))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError):
        return 0, None


def _assemble(folder: Path, checkpoint: Checkpoint) -> dict[str, float]:
    """All tensors of the network in one file, one in memory at a time; the errors of the linears by name."""
    from safetensors import safe_open

    from etcli.checkpoint.layout import expected_shapes
    from etcli.checkpoint.safetensors_writing import write_safetensors

    config = quantised_config(checkpoint.config)
    shapes = expected_shapes(config)
    with contextlib.ExitStack() as files:
        places: dict[str, Any] = {}
        errors: dict[str, float] = {}
        for layer in range(config.num_layers):
            file = files.enter_context(safe_open(_layer_file(folder, layer), framework="np"))
            places |= dict.fromkeys(file.keys(), file)
            errors |= {name: float(error) for name, error in sorted(file.metadata().items())}
        layout = {name: ("int8" if name.endswith(".codes") else "float16", shape) for name, shape in shapes.items()}
        write_safetensors(
            folder / WEIGHTS,
            layout,
            lambda name: places[name].get_tensor(name) if name in places else _half(checkpoint, name),
            {"format": "pt"},
        )
    return errors


def _half(checkpoint: Checkpoint, name: str) -> npt.NDArray[np.float16]:
    """A tensor that stays as it is, in float16."""
    import torch

    values = checkpoint.read(name)
    half = values.half()
    if values.numel() and not torch.isfinite(half).all():
        raise ExportError(
            f"{name} holds numbers that float16, in which AQLM checkpoints keep what is not quantised, does not reach",
            code="aqlm.range",
            hint="Export this model without model.quantize.",
        )
    return half.numpy()


if __name__ == "__main__":
    sys.exit(isolated_main(work, sys.argv))
