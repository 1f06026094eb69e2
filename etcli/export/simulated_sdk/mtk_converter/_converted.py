"""What the simulated converter hands to the simulated compiler."""

from __future__ import annotations

from dataclasses import dataclass

from etcli.export.simulated_sdk._blob import Constant, Tensor


@dataclass(frozen=True)
class Converted:
    """A network: its user inputs and outputs in the partition's order, the program that computes it, and that program's constants."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    program: bytes
    constants: tuple[Constant, ...]


class SimulatedMlir(str):
    """The text that stands for MLIR: a listing of the network for people to read. The network itself goes along as `converted`.

    Weights of gigabytes would gain nothing from being written out as text and read back.
    """

    __slots__ = ("converted",)

    converted: Converted

    def __new__(cls, text: str, converted: Converted) -> SimulatedMlir:
        """`text` with the network that it lists."""
        made = super().__new__(cls, text)
        made.converted = converted
        return made
