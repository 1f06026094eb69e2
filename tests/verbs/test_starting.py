"""`etcli recipe new --source`: an export that suits the size of the checkpoint."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from etcli.checkpoint.layout import expected_shapes
from etcli.checkpoint.opening import open_checkpoint
from etcli.cli.main import cli
from etcli.common.errors import RecipeError
from etcli.export.plan import make_plan
from etcli.recipe.fit import fit_problems
from etcli.recipe.loader import load
from etcli.recipe.support import unsupported

LLAMA_1B = {
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128256,
    "tie_word_embeddings": True,
}
MISTRAL_7B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32768,
}
LLAMA_8B = {**MISTRAL_7B, "vocab_size": 128256}
QWEN_HALF_B = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[..., Path]:
    """Makes a folder of safetensors with the network's sizes, its weights a hole in the file: headers alone are read."""

    def make(**config: Any) -> Path:
        folder = tmp_path / "model"
        folder.mkdir()
        values = {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
            "torch_dtype": "bfloat16",
            "eos_token_id": 2,
            "tie_word_embeddings": False,
            **config,
        }
        (folder / "config.json").write_text(json.dumps(values))
        header: dict[str, Any] = {}
        place = 0
        for name, shape in _shapes(values).items():
            size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
            header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [place, place + size]}
            place += size
        text = json.dumps(header).encode()
        with (folder / "model.safetensors").open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + place)
        return folder

    return make


def _shapes(values: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    from etcli.manifests.model import ModelConfig, RopeConfig

    heads = values["num_attention_heads"]
    config = ModelConfig(
        architecture="LlamaForCausalLM",
        hidden_size=values["hidden_size"],
        intermediate_size=values["intermediate_size"],
        num_layers=values["num_hidden_layers"],
        num_heads=heads,
        num_kv_heads=values["num_key_value_heads"],
        head_dim=values.get("head_dim", values["hidden_size"] // heads),
        vocab_size=values["vocab_size"],
        context_length=values["max_position_embeddings"],
        rms_norm_eps=1e-5,
        rope=RopeConfig(theta=10000.0),
        tied_embeddings=values["tie_word_embeddings"],
    )
    return expected_shapes(config)


def new(folder: Path, *words: str) -> str:
    done = CliRunner().invoke(cli, ["recipe", "new", str(folder / "etcli.yaml"), "--name", "mine", *words])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(
    ("config", "chunks", "most"),
    [(QWEN_HALF_B, 1, 500e6), (LLAMA_1B, 4, 500e6), (MISTRAL_7B, 16, 500e6), (LLAMA_8B, 16, 800e6)],
    ids=["qwen-0.5b", "llama-1b", "mistral-7b", "llama-8b"],
)
def test_a_large_model_gets_what_a_phone_takes(
    checkpoint: Callable[..., Path], tmp_path: Path, config: dict[str, Any], chunks: int, most: float
) -> None:
    source = checkpoint(**config)
    output = new(tmp_path, "--source", "model")
    assert "billion parameters" in output
    loaded = load(str(tmp_path / "etcli.yaml"))
    export = loaded.recipe.export
    assert (export.precision, export.embedding, export.chunks) == ("8da4w", "int8", chunks)
    assert export.shapes == ("128t1024c", "1t1024c")
    model = open_checkpoint(source).config
    assert unsupported(loaded) == []
    assert list(fit_problems(loaded, model)) == []
    assert max(chunk.stored_bytes for chunk in make_plan(loaded, model).chunks) <= most


def test_the_starter_and_the_readme_agree(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    checkpoint(**LLAMA_1B)
    new(tmp_path, "--source", "model")
    readme = Path(__file__).parents[2].joinpath("README.md").read_text()
    sample = readme.split("A recipe says everything once:\n\n")[1].split("\n\n")[0]
    ours = yaml.safe_load((tmp_path / "etcli.yaml").read_text())
    assert ours["export"] == yaml.safe_load(sample)["export"]
    assert ours["run"]["prompt"] == yaml.safe_load(sample)["run"]["prompt"]


def test_the_cache_is_no_longer_than_the_model_allows(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    checkpoint(**LLAMA_1B, max_position_embeddings=512)
    new(tmp_path, "--source", "model")
    assert load(str(tmp_path / "etcli.yaml")).recipe.export.shapes == ("128t512c", "1t512c")


def test_sizes_that_no_groups_divide_stay_floats(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    source = checkpoint(**{**LLAMA_1B, "intermediate_size": 8200})
    new(tmp_path, "--source", "model")
    loaded = load(str(tmp_path / "etcli.yaml"))
    assert (loaded.recipe.export.precision, loaded.recipe.export.embedding) == ("fp16", None)
    assert list(fit_problems(loaded, open_checkpoint(source).config)) == []


def test_another_refusal_is_not_said_to_be_of_groups(
    checkpoint: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RecipeError("no", code="recipe.chunks")

    checkpoint(**LLAMA_1B)
    monkeypatch.setattr("etcli.verbs.starting.make_plan", refuse)
    new(tmp_path, "--source", "model")
    text = (tmp_path / "etcli.yaml").read_text()
    assert "precision: fp32" in text
    assert "4-bit" not in text


def test_a_name_that_is_none_leaves_nothing(checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    checkpoint(**LLAMA_1B)
    words = ["recipe", "new", str(tmp_path / "etcli.yaml"), "--name", "No Name", "--source", "model"]
    done = CliRunner().invoke(cli, words)
    assert "is not a recipe name" in str(done.exception)
    assert not (tmp_path / "etcli.yaml").exists()


def test_a_small_model_stays_in_float32(random_llama: Callable[..., Path], tmp_path: Path) -> None:
    output = new(tmp_path, "--source", str(random_llama()))
    assert "billion" not in output
    assert "could not be looked at" not in output
    export = load(str(tmp_path / "etcli.yaml")).recipe.export
    assert (export.precision, export.embedding, export.chunks) == ("fp32", None, 1)
    assert export.shapes == ("32t512c", "1t512c")


@pytest.mark.parametrize("source", ["nowhere", "hf:a/b@main", "${NO_SUCH_VARIABLE_HERE}"])
def test_a_checkpoint_that_is_not_here_is_said_to_be(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.delenv("NO_SUCH_VARIABLE_HERE", raising=False)
    output = new(tmp_path, "--source", source)
    assert "could not be looked at" in output
    assert "precision: fp32" in (tmp_path / "etcli.yaml").read_text()
