"""Which ids end an answer, and who says so: the union of every file, since any one of them may lack the one that counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

# Tokens that end an answer whatever a folder's configuration forgets to say.
ENDS = (
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "</s>",
)


def end_sources(
    special: Mapping[str, int],
    *,
    plain: Mapping[str, int],
    eos: tuple[str, int] | None,
    configured: Mapping[str, Iterable[int]],
    template: str | None,
) -> dict[int, tuple[str, ...]]:
    """Ids that end an answer, in rising order, each with what names it.

    Args:
        special: the tokenizer's special tokens by text: those of well-known names end an answer.
        plain: added tokens that are not special: those of well-known names end an answer where the chat template writes them.
        eos: text and id of the tokenizer's end token.
        configured: ids by the file that lists them as `eos_token_id`.
        template: the chat template.
    """
    found: dict[int, list[str]] = {}
    if eos is not None:
        found.setdefault(eos[1], []).append(f"the tokenizer's end token {eos[0]}")
    for source, ids in configured.items():
        for index in ids:
            found.setdefault(index, []).append(source)
    for name in ENDS:
        if name in special:
            found.setdefault(special[name], []).append(f"the token {name}")
        elif name in plain and template is not None and name in template:
            found.setdefault(plain[name], []).append(f"{name} in the chat template")
    return {index: tuple(dict.fromkeys(sources)) for index, sources in sorted(found.items())}
