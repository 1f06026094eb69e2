"""llama2.c's binary: ExecuTorch's own reader gives the model's ids, and a model for which it would not is refused."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytorch_tokenizers import CppLlama2cTokenizer, Llama2cTokenizer
from sentencepiece import sentencepiece_model_pb2
from tokenizer_kinds import CORPUS, TEXTS, added, spm_folder, spm_model

from etcli.common.errors import CheckpointError, ExitCode
from etcli.tokenizer.llama2c import llama2c_bytes
from etcli.tokenizer.opening import open_tokenizer
from etcli.tokenizer.pieces import SentencePieceTokenizer

# The reader keeps texts as C strings, so NUL is not among them; nor is the empty text, which it refuses.
letters = st.one_of(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), st.sampled_from("the Tokyo日本é \n<>s/0x4")
)


def opened(folder: Path) -> SentencePieceTokenizer:
    tokenizer = open_tokenizer(folder)
    assert isinstance(tokenizer, SentencePieceTokenizer)
    return tokenizer


def reader(tokenizer: SentencePieceTokenizer, folder: Path) -> CppLlama2cTokenizer:
    path = folder / "tokenizer.bin"
    path.write_bytes(llama2c_bytes(tokenizer))
    loaded = CppLlama2cTokenizer()
    loaded.load(str(path))
    assert loaded.is_loaded()
    return loaded


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[SentencePieceTokenizer, CppLlama2cTokenizer]:
    folder = spm_folder(tmp_path_factory.mktemp("llama2c"))
    tokenizer = opened(folder)
    return tokenizer, reader(tokenizer, folder)


def test_the_header_and_what_executorchs_own_converter_writes(tmp_path: Path) -> None:
    tokenizer = opened(spm_folder(tmp_path / "model"))
    data = llama2c_bytes(tokenizer)
    Llama2cTokenizer(str(tmp_path / "model" / "tokenizer.model")).export(str(tmp_path / "theirs.bin"))
    theirs = (tmp_path / "theirs.bin").read_bytes()
    assert len(data) == len(theirs)
    assert data[:16] == theirs[:16]
    assert struct.unpack("<4i", data[:16])[:3] == (400, 1, 2)
    assert [text for _, text in entries(data)] == [text for _, text in entries(theirs)]
    plain = {index for index, piece in enumerate(tokenizer.proto.pieces) if piece.type == 1}
    for index, (ours, other) in enumerate(zip(entries(data), entries(theirs), strict=True)):
        assert (ours == other) == (index in plain), index


def entries(data: bytes) -> list[tuple[float, bytes]]:
    found, at = [], 16
    while at < len(data):
        score, length = struct.unpack_from("<fi", data, at)
        found.append((score, data[at + 8 : at + 8 + length]))
        at += 8 + length
    return found


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(letters, min_size=1, max_size=30))
def test_the_reader_gives_the_models_ids(both: tuple[SentencePieceTokenizer, CppLlama2cTokenizer], text: str) -> None:
    tokenizer, loaded = both
    assert loaded.encode(text, 1, 0) == tokenizer.encode(text, bos=True)


@pytest.mark.parametrize("text", [text for text in (*TEXTS, *CORPUS[:4]) if text and "\0" not in text], ids=ascii)
def test_known_texts(both: tuple[SentencePieceTokenizer, CppLlama2cTokenizer], text: str) -> None:
    tokenizer, loaded = both
    assert loaded.encode(text, 1, 0) == tokenizer.encode(text, bos=True)


def test_the_reader_shows_the_models_pieces(both: tuple[SentencePieceTokenizer, CppLlama2cTokenizer]) -> None:
    tokenizer, loaded = both
    assert (loaded.vocab_size(), loaded.bos_tok(), loaded.eos_tok()) == (400, 1, 2)
    for index, piece in enumerate(tokenizer.proto.pieces):
        if piece.type != 6:
            assert loaded.decode(index) == piece.piece.replace("▁", " ")


def test_tokens_beside_the_model_have_a_place(tmp_path: Path) -> None:
    decoder = {"400": added("<|im_end|>"), "403": added("<tool>", special=False)}
    folder = spm_folder(tmp_path / "model", added_tokens_decoder=decoder)
    tokenizer = opened(folder)
    loaded = reader(tokenizer, folder)
    assert loaded.vocab_size() == tokenizer.vocab_size == 404
    assert loaded.decode(400) == "<|im_end|>"
    for text in ("the <|im_end|> of it", "<pad401>", "im_end"):
        assert loaded.encode(text, 1, 0) == tokenizer.encode(text, bos=True)


def with_spec(**changes: Any) -> bytes:
    proto = sentencepiece_model_pb2.ModelProto.FromString(spm_model())
    for name, value in changes.items():
        setattr(proto.normalizer_spec, name, value)
    return bytes(proto.SerializeToString())


def with_piece(index: int, **changes: Any) -> bytes:
    proto = sentencepiece_model_pb2.ModelProto.FromString(spm_model())
    for name, value in changes.items():
        setattr(proto.pieces[index], name, value)
    return bytes(proto.SerializeToString())


SPACE = next(
    index
    for index, piece in enumerate(sentencepiece_model_pb2.ModelProto.FromString(spm_model()).pieces)
    if piece.piece == "▁"
)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (spm_model(model_type="unigram"), "no BPE model"),
        (spm_model(normalization_rule_name="nmt_nfkc"), "normalises text"),
        (with_spec(add_dummy_prefix=False), "no space before a text"),
        (with_spec(remove_extra_whitespaces=True), "removes repeated spaces"),
        (spm_model(byte_fallback=False), "256 byte tokens"),
        (spm_model(user_defined_symbols="<turn>"), "'<turn>'"),
        (spm_model(pad_id=0, unk_id=3), "unknown token is not the first"),
        (spm_model(bos_id=-1), "beginning and end"),
        (with_piece(SPACE, piece="\u2e3b"), "one space"),
        (with_piece(399, type=5), "marked as unused"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_models_that_the_reader_would_read_otherwise_are_refused(tmp_path: Path, model: bytes, words: str) -> None:
    tokenizer = opened(spm_folder(tmp_path / "model", model=model, added_tokens_decoder=None))
    with pytest.raises(CheckpointError) as caught:
        llama2c_bytes(tokenizer, tmp_path / "model" / "tokenizer.model")
    (problem,) = caught.value.problems
    assert (problem.code, problem.exit_code) == ("tokenizer.llama2c", ExitCode.CHECKPOINT)
    assert words in problem.message
    assert "run.runner: etcli" in str(problem.hint)


def test_every_reason_is_named(tmp_path: Path) -> None:
    model = spm_model(model_type="unigram", normalization_rule_name="nmt_nfkc", byte_fallback=False)
    tokenizer = opened(spm_folder(tmp_path / "model", model=model, added_tokens_decoder=None))
    with pytest.raises(CheckpointError, match=r"no BPE model; it normalises text .*; its 256 byte tokens"):
        llama2c_bytes(tokenizer)
