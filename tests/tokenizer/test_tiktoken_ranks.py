"""Llama 3's `tokenizer.model`: tiktoken's own ids, Llama 3's special tokens after the ranks, damaged and foreign files refused."""

from __future__ import annotations

import base64
import json
import socket
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tiktoken.load import load_tiktoken_bpe
from tokenizer_kinds import CORPUS, LLAMA3_TEMPLATE, TEXTS, added, meta_folder, rank_file

from etcli.common.errors import CheckpointError, Problem
from etcli.tokenizer.base import Tokenizer
from etcli.tokenizer.chat import encode_prompt
from etcli.tokenizer.opening import open_tokenizer

COUNT = 340
# Meta's published expression for Llama 3.
PATTERN = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
BOS, EOS, START, END, EOM, EOT = (COUNT + n for n in (0, 1, 6, 7, 8, 9))


def failure(path: Path) -> Problem:
    with pytest.raises(CheckpointError) as caught:
        open_tokenizer(path)
    (problem,) = caught.value.problems
    assert problem.hint
    return problem


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return meta_folder(tmp_path_factory.mktemp("meta"), vocab_size=COUNT + 256)


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return open_tokenizer(folder)


@pytest.fixture(scope="module")
def peer(folder: Path) -> tiktoken.Encoding:
    ranks = load_tiktoken_bpe(str(folder / "tokenizer.model"))
    special = {"<|begin_of_text|>": BOS, "<|end_of_text|>": EOS, "<|eot_id|>": EOT, "<|eom_id|>": EOM}
    special |= {"<|start_header_id|>": START, "<|end_header_id|>": END}
    return tiktoken.Encoding("peer", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special)


@pytest.mark.known_failure("tokenizer-tiktoken-or-sentencepiece")
def test_what_is_known_of_it(tokenizer: Tokenizer) -> None:
    assert (tokenizer.kind, tokenizer.vocab_size, tokenizer.bos_id) == ("tiktoken", COUNT + 256, BOS)
    assert tokenizer.special_tokens == {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
    assert len(tokenizer.control_texts) == 256


@pytest.mark.known_failure("tokenizer-stop-ids")
def test_an_answer_ends_at_the_turns_end_too(tokenizer: Tokenizer) -> None:
    assert tokenizer.stop_ids == (EOS, EOM, EOT)
    assert tokenizer.stop_sources[EOT] == ("the token <|eot_id|>",)


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("the 'LL12 \n")), max_size=30))
def test_ids_and_text_are_tiktokens(tokenizer: Tokenizer, peer: tiktoken.Encoding, text: str) -> None:
    expected = peer.encode(text, disallowed_special=())
    assert tokenizer.encode(text) == expected
    assert tokenizer.encode(text, bos=True) == [BOS, *expected]
    assert tokenizer.decode(expected) == text


def test_special_tokens_stand_for_themselves_when_asked(tokenizer: Tokenizer, peer: tiktoken.Encoding) -> None:
    text = "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>"
    assert tokenizer.encode(text, special=True) == peer.encode(text, allowed_special="all")
    assert tokenizer.encode(text, special=True, bos=True).count(BOS) == 1
    assert not {BOS, START, END, EOT} & set(tokenizer.encode(text))
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode(text, special=True)) == "user\n\nhi"


def test_ids_are_executorchs_own(tokenizer: Tokenizer, folder: Path) -> None:
    from pytorch_tokenizers import TiktokenTokenizer

    theirs = TiktokenTokenizer(str(folder / "tokenizer.model"))
    for text in (*TEXTS[1:], *CORPUS[:4], "<|eot_id|>x"):
        expected = theirs.encode(text, bos=True, eos=False, allowed_special="all")
        assert tokenizer.encode(text, special=True, bos=True) == expected


@settings(max_examples=300, deadline=None)
@given(ids=st.lists(st.integers(-2, COUNT + 260), max_size=25))
def test_streamed_text_is_decoded_text(tokenizer: Tokenizer, ids: list[int]) -> None:
    stream = tokenizer.stream()
    assert "".join(map(stream.push, ids)) + stream.finish() == tokenizer.decode(ids)


@pytest.mark.parametrize("char", ["a", " ", "\n"])
def test_a_long_run_of_one_character(tokenizer: Tokenizer, char: str) -> None:
    # tiktoken's engine alone fails on a million spaces.
    text = char * 1_000_000
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("text", ["\ud800", "a\udcffb"])
def test_broken_input_is_encoded(tokenizer: Tokenizer, text: str) -> None:
    assert "�" in tokenizer.decode(tokenizer.encode(text))


def test_nothing_is_fetched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert open_tokenizer(folder).encode("hi")


@pytest.mark.known_failure("tokenizer-two-bos")
def test_a_template_that_begins_the_text_itself_gives_one_first_token(folder: Path, tmp_path: Path) -> None:
    copy = meta_folder(tmp_path / "model")
    (copy / "chat_template.jinja").write_text(LLAMA3_TEMPLATE)
    ids = encode_prompt(open_tokenizer(copy), "hi <|eot_id|>", chat=True, system="Be brief.")
    assert ids[0] == BOS
    assert ids.count(BOS) == 1
    assert ids.count(EOT) == 2
    assert ids.count(START) == 3


