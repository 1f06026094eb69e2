"""Reference decoding in eager PyTorch: the right tokens, found without the runner's protocol.

It shares the layers' arithmetic with the exported chunks (which is held to transformers by the parity tests), and nothing else with
the native runner: the whole prompt goes through in one call without padding, every layer alone, on caches just long enough.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import torch

from etcli.checkpoint.base import Checkpoint
from etcli.common.errors import CheckpointError, UsageError
from etcli.llama.answers import Judgement, ReferenceResult, judgements
from etcli.llama.caches import empty_caches
from etcli.llama.mask import additive_mask
from etcli.llama.passes import Passes
from etcli.llama.rope import rope_table, rotary_input


class ReferenceDecoder:
    """Greedy decoding; the lowest id wins a tie.

    Args:
        checkpoint: whose configuration counts.
        passes: its weights.
        stop_ids: ids that end the answer, by default those of the configuration.
        on_token: called with index (from 0) and id of each generated token.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        passes: Passes,
        *,
        stop_ids: Collection[int] | None = None,
        on_token: Callable[[int, int], None] | None = None,
    ) -> None:
        self._checkpoint = checkpoint
        self._config = checkpoint.config
        self._stop_ids = frozenset(checkpoint.config.stop_ids if stop_ids is None else stop_ids)
        self._passes = passes
        self._on_token = on_token

    @torch.inference_mode()
    def decode(self, prompt_ids: Sequence[int], *, max_new_tokens: int, cache_length: int) -> ReferenceResult:
        """Continue the prompt until a stop id, `max_new_tokens`, or a full cache, looked at in this order after each token.

        The cache is full once `cache_length` positions, those of the prompt and of generated tokens fed back, are used. The token that
        the last of them gave counts; feeding it would be one position too many.

        Raises:
            UsageError: the prompt is empty, longer than the cache, or has ids outside the vocabulary.
            CheckpointError: weights cannot be read, or the logits hold NaN.
        """
        self._check(prompt_ids, cache_length)
        if max_new_tokens < 1:
            raise ValueError("max_new_tokens must be at least 1")
        context = _Context(self._checkpoint, self._passes, min(cache_length, len(prompt_ids) + max_new_tokens - 1))
        tokens: list[int] = []
        logits = context.feed(list(prompt_ids), rows=1)
        while True:
            token = int(logits[-1].argmax())
            if self._on_token is not None:
                self._on_token(len(tokens), token)
            tokens.append(token)
            if token in self._stop_ids:
                return ReferenceResult(tuple(tokens), "stop_id")
            if len(tokens) == max_new_tokens:
                return ReferenceResult(tuple(tokens), "max_new_tokens")
            if context.seen == cache_length:
                return ReferenceResult(tuple(tokens), "cache_full")
            logits = context.feed([token], rows=1)

    @torch.inference_mode()
    def judge(self, prompt_ids: Sequence[int], tokens: Sequence[int], *, cache_length: int) -> tuple[Judgement, ...]:
        """Feed a given continuation and tell, for each of its tokens, how it compares with the reference's choice at its place.

        One pass over prompt and tokens together, so the time is that of a prefill.

        Raises:
            UsageError: as `decode`; also tokens outside the vocabulary, or more of them than the cache has places for.
            CheckpointError: weights cannot be read, or the logits hold NaN.
        """
        self._check([*prompt_ids, *tokens[:-1]], cache_length)
        self._check(prompt_ids, cache_length)
        self._check(tokens, len(tokens))
        fed = [*prompt_ids, *tokens[:-1]]
        logits = _Context(self._checkpoint, self._passes, len(fed)).feed(fed, rows=len(tokens))
        return judgements(tokens, logits)

    @torch.inference_mode()
    def logits(self, ids: Sequence[int], *, rows: int) -> torch.Tensor:
        """Logits `[rows, V]` after each of the last `rows` of `ids`, all fed in one pass.

        Raises:
            UsageError: no ids, or some outside the vocabulary.
            CheckpointError: weights cannot be read, or the logits hold NaN.
        """
        self._check(ids, len(ids))
        return _Context(self._checkpoint, self._passes, len(ids)).feed(list(ids), rows=rows)

    def _check(self, ids: Sequence[int], places: int) -> None:
        if not ids:
            raise UsageError(
                "the prompt has no tokens", code="reference.prompt", hint="Give a prompt that is not empty."
            )
        if len(ids) > places:
            raise UsageError(
                f"{len(ids)} tokens do not fit a cache of {places}",
                code="reference.prompt",
                hint="Shorten the prompt, or export shapes with a longer cache.",
            )
        wrong = [token for token in ids if not 0 <= token < self._config.vocab_size]
        if wrong:
            raise UsageError(
                f"token id {wrong[0]} is outside the vocabulary of {self._config.vocab_size}",
                code="reference.prompt",
                hint="The tokenizer must be the one that came with the weights.",
            )


class _Context:
    """Caches and position of one decoding."""

    def __init__(self, checkpoint: Checkpoint, passes: Passes, cache: int) -> None:
        config = checkpoint.config
        self._path, self._passes, self._cache = checkpoint.path, passes, cache
        self._table = rope_table(config.rope, config.head_dim, cache)
        self._caches = [empty_caches(config, 1, cache) for _ in range(config.num_layers)]
        self.seen = 0

    def feed(self, ids: list[int], *, rows: int) -> torch.Tensor:
        """Logits `[rows, V]` after each of the last `rows` of `ids`, all in one call."""
        hidden = self._passes.embed(ids)
        mask = additive_mask(len(ids), self._cache, self.seen)
        rotary = rotary_input(self._table, self.seen, len(ids))
        for layer, chunk in enumerate(self._passes.chunks()):
            hidden, key, value = chunk.run_layers(hidden, mask, rotary, *self._caches[layer])
            self._caches[layer] = (key, value)
            if chunk.lm_head is not None:
                hidden = chunk.logits(hidden[:, -rows:])
        self.seen += len(ids)
        if hidden.isnan().any():
            raise CheckpointError(
                f"the logits after {self.seen} tokens hold a value that is not a number (NaN)",
                code="checkpoint.not_a_number",
                hint="The weights hold NaN or infinity, or values too large for float32; fetch the checkpoint again.",
                file=self._path,
            )
        return hidden[0]
