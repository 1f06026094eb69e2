"""Small tokenizers of the kinds that are no `tokenizer.json`, trained here, and the files that publishers put beside them."""

from __future__ import annotations

import base64
import functools
import io
import json
from pathlib import Path
from typing import Any

CORPUS = (
    "What is the capital of Japan? The capital of Japan is Tokyo.",
    "naïve façade 日本語 12345\n\n  indented\tcode = 42",
    "the theme of the thesis, they thought; then there",
    "[INST] <s> x </s>",
) * 30

TEXTS = (
    "",
    " ",
    "a",
    "What is the capital of Japan?",
    "  two  spaces\tand\n\n\nlines  ",
    "don't you'll WE'RE 1234567",
    "naïve façade, 日本語のテキスト, עברית, 🙂🏽‍🚀",
    "x<s>y</s> <unk>",
    "\x00\x01\x7f\u2028\u00a0 ▁under▁score",
)


@functools.cache
def spm_model(**options: Any) -> bytes:
    """A SentencePiece model as Llama's is trained: BPE, bytes for what is unknown, nothing normalised; `options` change the trainer's."""
    import sentencepiece

    out = io.BytesIO()
    values: dict[str, Any] = {
        "vocab_size": 400,
        "model_type": "bpe",
        "byte_fallback": True,
        "split_digits": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "allow_whitespace_only_pieces": True,
        "hard_vocab_limit": False,
        "minloglevel": 2,
    }
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=out, **(values | options))
    return out.getvalue()


@functools.cache
def rank_file(count: int = 340) -> bytes:
    """A file of `count` tiktoken ranks: the 256 bytes, then what a byte-level BPE learns from `CORPUS`."""
    import tokenizers
    from tokenizers import models, pre_tokenizers, trainers

    from etcli.tokenizer.streaming import piece_bytes

    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=count, initial_alphabet=alphabet, show_progress=False)
    inner.train_from_iterator(CORPUS, trainer)
    learned = sorted(inner.get_vocab().items(), key=lambda item: item[1])
    tokens = [bytes([byte]) for byte in range(256)] + [piece_bytes(text) for text, _ in learned if len(text) > 1]
    lines = [base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens[:count])]
    assert len(lines) == count
    return b"".join(lines)


LLAMA2_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + message['content'] | trim + ' [/INST]' }}"
    "{% elif message['role'] == 'system' %}{{ '<<SYS>>' + message['content'] + '<</SYS>>' }}"
    "{% else %}{{ ' ' + message['content'] | trim + ' ' + eos_token }}{% endif %}{% endfor %}"
)
LLAMA3_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + "
    "message['content'] | trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)


def spm_folder(folder: Path, *, model: bytes | None = None, **config: Any) -> Path:
    """A Hugging Face folder with a `tokenizer.model`; `config` changes `tokenizer_config.json`, whose None leaves a key out."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(spm_model() if model is None else model)
    special = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    values: dict[str, Any] = {
        "tokenizer_class": "LlamaTokenizer",
        "add_bos_token": True,
        "add_eos_token": False,
        "added_tokens_decoder": {
            str(index): {"content": text, **special} for index, text in enumerate(("<unk>", "<s>", "</s>"))
        },
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "legacy": False,
        "chat_template": LLAMA2_TEMPLATE,
    } | config
    document = {name: value for name, value in values.items() if value is not None}
    (folder / "tokenizer_config.json").write_text(json.dumps(document))
    return folder


def added(text: str, **flags: bool) -> dict[str, Any]:
    """An entry of `added_tokens_decoder`."""
    return {
        "content": text,
        "lstrip": False,
        "normalized": False,
        "rstrip": False,
        "single_word": False,
        "special": True,
    } | flags


def meta_folder(folder: Path, *, ranks: bytes | None = None, **params: Any) -> Path:
    """A Meta folder's tokenizer: `tokenizer.model` with ranks, and `params.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(rank_file() if ranks is None else ranks)
    (folder / "params.json").write_text(json.dumps({"dim": 64, "n_layers": 2, "n_heads": 4} | params))
    return folder


CHATML_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def bpe_folder(folder: Path, *, bos: str | None = None, template: str | None = CHATML_TEMPLATE) -> Path:
    """A Hugging Face folder with a byte-level BPE `tokenizer.json` and ChatML's tokens; `bos` is the token that it puts before a text."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, processors, trainers

    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False),
    )
    if bos is not None:
        inner.post_processor = processors.TemplateProcessing(
            single=[bos, "$A"], special_tokens=[(bos, inner.token_to_id(bos))]
        )
    folder.mkdir(parents=True, exist_ok=True)
    inner.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|im_end|>", **({} if bos is None else {"bos_token": bos})}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder
