"""From a user's words to the ids that the model is asked with.

The chat template is an untrusted program, so it is rendered in a process with limits (`rendering.py`). The user's words are untrusted too: text in them
that spells a special token (`<|im_end|>`) stays words, so a prompt cannot end its own turn and speak as the system.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

from etcli.common import process
from etcli.common.errors import CheckpointError
from etcli.tokenizer.base import Tokenizer
from etcli.tokenizer.text import alternatives

_TEMPLATE_LIMIT = 256 << 10
_TEXT_LIMIT = 1 << 20
_SECONDS = 60.0
_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from etcli.tokenizer.rendering import main; main()"


def encode_prompt(tokenizer: Tokenizer, prompt: str, *, chat: bool, system: str | None) -> list[int]:
    """Ids of `prompt`, as one user turn of the model's chat template, or plain.

    For words without special tokens in them the ids are those of transformers' `apply_chat_template(add_generation_prompt=True)`.

    Args:
        chat: whether to use the chat template; without it the ids are the prompt's own, after the first token where the tokenizer adds one.
        system: the system message of the chat, or None to leave it to the template.

    Raises:
        CheckpointError: `tokenizer.no_chat_template`, `tokenizer.chat_template` (it fails, does not end, grows without bound, or reaches
            for what the sandbox forbids), or `tokenizer.chat_refused` (it does not take these messages).
    """
    return encode_chat(tokenizer, _messages(prompt, system)) if chat else tokenizer.encode(prompt, bos=True)


def encode_chat(tokenizer: Tokenizer, conversation: Sequence[Mapping[str, str]]) -> list[int]:
    """Ids of a whole conversation up to the place where the model goes on: messages with `role` (`system`, `user`, `assistant`) and `content`.

    For contents without special tokens in them the ids are those of transformers' `apply_chat_template(add_generation_prompt=True)`.

    Raises:
        CheckpointError: as `encode_prompt`.
    """
    template, messages = _template(tokenizer), [dict(message) for message in conversation]
    controls = alternatives(tokenizer.control_texts)
    if controls is None or not any(controls.search(message["content"]) for message in messages):
        return tokenizer.encode(_render(tokenizer, template, messages), special=True)
    opening, closing = _marks(template + "".join(message["content"] for message in messages))
    for message in messages:
        message["content"] = controls.sub(lambda match: f"{opening}{match[0]}{closing}", message["content"])
    text = _render(tokenizer, template, messages)
    return [
        token
        for part, special in _parts(text, controls, opening, closing)
        for token in tokenizer.encode(part, special=special)
    ]


def prompt_as_text(tokenizer: Tokenizer, prompt: str, *, chat: bool, system: str | None) -> str:
    """The text of `prompt` as one user turn of the model's chat template, or `prompt` itself: for programs that are given text.

    Unlike `encode_prompt`, this cannot say that a special token spelled by the user is words: compare what a program makes of it.

    Raises:
        CheckpointError: as `encode_prompt`.
    """
    return _render(tokenizer, _template(tokenizer), _messages(prompt, system)) if chat else prompt


def _template(tokenizer: Tokenizer) -> str:
    if tokenizer.chat_template is None:
        raise CheckpointError(
            "this model has no chat template",
            code="tokenizer.no_chat_template",
            hint="It is a base model, or its template was left out: put its chat_template.jinja beside the tokenizer, "
            "or use --no-chat (run.chat: false in the recipe).",
        )
    return tokenizer.chat_template


def _messages(prompt: str, system: str | None) -> list[dict[str, str]]:
    user = {"role": "user", "content": prompt}
    return [user] if system is None else [{"role": "system", "content": system}, user]


def _parts(text: str, controls: re.Pattern[str], opening: str, closing: str) -> Iterator[tuple[str, bool]]:
    """The template's own special tokens (True) and the text between them (False), in which marked special tokens are words."""
    plain = ""
    for index, piece in enumerate(re.split(f"{opening}([^{opening}{closing}]*){closing}", text)):
        if opening in piece or closing in piece:
            raise CheckpointError(
                "the prompt spells a special token of this model, and its chat template takes the text apart there",
                code="tokenizer.chat_refused",
                hint="Write the special token in another way, or use --no-chat.",
            )
        if index % 2:
            plain += piece
            continue
        at = 0
        for match in controls.finditer(piece):
            if plain + piece[at : match.start()]:
                yield plain + piece[at : match.start()], False
            yield match[0], True
            plain, at = "", match.end()
        plain += piece[at:]
    if plain:
        yield plain, False


def _marks(text: str) -> tuple[str, str]:
    """Two private-use characters that `text` does not hold."""
    held = set(text)
    free = (char for char in map(chr, range(0xF0000, 0xFFFFE)) if char not in held)
    return next(free), next(free)


def _render(tokenizer: Tokenizer, template: str, messages: list[dict[str, str]]) -> str:
    if len(template) > _TEMPLATE_LIMIT:
        raise _wrong(f"has {len(template)} characters, more than any true one")
    variables = {
        **tokenizer.special_tokens,
        "messages": messages,
        "tools": None,
        "documents": None,
        "add_generation_prompt": True,
    }
    limit = _TEXT_LIMIT + 4 * sum(len(message["content"]) for message in messages)
    request = json.dumps({"template": template, "variables": variables, "limit": limit})
    try:
        done = process.run([sys.executable, "-I", "-c", _START, json.dumps(sys.path)], stdin=request, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise _wrong(f"was still running after {_SECONDS:.0f} s") from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = {}
    if "text" in answer:
        return str(answer["text"])
    message = answer.get("message", "")
    if answer.get("error") == "refused":
        with_system = messages[0]["role"] == "system"
        hint = "Leave the system message out (run.system), or use --no-chat." if with_system else "Use --no-chat."
        raise CheckpointError(
            f"the chat template refuses these messages: {message}", code="tokenizer.chat_refused", hint=hint
        )
    if done.code < 0 and not answer:
        from etcli.tokenizer.rendering import CPU_SECONDS  # late: its Jinja is for the other process

        raise _wrong(f"took more than {CPU_SECONDS} s or too much memory ({process.describe_exit(done.code)})")
    reasons = {
        "long": "writes a text without end",
        "memory": "takes too much memory",
        "security": f"reaches for what it may not have: {message}",
        "syntax": f"cannot be read as Jinja, {message}",
    }
    raise _wrong(reasons.get(str(answer.get("error")), f"fails: {message or done.stderr.strip()[-300:]}"))


def _wrong(what: str) -> CheckpointError:
    return CheckpointError(
        f"the model's chat template {what}",
        code="tokenizer.chat_template",
        hint="Use --no-chat, or a checkpoint with a sound chat_template.",
    )
