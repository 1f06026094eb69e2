"""How long `etcli validate` and `etcli inspect` take on a checkpoint of 8 billion parameters: headers alone, so under a second.

The checkpoint has the files of Llama 3.1 8B with right headers, four shards of 16 GB in all that take no space (nothing was written into them), and a
tokenizer of 128256 entries. That no tensor is read shows in the bytes that the commands take from those files.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from math import prod
from pathlib import Path

from harness import Row, arguments, publish, wall_seconds

from etcli.checkpoint.layout import expected_shapes
from etcli.manifests.model import ModelConfig, RopeConfig

LIMIT = 1.0
SHARDS = 4
MODEL = ModelConfig(
    architecture="LlamaForCausalLM",
    hidden_size=4096,
    intermediate_size=14336,
    num_layers=32,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab_size=128256,
    context_length=131072,
    rms_norm_eps=1e-5,
    rope=RopeConfig(theta=500000.0),
    tied_embeddings=False,
)


def main() -> int:
    """Measure and print; 1 where a bar was missed."""
    flags = arguments(__doc__.splitlines()[0] if __doc__ else "")
    runs = 5 if flags.quick else 15
    with tempfile.TemporaryDirectory(prefix="etcli-header-checks-") as name:
        folder = Path(name) / "Llama-8B"
        folder.mkdir()
        write_checkpoint(folder)
        recipe = Path(name) / "etcli.yaml"
        recipe.write_text(
            f"name: large\nmodel: {{source: {folder.name}}}\nexport: {{chunks: 4, shapes: [128t512c, 1t512c]}}\n"
        )
        rows = [
            _row(f"etcli {verb}, 8B parameters", [sys.executable, "-m", "etcli", verb, str(target)], runs)
            for verb, target in (("validate", recipe), ("inspect", folder))
        ]
    return publish("header_checks", rows, as_json=flags.json)


def _row(case: str, argv: list[str], runs: int) -> Row:
    wall_seconds(argv)
    seconds = statistics.median(wall_seconds(argv) for _ in range(runs))
    return Row(case, seconds, LIMIT, "s", LIMIT / seconds, 1.0, seconds <= LIMIT, "peer: the limit")


def write_checkpoint(folder: Path) -> None:
    """A Hugging Face folder of `MODEL` in bfloat16 whose weights are holes."""
    tensors = list(expected_shapes(MODEL).items())
    weight_map: dict[str, str] = {}
    for number in range(SHARDS):
        name = f"model-{number + 1:05}-of-{SHARDS:05}.safetensors"
        header: dict[str, object] = {}
        offset = 0
        for tensor, shape in tensors[number::SHARDS]:
            size = 2 * prod(shape)
            header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + size]}
            weight_map[tensor] = name
            offset += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with (folder / name).open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + offset)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    config = {
        "architectures": [MODEL.architecture],
        "model_type": "llama",
        "hidden_size": MODEL.hidden_size,
        "intermediate_size": MODEL.intermediate_size,
        "num_hidden_layers": MODEL.num_layers,
        "num_attention_heads": MODEL.num_heads,
        "num_key_value_heads": MODEL.num_kv_heads,
        "vocab_size": MODEL.vocab_size,
        "max_position_embeddings": MODEL.context_length,
        "rms_norm_eps": MODEL.rms_norm_eps,
        "rope_theta": MODEL.rope.theta,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "eos_token_id": 1,
    }
    (folder / "config.json").write_text(json.dumps(config))
    write_tokenizer(folder)


def write_tokenizer(folder: Path) -> None:
    """A byte-level BPE tokenizer of `MODEL.vocab_size` entries, and a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate(letters)}
    merges: list[tuple[str, str]] = []
    for left, right in _pairs(letters):
        vocabulary[left + right] = len(vocabulary)
        merges.append((left, right))
        if len(vocabulary) == MODEL.vocab_size:
            break
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))


def _pairs(letters: list[str]) -> Iterator[tuple[str, str]]:
    """Pairs whose merges make longer and longer pieces, each of them new."""
    row = letters
    while True:
        longer = []
        for left in row:
            for right in letters:
                yield left, right
                longer.append(left + right)
        row = longer


if __name__ == "__main__":
    sys.exit(main())
