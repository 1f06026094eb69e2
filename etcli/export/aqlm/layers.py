"""A network quantised layer by layer, each on what comes out of the quantised layers before it.

Two streams of the calibration go through the network: one through float32 weights, one through what has been quantised. The inputs of a linear
are taken from the second, and what it is asked to give from both: `correction` of the way from what the float32 matrix gives on the
inputs that it gets to what the float32 network has there (as in Arai and Ichikawa, "Quantization Error Propagation", 2025, and in Li et al.,
"GPTAQ", 2025).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from etcli.checkpoint.base import Checkpoint
from etcli.checkpoint.layout import linear_shapes
from etcli.common.errors import ExportError
from etcli.export.aqlm.feedback import factor_of
from etcli.export.aqlm.linear import Quantised, quantise_linear
from etcli.export.aqlm.parallel import Workers
from etcli.export.aqlm.settings import Settings
from etcli.export.aqlm.stations import STATIONS, Halt, Ride, Station, ride
from etcli.llama.chunk import Chunk
from etcli.llama.layer import DecoderLayer
from etcli.llama.rope import rope_table, rotary_input
from etcli.llama.weights import load_embedding_rows, load_weights

_PANEL = 192
"""Rows of a matrix of moments that are computed at once."""


@dataclass
class Streams:
    """Where the calibration stands: hidden states `[T, H]` of each sequence, `right` by float32 weights, `quantised` by quantised ones."""

    right: list[torch.Tensor]
    quantised: list[torch.Tensor]

    @classmethod
    def start(cls, checkpoint: Checkpoint, sequences: Sequence[Sequence[int]]) -> Streams:
        """Both at the embedding, which is not quantised."""
        rows = [load_embedding_rows(checkpoint, ids) for ids in sequences]
        return cls(rows, list(rows))


@dataclass(frozen=True)
class Made:
    """A quantised linear: its canonical name, what it is now, and how far its products with the calibration's inputs are from those of the matrix
    asked for: `error` is the mean square of the difference over that of the products, tokens weighed as they were for the codes."""

    name: str
    quantised: Quantised
    error: float


class LayerQuantiser:
    """Quantises the layers of `checkpoint` in order; `sequences` are the ids of the calibration."""

    def __init__(
        self, checkpoint: Checkpoint, sequences: Sequence[Sequence[int]], settings: Settings, workers: Workers
    ) -> None:
        self._checkpoint, self._settings, self._workers = checkpoint, settings, workers
        config = checkpoint.config
        self._outputs = {name: shape[0] for name, shape in linear_shapes(config).items()}
        table = rope_table(config.rope, config.head_dim, max(map(len, sequences)))
        self._rotary = [rotary_input(table, 0, len(ids)) for ids in sequences]

    @torch.no_grad()
    def layer(self, index: int, streams: Streams) -> Iterator[Made]:
        """The linears of a layer, each as it is done. After the last one `streams` stand behind the layer.

        Raises:
            CheckpointError: the layer's weights cannot be read.
            ExportError: `aqlm.moments`, the inputs of a linear are not finite.
        """
        right, quantised = self._loaded(index), self._loaded(index)
        ahead, behind = self._rides(right, streams.right), self._rides(quantised, streams.quantised)
        for station in STATIONS:
            wanted, got = _joined(self._workers.map(next, ahead)), _joined(self._workers.map(next, behind))
            yield from self._station(index, station, station.weight(quantised), wanted, got)
        streams.right = [halt.residual for halt in self._workers.map(next, ahead)]
        streams.quantised = [halt.residual for halt in self._workers.map(next, behind)]

    def _loaded(self, index: int) -> DecoderLayer:
        chunk = Chunk(self._checkpoint.config, index, 1, head=False).eval()
        load_weights(chunk, self._checkpoint)
        layer = chunk.layers[0]
        assert isinstance(layer, DecoderLayer)  # noqa: S101 - for the type checker
        return layer

    def _rides(self, layer: DecoderLayer, hidden: list[torch.Tensor]) -> list[Ride]:
        config = self._checkpoint.config
        return [ride(layer, config, states, rotary) for states, rotary in zip(hidden, self._rotary, strict=True)]

    def _station(self, index: int, station: Station, weight: torch.Tensor, wanted: Halt, got: Halt) -> Iterator[Made]:
        """Quantise the linears that lie in `weight`, which meet what they `got` where float32 weights meet what is `wanted`, and put them there."""
        if station.residual:
            wanted, got = _weighed(weight, wanted, got)
        moments = self._products(got.inputs, got.inputs)
        damping = self._settings.damping * moments.diagonal().mean()
        moments.diagonal().add_(damping)
        try:
            factor = factor_of(moments)
            target = weight + self._correction(station, weight, wanted, got, moments)
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # it is documented, yet not in __all__
            raise ExportError(
                f"layer {index} gives inputs to {station.names[0]} that cannot be measured: they are not finite, or all zero",
                code="aqlm.moments",
                hint="The weights may be damaged: check that the model answers unquantised (export.precision: fp32, without model.quantize).",
            ) from None
        first = 0
        for name in station.names:
            rows = slice(first, first + self._outputs[name])
            first = rows.stop
            part = target[rows]
            full = f"model.layers.{index}.{name}"
            seed = self._settings.seed + zlib.crc32(full.encode())
            made = quantise_linear(part, moments, factor, self._settings, seed, self._workers)
            dense = made.dense()
            weight[rows] = dense
            lost, whole = _size(dense.sub_(part), moments, damping), _size(part, moments, damping)
            yield Made(full, made, float(lost / whole.clamp_min(torch.finfo(whole.dtype).tiny)))

    def _products(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """`left^T right` over the number of tokens: for `[T, in]` each, `[in, in]`."""
        panels = [slice(first, first + _PANEL) for first in range(0, left.shape[1], _PANEL)]
        return torch.cat(self._workers.map(lambda columns: left[:, columns].T @ right, panels)).div_(len(left))

    def _correction(
        self, station: Station, weight: torch.Tensor, wanted: Halt, got: Halt, moments: torch.Tensor
    ) -> torch.Tensor:
        """What to add to `weight` so that it makes up for a share of what came wrong from before: least squares, damped as `moments` are."""
        lacking = weight @ self._products(wanted.inputs - got.inputs, got.inputs)
        if station.residual:
            lacking += self._products(wanted.residual - got.residual, got.inputs)
        root = torch.linalg.cholesky(moments)
        return torch.cholesky_solve(lacking.T, root).T.mul_(self._settings.correction)


def _weighed(weight: torch.Tensor, wanted: Halt, got: Halt) -> tuple[Halt, Halt]:
    """Both divided by the size of the residual stream after the station, token by token.

    What follows normalises the stream, so an error counts by its share of it: a few first tokens, whose streams are a thousand times as
    large, would else be all that is looked at.
    """
    sizes = (wanted.residual + wanted.inputs @ weight.T).square().mean(1, keepdim=True)
    shares = sizes.clamp_min_(torch.finfo(sizes.dtype).tiny).rsqrt_()
    shares /= shares.square().mean().sqrt()
    return Halt(wanted.inputs * shares, wanted.residual * shares), Halt(got.inputs * shares, got.residual * shares)


def _size(matrix: torch.Tensor, moments: torch.Tensor, damping: torch.Tensor) -> torch.Tensor:
    """The mean square of a matrix's products with inputs of these `moments`, from which `damping` is taken off again."""
    return ((matrix @ moments).mul_(matrix).sum() - damping * matrix.square().sum()).clamp_min(0)


def _joined(halts: Sequence[Halt]) -> Halt:
    """Those of all sequences as one, `[tokens of all, ...]`."""
    return Halt(torch.cat([halt.inputs for halt in halts]), torch.cat([halt.residual for halt in halts]))
