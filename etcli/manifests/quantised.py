"""What stands in a checkpoint's folder that etcli has quantised itself."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import pydantic

from etcli.manifests.base import Manifest

DEMONSTRATION = (
    "weights of demonstration quality, good for trying the kernels; for real use take a published AQLM checkpoint"
)
"""What is said wherever weights that `model.quantize` made are shown."""

Quality = Literal["demonstration"]
"""What weights are good for, where it is less than usual."""


def quality_remarks(quality: Quality | None) -> tuple[str, ...]:
    """What is to be said of weights of `quality`: nothing of usual ones."""
    return () if quality is None else (DEMONSTRATION,)


class QuantisedRecord(Manifest):
    """How the folder came to be: `key` is over all that decides its bytes, `files` are the sizes in bytes of the others in it, by name."""

    FILE: ClassVar[str] = "etcli-quantised.json"

    quality: Quality = "demonstration"
    key: str
    etcli: str
    torch: str
    settings: dict[str, Any]
    calibration_tokens: int
    errors: dict[str, float] = pydantic.Field(
        description="of each linear's products with the calibration's inputs: mean square of the difference over that of the products"
    )
    files: dict[str, int]
