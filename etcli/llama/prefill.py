"""How a prompt is divided into calls of static sizes. The native runner follows the same rule; a test holds both together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Call:
    """One prefill call: `tokens` rows (a method's T), of which the first `padding` are padding."""

    tokens: int
    padding: int

    @property
    def real(self) -> int:
        """Prompt tokens in the call."""
        return self.tokens - self.padding


def split_prompt(length: int, shapes: Sequence[int]) -> tuple[Call, ...]:
    """The calls that take a prompt of `length` tokens through methods of `shapes` tokens a call.

    The split computes as few rows as possible, then takes as few calls as possible, then prefers larger shapes. Calls come by rising
    size and only the first is padded (on the left), as the cache contract wants; with one shape T that is a first call of
    `length mod T` tokens, then full calls.

    Raises:
        ValueError: an empty prompt, no shape, or a shape below 1.
    """
    sizes = sorted(set(shapes), reverse=True)
    if length < 1 or not sizes or sizes[-1] < 1:
        raise ValueError(f"cannot split {length} tokens into calls of {list(shapes)}")
    # cheapest[n]: rows, calls and first shape of the best split of n tokens
    cheapest = [(0, 0, 0)]
    for wanted in range(1, length + 1):
        best: tuple[int, int, int] | None = None
        for size in sizes:
            rows, calls, _ = cheapest[max(0, wanted - size)]
            if best is None or (rows + size, calls + 1) < best[:2]:
                best = (rows + size, calls + 1, size)
        assert best is not None  # noqa: S101 - there is at least one size
        cheapest.append(best)
    chosen = []
    rest = length
    while rest > 0:
        chosen.append(cheapest[rest][2])
        rest -= chosen[-1]
    chosen.sort()
    return (Call(chosen[0], -rest), *(Call(size, 0) for size in chosen[1:]))
