"""How a prompt is divided into calls of static sizes. The native runner follows the same rule; a test holds both together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CALL_ROWS = 5
"""What a call costs on top of its rows, in rows: every call reads all weights, which on a phone's CPU takes about as long as computing
five rows does. So a short rest goes through one-token calls, and a longer one is padded."""


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

    The split has the least `rows + CALL_ROWS * calls`, then the fewest calls, then larger shapes. Calls come by rising size and only the
    first is padded (on the left), as the cache contract wants. With the shapes 32 and 1, a prompt of 37 tokens takes five calls of one
    token and one of 32; one of 39 takes a call of seven tokens and 25 of padding, then one of 32.

    Raises:
        ValueError: an empty prompt, no shape, or a shape below 1.
    """
    sizes = sorted(set(shapes), reverse=True)
    if length < 1 or not sizes or sizes[-1] < 1:
        raise ValueError(f"cannot split {length} tokens into calls of {list(shapes)}")
    # cheapest[n]: cost, calls and one shape of the best split of n tokens
    cheapest = [(0, 0, 0)]
    for wanted in range(1, length + 1):
        best: tuple[int, int, int] | None = None
        for size in sizes:
            cost, calls, _ = cheapest[max(0, wanted - size)]
            candidate = (cost + size + CALL_ROWS, calls + 1, size)
            if best is None or candidate[:2] < best[:2]:
                best = candidate
        assert best is not None  # noqa: S101 - there is at least one size
        cheapest.append(best)
    chosen = []
    rest = length
    while rest > 0:
        chosen.append(cheapest[rest][2])
        rest -= chosen[-1]
    chosen.sort()
    return (Call(chosen[0], -rest), *(Call(size, 0) for size in chosen[1:]))
