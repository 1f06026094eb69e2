"""What a model is given turn by turn: the ids of the whole conversation as transformers renders it, and of them only what is new."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import samples
from transformers import AutoTokenizer

from etcli.common.errors import UsageError
from etcli.common.workspace import Workspace
from etcli.manifests.bundle import BundleManifest, Shape
from etcli.run.dialogue import Dialogue
from etcli.tokenizer.opening import open_tokenizer

STRIPPING = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture
def bundle(tmp_path: Path) -> BundleManifest:
    loaded = samples.make_recipe(tmp_path)
    made = samples.make_bundle(loaded, Workspace(tmp_path / "work", "tiny"))
    model = made.model.model_copy(update={"vocab_size": 10_000})
    shapes = (Shape(tokens=4, cache=400), Shape(tokens=1, cache=400))
    return made.model_copy(update={"model": model, "shapes": shapes})


@pytest.mark.parametrize("template", [None, STRIPPING])
@pytest.mark.parametrize("system", [None, "Be brief."])
def test_ids_are_those_of_the_whole_conversation(
    random_llama: Callable[..., Path], bundle: BundleManifest, template: str | None, system: str | None
) -> None:
    folder = random_llama(tokenizer=True)
    peer, tokenizer = AutoTokenizer.from_pretrained(folder), open_tokenizer(folder)
    if template is not None:
        peer.chat_template = template
        tokenizer.chat_template = template  # type: ignore[misc]
    dialogue = Dialogue(tokenizer, bundle, True, system)
    messages = [{"role": "system", "content": system}] if system else []
    held: list[int] = []
    # canonical tokens; the same text in single letters; an answer that the template strips; one that was cut off at once
    for words, answer, spelt in (
        ("What is the capital?", "It is Tokyo.", False),
        ("And of France?", "Paris, the capital.", True),
        ("Sure?", "  Yes.\n", False),
        ("Well.", "", False),
        ("é ü 東京", "東京", False),
    ):
        turn = dialogue.ask(words)
        chat = [*messages, {"role": "user", "content": words}]
        assert list(turn.ids) == peer.apply_chat_template(chat, add_generation_prompt=True)["input_ids"]
        assert turn.ids[: turn.kept] == tuple(held[: turn.kept])
        assert turn.kept == len(held) or turn.ids[turn.kept] != held[turn.kept]
        assert (turn.kept > 0) == bool(held)
        pieces = list(answer) if spelt else [answer]
        said = [token for piece in pieces for token in tokenizer.encode(piece)]
        held = [*turn.ids, *said]
        dialogue.answered(turn, said, answer, len(held))
        if said:
            messages = [*chat, {"role": "assistant", "content": answer}]


def test_only_what_is_new_is_given_where_the_answer_ends_as_the_template_does(
    random_llama: Callable[..., Path], bundle: BundleManifest
) -> None:
    tokenizer = open_tokenizer(random_llama(tokenizer=True))
    tokenizer.chat_template = STRIPPING.replace("<|end|>", "<|im_end|>")  # type: ignore[misc]
    end = tokenizer.encode("<|im_end|>", special=True)
    dialogue = Dialogue(tokenizer, bundle, True, None)
    first = dialogue.ask("What is the capital?")
    said = [*tokenizer.encode("Tokyo."), *end]
    held = len(first.ids) + len(said)
    dialogue.answered(first, said, "Tokyo.", held)
    assert dialogue.ask("And of France?").kept == held


def test_a_model_that_has_forgotten_is_told_everything(
    random_llama: Callable[..., Path], bundle: BundleManifest
) -> None:
    """An answer that was stopped within its prompt leaves the model empty; what was said before is still said."""
    tokenizer = open_tokenizer(random_llama(tokenizer=True))
    for chat in (True, False):
        dialogue = Dialogue(tokenizer, bundle, chat, None)
        turn = dialogue.ask("Hello")
        dialogue.answered(turn, tokenizer.encode("Yes"), "Yes", len(turn.ids) + len(tokenizer.encode("Yes")))
        stopped = dialogue.ask("What?")
        dialogue.answered(stopped, [], "", 0)
        again = dialogue.ask("What?")
        assert (again.ids, again.kept) == (stopped.ids, 0)
        with pytest.raises(UsageError) as caught:
            dialogue.ask("What? " * 400)
        assert caught.value.problems[0].code == "run.conversation_too_long"
