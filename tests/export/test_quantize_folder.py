"""`model.quantize: aqlm` on a small random network: the folder in the cache, and what reads it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from aqlm_folders import dense_weight
from small_export import load_document

from etcli.checkpoint.layout import linear_shapes
from etcli.checkpoint.opening import open_checkpoint
from etcli.common.errors import CheckpointError, EtcliError, RecipeError
from etcli.common.files import stamp
from etcli.export.aqlm import making
from etcli.export.aqlm.calibration import calibration_ids
from etcli.export.aqlm.settings import quantised_config
from etcli.export.source import checkpoint_source, peek_checkpoint, remaining_adapter
from etcli.manifests.quantised import QuantisedRecord
from etcli.output.console import Console
from etcli.tokenizer.chat import encode_prompt
from etcli.tokenizer.opening import open_tokenizer

QUIET = Console(verbosity=-1)


def document(source: Path, **model: Any) -> dict[str, Any]:
    return {
        "name": "small",
        "model": {"source": str(source), "quantize": "aqlm", **model},
        "export": {"precision": "aqlm", "chunks": 2, "shapes": ["8t32c", "1t32c"]},
    }


def made(source: Path, **model: Any) -> Path:
    return checkpoint_source(load_document(document(source, **model)), QUIET)


@pytest.fixture(scope="module", autouse=True)
def little_work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of this module's own, and a calibration of some hundred tokens."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ETCLI_CACHE_DIR", str(cache))
        patch.setattr(making, "calibration_ids", lambda *args: [ids[:60] for ids in calibration_ids(*args)[:6]])
        yield cache


@pytest.fixture(scope="module")
def source(random_llama: Callable[..., Path]) -> Path:
    return random_llama(
        tokenizer=True, tie_word_embeddings=True, attention_bias=True, hidden_size=128, intermediate_size=160
    )


@pytest.fixture(scope="module")
def folder(source: Path) -> Path:
    return made(source)


def test_it_reads_back_as_the_same_network_with_codes(source: Path, folder: Path) -> None:
    original, found = open_checkpoint(source), open_checkpoint(folder)
    assert found.config == quantised_config(original.config)
    assert found.unused == ()
    for name in original.tensors.keys() & found.tensors.keys():
        torch.testing.assert_close(found.read(name), original.read(name), rtol=1e-3, atol=1e-6)
    assert {name for name in original.tensors if name not in found.tensors} == {
        f"model.layers.{layer}.{name}.weight" for layer in range(2) for name in linear_shapes(original.config)
    }


def test_the_matrices_are_those_that_the_quantiser_measured(source: Path, folder: Path) -> None:
    original, found = open_checkpoint(source), open_checkpoint(folder)
    record = QuantisedRecord.read(folder / QuantisedRecord.FILE)
    assert record.errors.keys() == {
        f"model.layers.{n}.{name}" for n in range(2) for name in linear_shapes(found.config)
    }
    assert all(0 <= error < 0.1 for error in record.errors.values())
    # the inputs of the first matrices are known: rows of the embedding, normalised
    ids = [token for one in making.calibration_ids(open_tokenizer(folder), 256) for token in one]
    rows = original.read("model.embed_tokens.weight").double()[ids]
    inputs = rows / (rows.square().mean(1, keepdim=True) + found.config.rms_norm_eps).sqrt()
    inputs *= original.read("model.layers.0.input_layernorm.weight").double()
    for kind in "qkv":
        name = f"model.layers.0.self_attn.{kind}_proj"
        dense = dense_weight(*(found.read(f"{name}.{part}") for part in ("codes", "codebooks", "scales")))
        right = inputs @ original.read(f"{name}.weight").double().T
        lost = float((inputs @ dense.T - right).square().mean() / right.square().mean())
        assert lost == pytest.approx(record.errors[name], rel=0.1)


def test_it_is_marked_everywhere(folder: Path) -> None:
    assert open_checkpoint(folder).quality == "demonstration"
    assert "demonstration quality" in (folder / "README.md").read_text()
    assert "demonstration quality" in json.loads((folder / "config.json").read_text())["etcli_quality"]
    assert QuantisedRecord.read(folder / QuantisedRecord.FILE).quality == "demonstration"


def test_transformers_reads_the_same_configuration_and_tokenizer(source: Path, folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    right, found = (transformers.AutoConfig.from_pretrained(path) for path in (source, folder))
    for key in ("hidden_size", "num_key_value_heads", "head_dim", "rope_parameters", "eos_token_id", "attention_bias"):
        assert getattr(found, key) == getattr(right, key), key
    assert found.quantization_config["quant_method"] == "aqlm"
    mine = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = transformers.AutoTokenizer.from_pretrained(source)
    chat = [{"role": "user", "content": "What do bees eat?"}]
    assert mine("the capital of Japan").input_ids == theirs("the capital of Japan").input_ids
    assert mine.apply_chat_template(chat, tokenize=False) == theirs.apply_chat_template(chat, tokenize=False)
    ours = open_tokenizer(folder)
    assert encode_prompt(ours, "What do bees eat?", chat=True, system=None) == encode_prompt(
        open_tokenizer(source), "What do bees eat?", chat=True, system=None
    )
    assert ours.stop_ids == open_tokenizer(source).stop_ids


def test_the_file_is_one_that_the_safetensors_library_reads(folder: Path) -> None:
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    assert tensors["model.layers.1.mlp.down_proj.codes"].dtype == torch.int8
    assert {values.dtype for name, values in tensors.items() if not name.endswith("codes")} == {torch.float16}


def test_the_same_bytes_again_with_another_number_of_threads(
    source: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(making, "threads", lambda: 1 if making_threads() > 1 else 2)
    again = made(source)
    assert again.name == folder.name
    assert again != folder
    for path in folder.iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes(), path.name


making_threads = making.threads


def test_what_is_there_is_taken_without_work_and_without_torch(
    source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(making, "run_isolated", refuse)
    before = stamp(folder)
    assert made(source) == folder == peek_checkpoint(load_document(document(source)), QUIET)
    assert stamp(folder) == before


@pytest.mark.parametrize("damage", ["cut", "gone", "record"])
def test_a_damaged_folder_is_made_again(
    source: Path, folder: Path, tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path))
    copy = tmp_path / "aqlm" / folder.name
    shutil.copytree(folder, copy)
    loaded = load_document(document(source))
    assert peek_checkpoint(loaded, QUIET) == copy
    if damage == "cut":
        with (copy / "model.safetensors").open("r+b") as file:
            file.truncate(1000)
    elif damage == "gone":
        (copy / "tokenizer.json").unlink()
    else:
        (copy / QuantisedRecord.FILE).write_text("{")
    assert peek_checkpoint(loaded, QUIET) is None


def test_other_weights_another_template_and_an_adapter_give_other_folders(
    source: Path, folder: Path, tmp_path: Path
) -> None:
    def place(path: Path, **model: Any) -> Path:
        loaded = load_document(document(path, **model))
        assert peek_checkpoint(loaded, QUIET) is None
        adapter = Path(model["adapter"]) if model else None
        original = making.Original(path, adapter, open_checkpoint(path, adapter), open_tokenizer(path))
        return making.folder_of(original, making.Settings(), QUIET)

    changed = tmp_path / "changed"
    shutil.copytree(source, changed)
    tensors = safetensors.torch.load_file(changed / "model.safetensors")
    tensors["model.norm.weight"][0] += 1
    safetensors.torch.save_file(tensors, changed / "model.safetensors", {"format": "pt"})
    templated = tmp_path / "templated"
    shutil.copytree(source, templated)
    (templated / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    places = {folder, place(changed), place(templated), place(source, adapter=str(adapter_folder(tmp_path, 128)))}
    assert len(places) == 4


def adapter_folder(parent: Path, rows: int) -> Path:
    adapter = parent / "lora"
    adapter.mkdir()
    name = "base_model.model.model.layers.1.self_attn.q_proj"
    generator = torch.Generator().manual_seed(2)
    factors = {
        f"{name}.lora_A.weight": torch.randn(2, 128, generator=generator),
        f"{name}.lora_B.weight": torch.randn(rows, 2, generator=generator),
    }
    safetensors.torch.save_file(factors, adapter / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"]}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    return adapter


def test_an_adapter_is_merged_in_the_folder_and_not_given_again(
    random_llama: Callable[..., Path], tmp_path: Path
) -> None:
    source = random_llama(tokenizer=True, hidden_size=128, intermediate_size=64, head_dim=16, num_hidden_layers=2)
    adapter = adapter_folder(tmp_path, 64)
    loaded = load_document(document(source, adapter=str(adapter)))
    assert remaining_adapter(loaded) is None
    found = open_checkpoint(checkpoint_source(loaded, QUIET))
    name = "model.layers.1.self_attn.q_proj"
    dense = dense_weight(*(found.read(f"{name}.{part}") for part in ("codes", "codebooks", "scales")))
    plain, merged = (open_checkpoint(source, path).read(f"{name}.weight").double() for path in (None, adapter))
    assert (dense - merged).norm() < 0.2 * (dense - plain).norm()


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"intermediate_size": 100}, "recipe.aqlm_group"),
        ({"hidden_size": 60, "head_dim": 16}, "recipe.aqlm_group"),
    ],
)
def test_a_network_that_groups_of_eight_do_not_divide_is_refused(
    random_llama: Callable[..., Path], config: dict[str, int], code: str, little_work: Path
) -> None:
    before = set((little_work / "aqlm").iterdir()) if (little_work / "aqlm").is_dir() else set()
    with pytest.raises(RecipeError) as refused:
        made(random_llama(tokenizer=True, **config))
    assert refused.value.problems[0].code == code
    assert set((little_work / "aqlm").iterdir() if before else ()) == before


def test_an_aqlm_checkpoint_is_not_quantised_again(folder: Path) -> None:
    with pytest.raises(RecipeError) as refused:
        made(folder)
    assert refused.value.problems[0].code == "recipe.aqlm_twice"


def test_a_checkpoint_without_tokenizer_is_refused(random_llama: Callable[..., Path]) -> None:
    with pytest.raises(CheckpointError) as refused:
        made(random_llama())
    assert refused.value.problems[0].code == "tokenizer.missing"


def test_weights_that_are_not_finite_are_refused(source: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(source, broken)
    tensors = safetensors.torch.load_file(broken / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][3, 3] = float("nan")
    safetensors.torch.save_file(tensors, broken / "model.safetensors", {"format": "pt"})
    with pytest.raises(EtcliError) as refused:
        made(broken)
    assert refused.value.problems[0].code == "checkpoint.not_finite"


def test_numbers_beyond_float16_are_refused(source: Path, tmp_path: Path) -> None:
    huge = tmp_path / "huge"
    shutil.copytree(source, huge)
    tensors = safetensors.torch.load_file(huge / "model.safetensors")
    tensors["model.norm.weight"][3] = 1e6
    safetensors.torch.save_file(tensors, huge / "model.safetensors", {"format": "pt"})
    with pytest.raises(EtcliError) as refused:
        made(huge)
    assert refused.value.problems[0].code == "aqlm.range"
    assert "model.norm.weight" in refused.value.problems[0].message


def test_the_parent_does_not_import_torch(source: Path, folder: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from small_export import load_document; import json\n"
        "from etcli.export.source import peek_checkpoint\n"
        "from etcli.output.console import Console\n"
        "found = peek_checkpoint(load_document(json.loads(sys.argv[2])), Console(verbosity=-1))\n"
        "assert found is not None and not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    support = Path(__file__).parents[1] / "support"
    done = subprocess.run(
        [sys.executable, "-c", code, support, json.dumps(document(source))], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
