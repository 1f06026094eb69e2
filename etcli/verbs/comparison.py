"""The device's tokens against the reference's: equal to the last in fp32, within a gap in the other precisions.

A quantised network is computed with roundings that depend on the CPU, so two tokens whose logits nearly tie may change places, and all
that follows is then another text. So the reference, equally quantised, is fed the device's own tokens, and each must be nearly as good
as the reference's choice at its place, and half of them that choice itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from etcli.common.errors import Problem, RunError
from etcli.export.reference import Judgement, judge_tokens, run_reference
from etcli.export.settings import precision_settings
from etcli.manifests.base import Part
from etcli.manifests.run_record import RunRecord
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.tokenizer.base import Tokenizer

GAPS: Mapping[str, float] = {
    "fp32": 0.0,
    "fp16": 0.001,
    "8da4w": 1.5,
    "8da8w": 1.5,
    "aqlm": 0.001,
    "A16W16": 3.0,
    "A16W8": 3.0,
    "A16W4": 3.0,
    "A8W8": 17.0,
    "A8W4": 17.0,
}
"""By precision, how far the logit of a device's token may lie below the reference's best at its place. No key or flag changes these.

Measured on the default model, SmolLM2 135M (benchmarks/gaps.py). 8da4w with its head of 8da8w: over 200 positions of the native runner on x86-64
the largest gap is 0.59, and 186 tokens are the reference's own choice; two runs of the reference itself, on embeddings that differ by 1e-7,
choose otherwise at one position in ten, up to 0.90 below the best over 900 positions. In fp16, whose products are those
of float32, all 200 tokens are the reference's own choice, and so they are in aqlm with a head of fp32, whose kernels compute to float32's
precision too; its weights are those that `model.quantize: aqlm` makes of the same model.

The NPU's precisions were measured on the simulated one, smollm2-135m-neuron-sim, in x86-64. Activations are rounded once for a whole tensor, and this
model's residual stream reaches 24,900 in the middle: a step is 0.76 with 16 bits, and 105 with 8.
A8W8, 200 positions: the largest gap is 8.3, and 190 tokens are the reference's own choice. Nothing of this model is left then, its text is of blanks,
and a rounding that falls otherwise moves logits by several units: this row finds a network of another kind, no more. The export's comparison
of each method with the quantised graph is the narrower one.
A16W8, 50 positions: 1.1, and 38; before caches had the range of what joins them, 0.86 and 178 over 194 positions of four texts.
A16W4, 200 positions, before that too: 1.41, and 184.
A16W16 and A8W4 have not been measured: they take the rows of A16W8 and A8W8.
"""

JUDGED_TOGETHER = 8
"""From how many tokens on half of them must be the reference's own choice, too: a wide gap alone would let nearly any network of few words pass.

Of the right networks measured above at least three in four were, of one whose matrices stand elsewhere none.
"""


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


class Comparison(Part):
    """What the comparison found.

    Attributes:
        reference_tokens: what the reference chose, in precisions other than fp32 after the device's own tokens.
        matches: whether the device's tokens are as they must be.
        exact_matches: how many of them are what the reference chose at the place.
        largest_gap: the furthest that one's logit lies below the reference's best; None in fp32, where tokens are equal or not.
        allowed_gap: how far it may.
        exact_needed: how many tokens must be what the reference chose.
        first_difference: the first token that is not as it must be.
    """

    reference_tokens: tuple[int, ...]
    matches: bool
    exact_matches: int
    largest_gap: float | None
    allowed_gap: float
    exact_needed: int
    first_difference: Difference | None


class Compared(Protocol):
    """What `agreement` looks at: a `Comparison`, or a result that has its fields."""

    @property
    def exact_matches(self) -> int: ...

    @property
    def largest_gap(self) -> float | None: ...

    @property
    def allowed_gap(self) -> float: ...


def agreement(found: Compared, count: int) -> str:
    """How `count` tokens compare with the reference's, where they are as they must be."""
    if found.largest_gap is None:
        return f"all {count} tokens equal the reference's"
    if found.exact_matches == count:
        return f"all {count} tokens are the reference's own choice"
    return (
        f"{found.exact_matches} of {count} tokens are the reference's own choice, the others at most "
        f"{found.largest_gap:.2g} below it (allowed: {found.allowed_gap:g})"
    )


