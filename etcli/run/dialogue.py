"""The words of a conversation as ids: which of them the model's cache holds, and which follow for the user's next words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from etcli.common.errors import UsageError
from etcli.manifests.bundle import BundleManifest
from etcli.run.prompt import check_ids, check_length
from etcli.tokenizer.base import Tokenizer
from etcli.tokenizer.chat import encode_chat


@dataclass(frozen=True)
class Turn:
    """What the model is asked: all ids of the conversation up to its answer, of which it has the first `kept` already."""

    words: str
    ids: tuple[int, ...]
    kept: int


@dataclass
class Dialogue:
    """A conversation so far: its `messages` and its ids, `said`, and the ids that the model has, `held`.

    With `chat` the ids of every turn are those of the whole conversation put through the model's chat template: what the model was given
    and said is compared with that, and where they part (words are not always cut into the same tokens again, an answer may have ended without
    its end token) the cache is only used up to there. Without `chat`, words follow one another as they are.
    """

    tokenizer: Tokenizer
    bundle: BundleManifest
    chat: bool
    system: str | None
    held: list[int] = field(default_factory=list)
    said: list[int] = field(default_factory=list)
    messages: list[dict[str, str]] = field(default_factory=list)

    def ask(self, words: str) -> Turn:
        """The turn that `words` make; nothing is changed.

        Raises:
            UsageError: there are none, or with them the conversation is too long for the cache.
            CheckpointError: the chat template fails.
        """
        check_length(words, self.bundle)
        if self.chat:
            ids = encode_chat(self.tokenizer, [*self._start(), {"role": "user", "content": words}])
        else:
            ids = [*self.said, *self.tokenizer.encode(words, bos=not self.said)]
        kept = min(_common(self.held, ids), max(len(ids) - 1, 0))
        if not self.said:
            check_ids(ids, self.bundle)
        elif not self.chat and len(ids) == len(self.said):
            raise UsageError("there is nothing in the words", code="run.prompt_empty", hint="Say something.")
        elif len(ids) >= self.bundle.shapes[0].cache:
            raise UsageError(
                f"with these words the conversation has {len(ids):,} tokens; the cache holds {self.bundle.shapes[0].cache:,}, answers included",
                code="run.conversation_too_long",
                hint="Begin a new one with /new, say less, or export with a larger cache (export.shapes).",
            )
        else:
            check_ids(ids, self.bundle)
        return Turn(words, tuple(ids), kept)

    def answered(self, turn: Turn, tokens: Sequence[int], text: str, held: int) -> None:
        """Take the answer to `turn`; `held` is how many tokens of the conversation the model says it has now."""
        self.held = [*turn.ids, *tokens][:held]
        if tokens:
            self.said = [*turn.ids, *tokens]
            self.messages = [
                *self._start(),
                {"role": "user", "content": turn.words},
                {"role": "assistant", "content": text},
            ]

    def forget(self) -> None:
        """Begin anew. The model keeps what it has until it is asked something else."""
        self.said, self.messages = [], []

    def _start(self) -> list[dict[str, str]]:
        if self.messages or self.system is None:
            return self.messages
        return [{"role": "system", "content": self.system}]


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many ids both begin with."""
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
