"""ExecuTorch's own readers take what is prepared for them, and give the ids that are foretold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pytorch_tokenizers import CppHFTokenizer, CppLlama2cTokenizer, CppTiktoken
from tokenizer_kinds import LLAMA3_TEMPLATE, TEXTS, bpe_folder, meta_folder, spm_folder

from etcli.common.errors import CheckpointError
from etcli.tokenizer.chat import encode_prompt, prompt_as_text
from etcli.tokenizer.opening import open_tokenizer
from etcli.tokenizer.upstream import CONFIG, UpstreamTokenizer, upstream_tokenizer

# Upstream's list for Llama 3 (examples/models/llama/tokenizer/llama_tiktoken.cpp): 11 names, the rest reserved.
SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>"]
SPECIAL += [
    "<|finetune_right_pad_id|>",
    "<|step_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|python_tag|>",
]
SPECIAL += [f"<|reserved_special_token_{number}|>" for number in range(2, 2 + 256 - len(SPECIAL))]


def prepared(folder: Path) -> tuple[Any, UpstreamTokenizer]:
    tokenizer = open_tokenizer(folder)
    file = next(path for path in (folder / "tokenizer.json", folder / "tokenizer.model") if path.exists())
    return tokenizer, upstream_tokenizer(tokenizer, file, tokenizer.stop_ids)


def reader(made: UpstreamTokenizer, folder: Path) -> Any:
    """The reader as the runner makes it, with the files put beside the tokenizer."""
    for name, data in made.made.items():
        (folder / name).write_bytes(data)
    kinds = {"bpe": CppLlama2cTokenizer, "hf": CppHFTokenizer, "tiktoken": lambda: CppTiktoken(SPECIAL, 0, 1)}
    loaded = kinds[made.type]()
    loaded.load(str(folder / made.path))
    return loaded


@pytest.mark.parametrize("kind", ["spm", "ranks", "hf", "hf with a first token"])
@pytest.mark.known_failure("mtk-tokenizer-of-another-kind")
def test_the_readers_ids_are_foretold(kind: str, tmp_path: Path) -> None:
    makers = {
        "spm": lambda: spm_folder(tmp_path),
        "ranks": lambda: meta_folder(tmp_path),
        "hf": lambda: bpe_folder(tmp_path),
        "hf with a first token": lambda: bpe_folder(tmp_path, bos="<|endoftext|>"),
    }
    tokenizer, made = prepared(makers[kind]())
    loaded = reader(made, tmp_path)
    assert loaded.is_loaded()
    assert loaded.eos_tok() == made.eos_id
    assert loaded.eos_tok() in tokenizer.stop_ids
    assert loaded.vocab_size() == made.size
    for text in (*TEXTS[3:6], "naïve façade, 日本語", "a<|im_end|>b<|eot_id|>c</s>"):
        assert loaded.encode(text, 1, 0) == made.encode(tokenizer, text), text


@pytest.mark.known_failure("mtk-one-end-id")
def test_the_end_id_is_the_one_that_the_template_writes_last(tmp_path: Path) -> None:
    folder = bpe_folder(tmp_path)
    (folder / "tokenizer_config.json").unlink()
    tokenizer = open_tokenizer(folder)
    made = upstream_tokenizer(tokenizer, folder / "tokenizer.json", (0, 2))
    assert made.made == {CONFIG: b'{\n "eos_token": "<|im_end|>"\n}\n'}
    assert reader(made, folder).eos_tok() == 2
    assert upstream_tokenizer(tokenizer, folder / "tokenizer.json", (0,)).eos_id == 0


def test_without_its_neighbour_the_reader_guesses(tmp_path: Path) -> None:
    """Why the file is made: the reader takes any token with "end" in its text where there is one, and else none."""
    folder = bpe_folder(tmp_path)
    loaded = CppHFTokenizer()
    loaded.load(str(folder / "tokenizer.json"))
    guessed = loaded.eos_tok()
    made = upstream_tokenizer(open_tokenizer(folder), folder / "tokenizer.json", (0, 2))
    assert (made.path, made.eos_id, reader(made, folder).eos_tok()) == (".", 2, 2)
    assert guessed != 2


def test_what_no_reader_takes(tmp_path: Path) -> None:
    folder = bpe_folder(tmp_path / "a")
    tokenizer = open_tokenizer(folder)
    with pytest.raises(CheckpointError, match="none of the model's stop ids") as caught:
        upstream_tokenizer(tokenizer, folder / "tokenizer.json", (50,))
    assert caught.value.problems[0].code == "tokenizer.upstream"
    document = json.loads((folder / "tokenizer.json").read_text())
    for model, words in (
        ({"type": "Unigram"}, "it is a Unigram model"),
        ("x", "does not say"),
        ({}, r"it is a \? model"),
    ):
        (folder / "tokenizer.json").write_text(json.dumps(document | {"model": model}))
        with pytest.raises(CheckpointError, match=words):
            upstream_tokenizer(tokenizer, folder / "tokenizer.json", (2,))


class WithFirstToken:
    """A tokenizer that puts another id first than its own."""

    def __init__(self, tokenizer: Any, bos_id: int) -> None:
        self._tokenizer, self.bos_id = tokenizer, bos_id

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def test_a_first_token_that_is_letters_is_refused(tmp_path: Path) -> None:
    tokenizer = open_tokenizer(bpe_folder(tmp_path))
    plain = tokenizer.encode("e")[0]
    with pytest.raises(CheckpointError, match=rf"its first token, {plain}, is no special token") as caught:
        upstream_tokenizer(WithFirstToken(tokenizer, plain), tmp_path / "tokenizer.json", tokenizer.stop_ids)  # type: ignore[arg-type]
    assert caught.value.problems[0].code == "tokenizer.upstream"


def test_llama_3_ends_at_its_first_end_alone(tmp_path: Path) -> None:
    folder = meta_folder(tmp_path)
    (folder / "chat_template.jinja").write_text(LLAMA3_TEMPLATE)
    tokenizer, made = prepared(folder)
    assert made.eos_id == tokenizer.encode("<|end_of_text|>", special=True)[0]
    assert tokenizer.encode("<|eot_id|>", special=True)[0] in tokenizer.stop_ids
    assert (made.type, made.path, dict(made.made)) == ("tiktoken", "tokenizer.model", {})


def test_the_default_models_chat(default_model: Path, tmp_path: Path) -> None:
    """Digits cut apart, no first token, a template that begins with a special one: the reader makes the same ids of the text."""
    open_tokenizer(default_model).save(tmp_path)
    tokenizer, made = prepared(tmp_path)
    loaded = reader(made, tmp_path)
    assert (made.bos_id, made.eos_id, loaded.eos_tok()) == (None, 2, 2)
    text = prompt_as_text(tokenizer, "What is 12 + 345?", chat=True, system=None)
    assert loaded.encode(text, 1, 0) == made.encode(tokenizer, text)
    assert made.encode(tokenizer, text) == encode_prompt(tokenizer, "What is 12 + 345?", chat=True, system=None)
