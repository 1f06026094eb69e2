"""Tokenizers of Hugging Face folders: transformers' ids, what is added where, streaming of every kind, and refusals by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer

from etcli.common.errors import CheckpointError, Problem
from etcli.tokenizer import rendering, template_header
from etcli.tokenizer.chat import encode_prompt
from etcli.tokenizer.opening import open_tokenizer

TEXT = "The capital of Japan, naïve 🙂 2024\n"


@pytest.fixture
def folder(random_llama: Callable[..., Path], tmp_path: Path) -> Path:
    """A copy of a small model's folder, to be changed."""
    return Path(shutil.copytree(random_llama(tokenizer=True), tmp_path / "model"))


def edit(path: Path, **keys: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def failure(path: Path) -> Problem:
    with pytest.raises(CheckpointError) as caught:
        open_tokenizer(path)
    (problem,) = caught.value.problems
    assert problem.hint or problem.file
    return problem


def test_ids_and_text_are_those_of_transformers(folder: Path) -> None:
    ours, peer = open_tokenizer(folder), AutoTokenizer.from_pretrained(folder)
    assert ours.encode(TEXT, bos=True) == peer.encode(TEXT)
    assert ours.encode(TEXT) == peer.encode(TEXT, add_special_tokens=False)
    assert ours.decode(peer.encode(TEXT)) == TEXT
    assert ours.vocab_size == len(peer)
    assert (ours.bos_id, ours.stop_ids, ours.kind) == (0, (1,), "hf")
    assert ours.special_tokens == {"bos_token": "<|begin|>", "eos_token": "<|end|>"}


def test_the_file_itself_may_be_named(folder: Path) -> None:
    assert open_tokenizer(folder / "tokenizer.json").encode(TEXT) == open_tokenizer(folder).encode(TEXT)


@pytest.mark.known_failure("tokenizer-two-bos")
def test_the_first_token_is_not_doubled(folder: Path) -> None:
    tokenizer = open_tokenizer(folder)
    assert tokenizer.encode("<|begin|>hi", special=True, bos=True) == tokenizer.encode("hi", bos=True)
    assert tokenizer.encode("", bos=True) == [0]


def test_the_configuration_decides_about_the_first_token(folder: Path, tmp_path: Path) -> None:
    edit(folder / "tokenizer_config.json", add_bos_token=False)
    without = open_tokenizer(folder)
    assert without.bos_id is None
    without.save(tmp_path / "without")
    assert open_tokenizer(tmp_path / "without").bos_id is None
    inner = json.loads((folder / "tokenizer.json").read_text())
    inner["post_processor"] = None
    (folder / "tokenizer.json").write_text(json.dumps(inner))
    edit(folder / "tokenizer_config.json", add_bos_token=None)
    assert open_tokenizer(folder).bos_id is None
    edit(folder / "tokenizer_config.json", add_bos_token=True)
    again = open_tokenizer(folder)
    assert again.bos_id == 0
    again.save(tmp_path / "again")
    assert open_tokenizer(tmp_path / "again").bos_id == 0
    assert open_tokenizer(tmp_path / "again").encode(TEXT, bos=True) == again.encode(TEXT, bos=True)


def test_saved_limits_and_padding_do_not_touch_prompts(folder: Path) -> None:
    inner = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    inner.enable_truncation(3)
    inner.enable_padding(length=50)
    inner.save(str(folder / "tokenizer.json"))
    assert open_tokenizer(folder).decode(open_tokenizer(folder).encode(TEXT)) == TEXT


@pytest.mark.known_failure("tokenizer-stop-ids")
def test_end_ids_of_every_file_are_united(folder: Path) -> None:
    edit(folder / "config.json", eos_token_id=[1, 7])
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 9}))
    assert open_tokenizer(folder).stop_ids == (1, 7, 9)


def test_where_the_chat_template_stands(folder: Path) -> None:
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]
    edit(folder / "tokenizer_config.json", chat_template=named)
    (folder / "chat_template.jinja").unlink()
    assert open_tokenizer(folder).chat_template == "yes"
    edit(folder / "tokenizer_config.json", chat_template="one")
    assert open_tokenizer(folder).chat_template == "one"
    (folder / "chat_template.jinja").write_text("file\n")
    assert open_tokenizer(folder).chat_template == "file\n"
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    assert failure(folder).code == "tokenizer.invalid"


def test_a_saved_folder_prompts_alike(folder: Path, tmp_path: Path) -> None:
    tokenizer = open_tokenizer(folder)
    saved = tokenizer.save(tmp_path / "saved")
    path, template = saved.file, saved.chat_template
    assert template is not None
    assert saved.settings is None
    assert path.read_bytes() == (folder / "tokenizer.json").read_bytes()
    assert sorted(file.name for file in (tmp_path / "saved").iterdir()) == [template.name, path.name]
    again = open_tokenizer(tmp_path / "saved")
    for system in (None, "Be brief."):
        expected = encode_prompt(tokenizer, TEXT, chat=True, system=system)
        assert encode_prompt(again, TEXT, chat=True, system=system) == expected
    assert again.chat_template == tokenizer.chat_template
    assert again.stop_ids == tokenizer.stop_ids
    assert again.bos_id == tokenizer.bos_id
    again.save(tmp_path / "twice")
    for name in (path.name, template.name):
        assert (tmp_path / "twice" / name).read_bytes() == (tmp_path / "saved" / name).read_bytes()


