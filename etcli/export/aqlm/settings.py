"""How the quantiser goes about it: together with weights and calibration, what decides the result."""

from __future__ import annotations

from etcli.manifests.base import Part
from etcli.manifests.model import AqlmConfig, ModelConfig


class Settings(Part):
    """The quantiser's numbers.

    Attributes:
        correction: share of the error of earlier layers that a linear is asked to make up for.
        damping: share of the mean second moment of the inputs that is added to that of each.
        sample: groups of a matrix that the first codebooks are found on.
        steps: of k-means for each codebook.
        beam: entries of the first codebook that are tried with the best of the second.
        fits: times that codebooks and scales are fitted to the codes.
        gradients: steps of conjugate gradients each time.
        rows: of a matrix that are worked on at once.
        seed: of the first codebooks.
    """

    correction: float = 0.7
    damping: float = 0.1
    sample: int = 16384
    steps: int = 8
    beam: int = 4
    fits: int = 1
    gradients: int = 8
    rows: int = 192
    seed: int = 0


def quantised_config(config: ModelConfig) -> ModelConfig:
    """The numbers of the network that is made of one with `config`: all linears of all layers in two codebooks."""
    return config.model_copy(update={"aqlm": AqlmConfig(codebooks=2)})