def test_a_hugging_face_configuration_names_the_special_tokens(tmp_path: Path) -> None:
    names = {str(BOS): added("<|begin_of_text|>"), str(EOS): added("<|end_of_text|>"), str(EOT): added("<|eot_id|>")}
    names[str(COUNT + 256)] = added("<|im_end|>")
    folder = meta_folder(tmp_path / "model")
    config = {"added_tokens_decoder": names, "bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": LLAMA3_TEMPLATE}))
    (folder / "config.json").write_text(json.dumps({"eos_token_id": [EOS, EOT], "vocab_size": COUNT + 300}))
    tokenizer = open_tokenizer(folder)
    assert tokenizer.vocab_size == COUNT + 257
    assert tokenizer.stop_ids == (EOS, EOM, EOT, COUNT + 256)
    assert tokenizer.stop_sources[EOT] == (
        "the tokenizer's end token <|eot_id|>",
        "config.json",
        "the token <|eot_id|>",
    )
    assert tokenizer.chat_template == LLAMA3_TEMPLATE
    assert tokenizer.encode("<|im_end|>", special=True) == [COUNT + 256]


def test_a_bundle_holds_the_file_as_it_is_and_prompts_alike(tmp_path: Path) -> None:
    folder = meta_folder(tmp_path / "model")
    (folder / "chat_template.jinja").write_text(LLAMA3_TEMPLATE)
    (folder / "generation_config.json").write_text('{"eos_token_id": 5}')
    tokenizer = open_tokenizer(folder)
    saved = tokenizer.save(tmp_path / "one")
    assert saved.file.name == "tokenizer.model"
    assert saved.file.read_bytes() == rank_file()
    again = open_tokenizer(tmp_path / "one")
    for name in ("kind", "vocab_size", "bos_id", "stop_ids", "special_tokens", "chat_template", "control_texts"):
        assert getattr(again, name) == getattr(tokenizer, name), name
    for text in (*TEXTS, *CORPUS[:4], "<|eot_id|>"):
        for special in (False, True):
            assert again.encode(text, special=special, bos=True) == tokenizer.encode(text, special=special, bos=True)
    assert encode_prompt(again, "hi", chat=True, system=None) == encode_prompt(tokenizer, "hi", chat=True, system=None)
    second = again.save(tmp_path / "two")
    for first, other in zip(vars(saved).values(), vars(second).values(), strict=True):
        assert first.read_bytes() == other.read_bytes()


LINES = rank_file().split(b"\n")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (rank_file()[:-4], "line 340"),
        (b"\n".join(LINES[:200]), "56 of the 256 bytes"),
        (b"\n".join([*LINES[:300], *LINES[301:]]), "339 ranks, which are not the numbers"),
        (b"\n".join([*LINES[:300], LINES[0], *LINES[300:]]), "line 301"),
        (b"\n".join([*LINES[:300], b"\xff\xfe 300", *LINES[301:]]), "line 301"),
        (b"\n".join([*LINES[:300], b"YQ== 300 1", *LINES[301:]]), "line 301"),
        (b"\n".join([*LINES[:300], b"YQ== " + b"9" * 5000, *LINES[301:]]), "line 301"),
        (b"\n".join([*LINES[:300], b"YWFh" * 2000 + b" 300", *LINES[301:]]), "line 301"),
    ],
    ids=["cut-in-a-line", "cut-in-the-bytes", "gap", "twice", "not-base64", "three-words", "number", "long-token"],
)
@pytest.mark.known_failure("tokenizer-damaged")
def test_damaged_files_are_refused(tmp_path: Path, data: bytes, words: str) -> None:
    problem = failure(meta_folder(tmp_path / "model", ranks=data))
    assert problem.code == "tokenizer.invalid"
    assert words in problem.message
    assert problem.line is None or f"line {problem.line}" in words


@pytest.mark.known_failure("tokenizer-damaged")
def test_a_file_that_was_cut_between_two_lines_is_told_by_the_models_rows(tmp_path: Path) -> None:
    problem = failure(meta_folder(tmp_path / "model", vocab_size=COUNT + 256 + 256))
    assert "has 340 ranks, the model's 852 rows ask for 596" in problem.message


def test_ranks_of_other_families_are_named(tmp_path: Path) -> None:
    tokens = [bytes([a]) for a in range(256)] + [bytes([a, b]) for a in range(256) for b in range(256)]
    lines = [base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens[:50256])]
    problem = failure(meta_folder(tmp_path / "gpt2", ranks=b"".join(lines)))
    assert problem.code == "tokenizer.unsupported"
    assert "GPT-2" in problem.message


@pytest.mark.parametrize("names", [{"339": added("<|begin_of_text|>")}, {str(COUNT): added("<|endoftext|>")}], ids=str)
def test_a_configuration_of_another_vocabulary_is_refused(tmp_path: Path, names: dict[str, object]) -> None:
    folder = meta_folder(tmp_path / "model")
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": names}))
    problem = failure(folder)
    assert problem.code == "tokenizer.unsupported"
    assert "340 ranks" in problem.message


@pytest.mark.known_failure("tokenizer-absurd-size")
def test_an_absurdly_large_file_is_not_read(tmp_path: Path) -> None:
    folder = meta_folder(tmp_path / "model")
    with (folder / "tokenizer.model").open("r+b") as file:
        file.truncate(40 << 20)
    assert "bytes that a tokenizer may have" in failure(folder).message