@settings(max_examples=200, deadline=None)
@given(
    bos=st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("%{}'\"\\-\n\r")), max_size=12),
    template=st.sampled_from(
        [
            "{{ bos_token }}",
            "  \n{{ bos_token }}x",
            "  {% if bos_token %}\n  y{% endif %}",
            "\n\n {%- if bos_token %}y{% endif %}\n",
            "x",
            "",
        ]
    ),
)
def test_tokens_set_in_a_template_come_back(bos: str, template: str) -> None:
    text = template_header.with_header(template, {"bos_token": bos, "pad_token": "unused"})
    found, rest = template_header.split_header(text)
    assert rest == template
    assert found == ({"bos_token": bos} if "bos_token" in template else {})
    assert rendering.render(text, {}, limit=1000) == rendering.render(template, {"bos_token": bos}, limit=1000)


def sentencepiece_like() -> tokenizers.Tokenizer:
    """A tokenizer as Llama 2's `tokenizer.json` has it: spaces as `▁`, bytes as `<0x41>`."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", "é", "▁the"]
    merges = [("▁", "a")]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    inner = tokenizers.Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)  # noqa: S106
    )
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    inner.add_special_tokens(["<unk>", "<s>", "</s>"])
    return inner


def metaspace_like() -> tokenizers.Tokenizer:
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", "é", "▁the"]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    inner = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[("▁", "a")], byte_fallback=True))
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    inner.decoder = decoders.Sequence(
        [decoders.Metaspace(prepend_scheme="first"), decoders.ByteFallback(), decoders.Fuse()]
    )
    inner.add_special_tokens(["<unk>", "<s>", "</s>"])
    return inner


def byte_level() -> tokenizers.Tokenizer:
    inner = tokenizers.Tokenizer(
        models.BPE(vocab={c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[])
    )
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["<s>"])
    inner.add_tokens(["a token", "é", "<tool>"])
    return inner


@pytest.mark.parametrize("make", [sentencepiece_like, metaspace_like, byte_level])
def test_streamed_text_is_decoded_text(make: Callable[[], tokenizers.Tokenizer], tmp_path: Path) -> None:
    make().save(str(tmp_path / "tokenizer.json"))
    tokenizer = open_tokenizer(tmp_path)

    @settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(ids=st.lists(st.integers(-2, tokenizer.vocab_size + 2), max_size=25))
    def same(ids: list[int]) -> None:
        stream = tokenizer.stream()
        assert "".join(map(stream.push, ids)) + stream.finish() == tokenizer.decode(ids)

    @settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(text=st.text(st.sampled_from("ab é日🙂 \n"), max_size=15))
    def whole(text: str) -> None:
        ids = tokenizer.encode(text)
        stream = tokenizer.stream()
        assert "".join(map(stream.push, ids)) + stream.finish() == tokenizer.decode(ids)

    same()
    whole()


def test_bytes_of_one_character_wait_for_the_last(tmp_path: Path) -> None:
    sentencepiece_like().save(str(tmp_path / "tokenizer.json"))
    tokenizer = open_tokenizer(tmp_path)
    stream = tokenizer.stream()
    pushed = [stream.push(token) for token in tokenizer.encode("a🙂b")]
    assert "".join(pushed) == "a🙂b"
    assert pushed[0] == "a"
    assert "�" not in "".join(pushed)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"model": {"type": "Unknown"}}', '{"model": '])
def test_a_damaged_tokenizer(folder: Path, content: str) -> None:
    (folder / "tokenizer.json").write_text(content)
    problem = failure(folder)
    assert problem.code == "tokenizer.invalid"
    assert problem.file == folder / "tokenizer.json"


def test_a_damaged_configuration(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{\n"a": 1,\n')
    problem = failure(folder)
    assert problem.code == "tokenizer.invalid"
    assert problem.line == 3


def test_nothing_there(tmp_path: Path) -> None:
    assert failure(tmp_path).code == "tokenizer.missing"
    assert failure(tmp_path / "none").code == "tokenizer.missing"


def test_saved_padding_is_no_first_token(folder: Path) -> None:
    inner = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    inner.post_processor = tokenizers.processors.TemplateProcessing(single="$A", special_tokens=[])
    inner.enable_padding(direction="left", pad_id=1, pad_token="<|end|>", length=64)  # noqa: S106
    inner.enable_truncation(4)
    inner.save(str(folder / "tokenizer.json"))
    edit(folder / "tokenizer_config.json", add_bos_token=None)
    tokenizer = open_tokenizer(folder)
    assert tokenizer.bos_id is None
    assert tokenizer.decode(tokenizer.encode(TEXT, bos=True)) == TEXT


def test_what_makes_the_package_panic_is_named(folder: Path) -> None:
    """A panic of Rust code is no `Exception`, and would end as a fault of ours."""
    unknown = {"SpecialToken": {"id": "none", "type_id": 0}}
    processor = {"type": "TemplateProcessing", "single": [unknown], "pair": [], "special_tokens": {}}
    edit(folder / "tokenizer.json", post_processor=processor)
    problem = failure(folder)
    assert problem.code == "tokenizer.invalid"
    assert problem.message.startswith("tokenizer.json ")
