"""The prompt as ids, encoded on this machine, and refused here where the model's cache cannot take it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from etcli.common.errors import CheckpointError, StaleError, UsageError
from etcli.manifests.bundle import BundleManifest
from etcli.tokenizer.base import Tokenizer
from etcli.tokenizer.chat import encode_prompt
from etcli.tokenizer.opening import open_tokenizer

_MOST_CHARACTERS_A_TOKEN = 512
"""The longest tokens of published vocabularies are some 256 spaces. Text beyond that many a token cannot fit, and encoding megabytes takes minutes."""


def open_bundle_tokenizer(bundle: BundleManifest, folder: Path) -> Tokenizer:
    """The tokenizer that the bundle in `folder` carries.

    Raises:
        StaleError: it, or a file that stands beside it, is not there.
        CheckpointError: it cannot be read.
    """
    missing = [path for entry in bundle.tokenizer.files() if not (path := folder / entry.path).is_file()]
    if missing:
        raise StaleError.many(
            StaleError.problem(
                "a file of the bundle is damaged: it is missing",
                code="bundle.damaged",
                hint="Run `etcli export` again.",
                file=path,
            )
            for path in missing
        )
    return open_tokenizer((folder / bundle.tokenizer.path).parent)


def prompt_ids(
    tokenizer: Tokenizer, bundle: BundleManifest, text: str, *, chat: bool, system: str | None
) -> tuple[int, ...]:
    """Ids of `text`, which leave room in the cache for at least one answer token.

    Raises:
        UsageError: there is nothing in the prompt, or it is too long.
        CheckpointError: the tokenizer gives ids that the model does not have, or its chat template fails.
    """
    check_length(text + (system or "" if chat else ""), bundle)
    return check_ids(encode_prompt(tokenizer, text, chat=chat, system=system), bundle)


def check_length(text: str, bundle: BundleManifest) -> None:
    """Refuse words of which the cache could not hold the half, before they are encoded.

    Raises:
        UsageError: they are too long whatever the tokenizer makes of them.
    """
    cache = bundle.shapes[0].cache
    if len(text) > cache * _MOST_CHARACTERS_A_TOKEN:
        raise UsageError(
            f"the prompt has {len(text):,} characters; the cache holds {cache:,} tokens, prompt and answer together",
            code="run.prompt_too_long",
            hint="Shorten it, or export with a larger cache (export.shapes).",
        )


def check_ids(ids: Sequence[int], bundle: BundleManifest) -> tuple[int, ...]:
    """A prompt's ids, which the model has and which leave room in its cache for at least one answer token.

    Raises:
        UsageError, CheckpointError: as `prompt_ids`.
    """
    if not ids:
        raise UsageError(
            "the prompt is empty",
            code="run.prompt_empty",
            hint="Give one with --prompt, or as run.prompt in the recipe.",
        )
    cache = bundle.shapes[0].cache
    if len(ids) >= cache:
        raise UsageError(
            f"the prompt has {len(ids):,} tokens; the cache holds {cache:,}, prompt and answer together",
            code="run.prompt_too_long",
            hint=f"Shorten it to {cache - 1:,} tokens or fewer, or export with a larger cache (export.shapes, as 32t{2 * cache}c).",
        )
    if max(ids) >= bundle.model.vocab_size:
        raise CheckpointError(
            f"the tokenizer gives id {max(ids):,}, the model has {bundle.model.vocab_size:,} ids",
            code="tokenizer.vocabulary",
            hint="Tokenizer and weights are not of the same model.",
        )
    return tuple(ids)
