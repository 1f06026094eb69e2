"""A bundle's tokenizer as ExecuTorch's own C++ readers take it, for runners that encode the prompt on the device.

The readers are those of `pytorch_tokenizers` 1.5.0, which upstream's LLM runners link: llama2c (`bpe`), `tiktoken` with Llama 3's special tokens, and
`hf`. The last reads a folder: `tokenizer.json`, and from `tokenizer_config.json` beside it the texts of the first and the end token, which it otherwise guesses
from tokens that have "end" in their text. It takes BPE models alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from etcli.common.errors import CheckpointError
from etcli.tokenizer import llama2c
from etcli.tokenizer.base import Tokenizer, control_text
from etcli.tokenizer.hf import TOKENIZER
from etcli.tokenizer.pieces import SentencePieceTokenizer
from etcli.tokenizer.ranks import LLAMA3_BOS, LLAMA3_EOS

CONFIG = "tokenizer_config.json"


@dataclass(frozen=True)
class UpstreamTokenizer:
    """How a reader is to be given a tokenizer, and what it then does.

    Attributes:
        type: the reader, as `--tokenizer_type` names it.
        path: what it opens, relative to the tokenizer's folder; `.` for the folder.
        made: files to be put into that folder, by name.
        bos_id: the id that it puts before every text, None where it puts none.
        eos_id: the one id at which a runner ends an answer.
        size: number of ids, the largest one plus 1.
        special: whether it takes the text of a special token for that token.
    """

    type: Literal["bpe", "tiktoken", "hf"]
    path: str
    bos_id: int | None
    eos_id: int
    size: int
    special: bool
    made: Mapping[str, bytes] = field(default_factory=dict)

    def encode(self, tokenizer: Tokenizer, text: str) -> list[int]:
        """The ids that the reader gives for `text`, worked out here with `tokenizer`, which it was made from."""
        first = [] if self.bos_id is None else [self.bos_id]
        return first + tokenizer.encode(text, special=self.special)


def upstream_tokenizer(tokenizer: Tokenizer, path: Path, stop_ids: Sequence[int]) -> UpstreamTokenizer:
    """What a reader makes of `tokenizer`, whose file is `path`.

    Args:
        stop_ids: the model's, of which the reader gets one where it can be told.

    Raises:
        CheckpointError: `tokenizer.llama2c`, see there; `tokenizer.upstream`: no reader of upstream's takes this tokenizer.
    """
    if isinstance(tokenizer, SentencePieceTokenizer):
        data = llama2c.llama2c_bytes(tokenizer, path)
        spec = tokenizer.proto.trainer_spec
        return UpstreamTokenizer(
            "bpe",
            llama2c.FILE,
            spec.bos_id,
            spec.eos_id,
            tokenizer.vocab_size,
            special=False,
            made={llama2c.FILE: data},
        )
    if tokenizer.kind == "tiktoken":
        bos, eos = (tokenizer.encode(text, special=True) for text in (LLAMA3_BOS, LLAMA3_EOS))
        return UpstreamTokenizer("tiktoken", path.name, bos[0], eos[0], tokenizer.vocab_size, special=True)
    _check_bpe(path)
    ends = {
        text: ids[0]
        for text in tokenizer.control_texts
        if (ids := tokenizer.encode(text, special=True)) and ids[0] in stop_ids
    }
    if not ends:
        raise _refused("none of the model's stop ids is a special token of it", path)
    end = _end(tokenizer, ends)
    config = {"eos_token": end}
    if tokenizer.bos_id is not None:
        bos_text = control_text(tokenizer, tokenizer.bos_id)
        if bos_text is None:
            raise _refused(f"its first token, {tokenizer.bos_id}, is no special token of it", path)
        config["bos_token"] = bos_text
    document = json.dumps(config, ensure_ascii=False, sort_keys=True, indent=1) + "\n"
    return UpstreamTokenizer(
        "hf", ".", tokenizer.bos_id, ends[end], tokenizer.vocab_size, special=True, made={CONFIG: document.encode()}
    )


def _end(tokenizer: Tokenizer, ends: Mapping[str, int]) -> str:
    """The end token that an answer of this model most likely ends with."""
    configured = tokenizer.special_tokens.get("eos_token")
    if configured is not None and configured in ends:
        return configured
    # The last one that a chat template writes closes a turn.
    template = tokenizer.chat_template or ""
    return max(ends, key=lambda text: (template.rfind(text), -ends[text]))


def _check_bpe(path: Path) -> None:
    try:
        model = json.loads(path.read_bytes())["model"]
        kind = str(model.get("type", "BPE" if "merges" in model else "?"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise _refused(f"{TOKENIZER} does not say what model it is", path) from None
    if kind != "BPE":
        raise _refused(f"it is a {kind[:40]} model, and upstream's reader takes BPE alone", path)


def _refused(why: str, path: Path) -> CheckpointError:
    return CheckpointError(
        f"this tokenizer cannot be read by the mtk runner: {why}",
        code="tokenizer.upstream",
        hint="Use run.runner: etcli, which is given token ids and needs no tokenizer on the device.",
        file=path,
    )
