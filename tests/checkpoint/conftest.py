"""A cache of its own for each test of this room, so that no test sees what another remembered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder, empty. The default model, fetched once for all tests, is elsewhere."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(folder))
    monkeypatch.delenv("ETCLI_OFFLINE", raising=False)
    return folder


@pytest.fixture(scope="session")
def package_reader(default_model: Path) -> gguf.GGUFReader:
    """The default model as the gguf package's own reader sees it, which takes seconds to make."""
    return gguf.GGUFReader(default_model)


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A function that gives a Hugging Face folder with a small random model of a family (`llama`, `mistral`, `qwen2`, `qwen3`), saved by transformers.

    Keyword arguments are those of the family's configuration class. Equal arguments give the same folder: do not change it, copy it.
    """
    made: dict[str, Path] = {}

    def build(family: str, **config: Any) -> Path:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        small = {
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32 if family == "qwen3" else 16,
            "vocab_size": 320,
            "max_position_embeddings": 256,
            **({} if "rope_parameters" in config else {"rope_theta": 5000.0}),
            "bos_token_id": 0,
            "eos_token_id": 1,
            **({"sliding_window": None} if family == "mistral" else {}),
        } | config
        key = repr((family, sorted(config.items())))
        if key not in made:
            torch.manual_seed(7)
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **small)).eval()
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    parameter.normal_(1.0 if "norm" in name else 0.0, 0.1)
            folder = tmp_path_factory.mktemp(family)
            model.save_pretrained(folder)
            made[key] = folder
        return made[key]

    return build