def allowed_gap(loaded: LoadedRecipe) -> float:
    """The row of `GAPS` for a recipe: the larger one of its network's and its output layer's."""
    settings = precision_settings(loaded.recipe)
    return max(GAPS[settings.precision], GAPS[settings.head])


def compare(
    loaded: LoadedRecipe,
    record: RunRecord,
    tokenizer: Tokenizer,
    *,
    cache_length: int,
    stop_ids: Sequence[int],
    console: Console,
    graphs: Sequence[Path] = (),
) -> Comparison:
    """Run the reference on the prompt of `record` and compare.

    Args:
        graphs: the bundle's quantised graphs, in the order of its chunks.

    Raises:
        RunError: `smoke.ending`, the device went on where it had to stop, or stopped where it had to go on.
        EtcliError: as the reference.
    """
    allowed = allowed_gap(loaded)
    if allowed == 0:
        reference = run_reference(
            loaded,
            prompt_ids=record.prompt_ids,
            max_new_tokens=loaded.recipe.run.max_new_tokens,
            cache_length=cache_length,
            console=console,
        )
        difference = first_difference(record.tokens, reference.tokens, tokenizer)
        equal = sum(a == b for a, b in zip(record.tokens, reference.tokens, strict=False))
        return Comparison(
            reference_tokens=tuple(reference.tokens),
            matches=difference is None,
            exact_matches=equal,
            largest_gap=None,
            allowed_gap=allowed,
            exact_needed=len(reference.tokens),
            first_difference=difference,
        )
    places = cache_length - len(record.prompt_ids) + 1
    problem = ending_problem(record.tokens, stop_ids, min(places, loaded.recipe.run.max_new_tokens))
    if problem is not None:
        raise RunError.many([problem])
    judged = judge_tokens(
        loaded,
        prompt_ids=record.prompt_ids,
        tokens=record.tokens,
        cache_length=cache_length,
        console=console,
        graphs=graphs,
    )
    return judged_comparison(judged, allowed, tokenizer)


def judged_comparison(judged: Sequence[Judgement], allowed: float, tokenizer: Tokenizer) -> Comparison:
    """What the reference's opinion of each of the device's tokens comes to."""
    beyond = next((index for index, item in enumerate(judged) if not item.gap <= allowed), None)  # NaN is beyond, too
    exact = sum(item.token == item.best for item in judged)
    needed = (len(judged) + 1) // 2 if len(judged) >= JUDGED_TOGETHER else 0
    if beyond is None and exact < needed:
        beyond = next(index for index, item in enumerate(judged) if item.token != item.best)
    return Comparison(
        reference_tokens=tuple(item.best for item in judged),
        matches=beyond is None,
        exact_matches=exact,
        largest_gap=max((item.gap for item in judged), default=0.0),
        allowed_gap=allowed,
        exact_needed=needed,
        first_difference=None
        if beyond is None
        else _difference(beyond, judged[beyond].token, judged[beyond].best, tokenizer),
    )


def ending_problem(tokens: Sequence[int], stop_ids: Sequence[int], most: int) -> Problem | None:
    """What is wrong with where an answer of at most `most` tokens ends, by the tokens themselves."""
    end = next((index + 1 for index, token in enumerate(tokens) if token in stop_ids), most)
    if len(tokens) == min(end, most):
        return None
    how = "went on after" if len(tokens) > end else "stopped before"
    return RunError.problem(
        f"the device {how} token {min(end, most)}, where the answer ends: it gave {len(tokens)}",
        code="smoke.ending",
        hint="Build and deploy again (`etcli build --clean`, then `etcli deploy`); if it stays, please report it with the recipe.",
    )


def first_difference(device: Sequence[int], reference: Sequence[int], tokenizer: Tokenizer) -> Difference | None:
    """Where the two part, or None where they are equal to the end. Exact: what fp32 is held to."""
    for index in range(max(len(device), len(reference))):
        mine = device[index] if index < len(device) else None
        right = reference[index] if index < len(reference) else None
        if mine != right:
            return _difference(index, mine, right, tokenizer)
    return None


def _difference(index: int, mine: int | None, right: int | None, tokenizer: Tokenizer) -> Difference:
    return Difference(
        index=index,
        device_id=mine,
        device_text=tokenizer.decode([mine]) if mine is not None else "",
        reference_id=right,
        reference_text=tokenizer.decode([right]) if right is not None else "",
    )


def _one(token: int | None, text: str) -> str:
    return "nothing more" if token is None else f"{token} ({text!r})"
