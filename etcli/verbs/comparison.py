"""The device's tokens against the reference's."""

from __future__ import annotations

from collections.abc import Sequence

from etcli.manifests.base import Part
from etcli.tokenizer.base import Tokenizer


class Difference(Part):
    """The first position at which two continuations differ; an id is None where that one had ended already."""

    index: int
    device_id: int | None
    device_text: str
    reference_id: int | None
    reference_text: str

    def __str__(self) -> str:
        return (
            f"token {self.index}: the device gave {_one(self.device_id, self.device_text)}, "
            f"the reference {_one(self.reference_id, self.reference_text)}"
        )


def first_difference(device: Sequence[int], reference: Sequence[int], tokenizer: Tokenizer) -> Difference | None:
    """Where the two part, or None where they are equal to the end. Exact: what fp32 is held to."""
    for index in range(max(len(device), len(reference))):
        mine = device[index] if index < len(device) else None
        right = reference[index] if index < len(reference) else None
        if mine != right:
            return Difference(
                index=index,
                device_id=mine,
                device_text=tokenizer.decode([mine]) if mine is not None else "",
                reference_id=right,
                reference_text=tokenizer.decode([right]) if right is not None else "",
            )
    return None


def _one(token: int | None, text: str) -> str:
    return "nothing more" if token is None else f"{token} ({text!r})"
