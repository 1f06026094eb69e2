"""AQLM folders that are wrong or of a kind that is not supported: everything that is the matter is said at once, from headers, with what to use."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from aqlm_folders import read_weights, write_aqlm_folder, write_weights
from local_hub import COMMIT, Hub, serve

from etcli.checkpoint.checks import header_problems
from etcli.checkpoint.opening import examine
from etcli.common.errors import EtcliError, ExitCode, Problem

Tensors = dict[str, torch.Tensor]
Q0, Q1, UP0 = "model.layers.0.self_attn.q_proj", "model.layers.1.self_attn.q_proj", "model.layers.0.mlp.up_proj"
LINEARS = [
    f"model.layers.{layer}.{name}"
    for layer in (0, 1)
    for name in (
        *(f"self_attn.{kind}_proj" for kind in "qkvo"),
        *(f"mlp.{kind}_proj" for kind in ("gate", "up", "down")),
    )
]
INSTEAD = ("2x8 or 1x8", "-2Bit-2x8-hf", "8da4w", "model.quantize: aqlm")


@dataclass(frozen=True)
class Row:
    """A wrong folder: how it is made, and the code and some words of each of its problems."""

    problems: tuple[tuple[str, ...], ...]
    options: dict[str, Any] = field(default_factory=dict)
    tensors: Callable[[Tensors], Any] | None = None
    numbers: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)


def without(*names: str) -> Callable[[Tensors], Any]:
    return lambda tensors: [tensors.pop(name) for name in names]


def also(**parts: torch.Tensor) -> Callable[[Tensors], Any]:
    return lambda tensors: tensors.update({name.replace("__", "."): tensor for name, tensor in parts.items()})


def like(new: str, old: str) -> Callable[[Tensors], Any]:
    return lambda tensors: tensors.update({new: tensors[old].clone()})


def each(ending: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Tensors], Any]:
    return lambda tensors: tensors.update(
        {name: change(tensor) for name, tensor in tensors.items() if name.endswith(ending)}
    )


def added(name: str, *shape: int) -> Callable[[Tensors], Any]:
    return lambda tensors: tensors.update({name: torch.zeros(shape)})


ROWS = {
    # kinds that no operator computes
    "1x16": Row(
        (("aqlm_1x16", "1x16", "65536 entries", *INSTEAD),), numbers={"nbits_per_codebook": 16, "num_codebooks": 1}
    ),
    "1x15": Row((("aqlm_1x16", "1x15", "32768"),), numbers={"nbits_per_codebook": 15, "num_codebooks": 1}),
    "2x12": Row((("aqlm_1x16", "2x12"),), numbers={"nbits_per_codebook": 12}),
    "bits beyond reason": Row((("aqlm_1x16", "1099511627775"),), numbers={"nbits_per_codebook": (1 << 40) - 1}),
    "2x7": Row((("aqlm_bits", "2x7", "8 bits"),), numbers={"nbits_per_codebook": 7}),
    "4x8": Row((("aqlm_codebooks", "4x8", *INSTEAD),), numbers={"num_codebooks": 4}),
    "8x8 g32": Row(
        (("aqlm_codebooks", "8x8"), ("aqlm_in_group", "32 inputs")), numbers={"num_codebooks": 8, "in_group_size": 32}
    ),
    "groups of 16": Row((("aqlm_in_group", "16 inputs", *INSTEAD),), numbers={"in_group_size": 16}),
    "out group 2": Row((("aqlm_out_group", "2 outputs", *INSTEAD),), numbers={"out_group_size": 2}),
    "all of these": Row(
        (("aqlm_1x16",), ("aqlm_codebooks",), ("aqlm_out_group",), ("aqlm_in_group",)),
        numbers={"nbits_per_codebook": 16, "num_codebooks": 3, "out_group_size": 2, "in_group_size": 16},
    ),
    "1x16 in the old spelling": Row(
        (("aqlm_1x16", *INSTEAD),), {"spelling": "aqlm"}, numbers={"nbits_per_codebook": 16}
    ),
    "numbers left out, which means 1x16": Row(
        (("aqlm_1x16", "1x16"),), config={"quantization_config": {"quant_method": "aqlm"}}
    ),
    "quantised head": Row(
        (("aqlm_head", "lm_head", "in layers alone", *INSTEAD),),
        tensors=lambda t: (like("lm_head.codes", f"{Q0}.codes")(t), t.pop("lm_head.weight")),
    ),
    "quantised embedding": Row(
        (("aqlm_head", "model.embed_tokens"),),
        tensors=lambda t: (
            like("model.embed_tokens.codebooks", f"{Q0}.codebooks")(t),
            t.pop("model.embed_tokens.weight"),
        ),
    ),
    "codes of 16 bits": Row(
        (("aqlm_codes", "14 linears", "I16", "1x16 or 1x15", *INSTEAD),), tensors=each(".codes", torch.Tensor.short)
    ),
    "codes that are numbers": Row((("aqlm_codes", "F16"),), tensors=each(".codes", torch.Tensor.half)),
    # configuration and tensors that contradict one another
    "codebooks of 16 bits": Row(
        (("tensor_shape", "all linears", "[1, 65536, 1, 8]", "[2, 256, 1, 8]", *INSTEAD),),
        tensors=each(".codebooks", lambda _: torch.zeros(1, 65536, 1, 8)),
    ),
    "one codebook said, two there": Row(
        (("tensor_shape", "all linears", "num_codebooks: 2"),), numbers={"num_codebooks": 1}
    ),
    "two said, one there": Row((("tensor_shape", "num_codebooks: 1"),), {"codebooks": 1}, numbers={"num_codebooks": 2}),
    "codebooks of some": Row(
        (("tensor_shape", f"of {Q0}", "[2, 128, 1, 8]"),),
        tensors=lambda t: t.update({f"{Q0}.codebooks": torch.zeros(2, 128, 1, 8)}),
    ),
    "codebooks without form": Row(
        (("tensor_shape", f"of {Q0}", "[4096]", "not of AQLM's form"),),
        tensors=lambda t: t.update({f"{Q0}.codebooks": torch.zeros(4096)}),
    ),
    "codebooks of integers": Row((("dtype", "I32"),), tensors=each(".codebooks", torch.Tensor.int)),
    "outputs": Row(
        (
            ("tensor_shape", "gate_proj.codes (layers 0 to 1)", "intermediate_size: 96"),
            ("tensor_shape", "gate_proj.scales"),
            ("tensor_shape", "up_proj.codes"),
            ("tensor_shape", "up_proj.scales"),
            ("tensor_shape", "down_proj.codes", "intermediate_size: 96"),
        ),
        config={"intermediate_size": 104},
    ),
    "inputs that groups do not divide": Row((("aqlm_columns", "100 inputs"),), config={"intermediate_size": 100}),
    "KV heads": Row(
        tuple(
            ("tensor_shape", f"{kind}_proj.{part}", "num_key_value_heads: 2")
            for kind in "kv"
            for part in ("codes", "scales")
        ),
        config={"num_key_value_heads": 1},
    ),
    # tensors that lack, or are too many
    "no codes": Row((("tensor_missing", f"{Q0}.codes is missing"),), tensors=without(f"{Q0}.codes")),
    "codebooks alone": Row(
        (("tensor_missing", "q_proj.codes (layers 0 to 1)"), ("tensor_missing", "q_proj.scales (layers 0 to 1)")),
        tensors=without(f"{Q0}.codes", f"{Q1}.codes", f"{Q0}.scales", f"{Q1}.scales"),
    ),
    "nothing in a linear's place": Row(
        tuple(("tensor_missing", f"{UP0}.{part}") for part in ("codes", "codebooks", "scales")),
        tensors=without(*(f"{UP0}.{part}" for part in ("codes", "codebooks", "scales"))),
    ),
    "weight and codes": Row(
        (("aqlm_twice", f"{Q0} has a plain weight", "AQLM's tensors"),), tensors=added(f"{Q0}.weight", 64, 64)
    ),
    "weight and codes of one that is kept": Row(
        (("aqlm_twice", f"{Q0} has a plain weight"),),
        {"kept": [Q0]},
        tensors=lambda t: [like(f"{Q0}.{part}", f"{Q1}.{part}")(t) for part in ("codes", "codebooks", "scales")],
    ),
    "plain and not listed": Row(
        (("aqlm_kept", "self_attn.q_proj (layers 0 to 1)", "does not name it"),),
        {"kept": [Q0, Q1], "not_quantized": ["lm_head.weight"]},
    ),
    "quantised and listed": Row(
        (("aqlm_kept", Q0, "is quantised, though linear_weights_not_to_quantize names it"),),
        {"not_quantized": ["lm_head.weight", f"{Q0}.weight"]},
    ),
    "everything at once": Row(
        (
            ("aqlm_twice", Q1),
            ("aqlm_kept", Q0, "does not name it"),
            ("aqlm_kept", UP0, "though"),
            ("tensor_shape", "down_proj", "[1, 256, 1, 8]"),
            ("tensor_missing", "model.layers.1.mlp.gate_proj.scales"),
            ("tensor_unknown", "model.layers.0.self_attn.k_proj.zeros"),
        ),
        {"kept": [Q0], "not_quantized": [UP0]},
        tensors=lambda t: (
            added(f"{Q1}.weight", 64, 64)(t),
            added("model.layers.0.self_attn.k_proj.zeros", 3)(t),
            t.pop("model.layers.1.mlp.gate_proj.scales"),
            t.update({"model.layers.1.mlp.down_proj.codebooks": torch.zeros(1, 256, 1, 8)}),
        ),
    ),
    "a layer too many": Row(
        (("tensor_unknown", "3 layers", "num_hidden_layers"),),
        tensors=like("model.layers.2.mlp.up_proj.codes", f"{UP0}.codes"),
    ),
    "a bias that nobody speaks of": Row((("tensor_unknown", f"{Q0}.bias"),), tensors=added(f"{Q0}.bias", 64)),
    "biases that lack": Row(
        (
            ("tensor_missing", "gate_proj.bias"),
            ("tensor_missing", "up_proj.bias"),
            ("tensor_missing", "down_proj.bias"),
        ),
        config={"mlp_bias": True},
    ),
    "parts of another method": Row(
        (("tensor_unknown", f"{Q0}.qzeros", "GPTQ or AWQ"),), tensors=added(f"{Q0}.qzeros", 3)
    ),
    "no codes at all": Row(
        (("aqlm_kept", "hold no codes", "no quantization_config"),), {"kept": LINEARS, "not_quantized": ["lm_head"]}
    ),
    "codes that the configuration does not speak of": Row(
        (("tensor_unknown", "42 tensors", "quantised by AQLM", "config.json that came with them"),),
        config={"quantization_config": None},
    ),
    # the configuration itself
    "numbers of another type": Row(
        (("config", "num_codebooks", "'2'"), ("config", "in_group_size", "True")),
        numbers={"num_codebooks": "2", "in_group_size": True},
    ),
    "null": Row((("config", "num_codebooks"),), numbers={"num_codebooks": None}),
    "negative": Row((("config", "out_group_size", "-1"),), numbers={"out_group_size": -1}),
    "beyond reason": Row((("config", "num_codebooks"),), numbers={"num_codebooks": 10**300}),
    "a list that is none": Row(
        (("config", "linear_weights_not_to_quantize", "'lm_head'"),), {"not_quantized": "lm_head"}
    ),
    "a list of numbers": Row((("config", "linear_weights_not_to_quantize"),), {"not_quantized": [1]}),
    "two blocks that differ": Row(
        (("config", "num_codebooks", "2 in quantization_config and 1 in aqlm"),), config={"aqlm": {"num_codebooks": 1}}
    ),
    "code of its own": Row((("unsupported", "code of its own"),), config={"auto_map": {"AutoConfig": "evil.Config"}}),
    "code of its own beside the old block": Row(
        (("unsupported", "code of its own"),), {"spelling": "aqlm"}, config={"auto_map": {"AutoConfig": "evil.Config"}}
    ),
    "another family": Row((("unsupported", "MixtralForCausalLM"),), config={"architectures": ["MixtralForCausalLM"]}),
    "model_type of another family": Row(
        (("unsupported", "mixtral"),), {"spelling": "aqlm"}, config={"model_type": "mixtral_aqlm"}
    ),
}


def problems_of(folder: Path, row: Row) -> list[Problem]:
    write_aqlm_folder(folder, **row.options)
    if row.tensors is not None:
        tensors = read_weights(folder)
        row.tensors(tensors)
        write_weights(folder, tensors)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config.get("quantization_config", config.get("aqlm")).update(row.numbers)
    path.write_text(json.dumps(config | row.config))
    return header_problems(folder)


@pytest.mark.parametrize("row", ROWS.values(), ids=[name.replace(" ", "-") for name in ROWS])
def test_what_is_said(tmp_path: Path, row: Row) -> None:
    problems = problems_of(tmp_path / "m", row)
    said = [f"{problem.code} {problem.message} {problem.hint}" for problem in problems]
    assert len(said) == len(row.problems), said
    for text, problem, (code, *words) in zip(said, problems, row.problems, strict=True):
        assert problem.code == f"checkpoint.{code}", said
        assert problem.exit_code is ExitCode.CHECKPOINT
        assert problem.file is not None
        assert problem.hint
        for word in words:
            assert word in text, said


@pytest.mark.known_failure("aqlm-1x16-unsupported")
@pytest.mark.parametrize("bits", [15, 16])
def test_large_codebooks_are_refused_before_any_work(tmp_path: Path, bits: int) -> None:
    (problem,) = problems_of(tmp_path / "m", Row((), numbers={"nbits_per_codebook": bits, "num_codebooks": 1}))
    assert problem.code == "checkpoint.aqlm_1x16"
    assert f"1x{bits}" in problem.message
    assert "CPU" in problem.message
    for word in INSTEAD:
        assert word in str(problem.hint)


@pytest.mark.known_failure("aqlm-outgroup2")
def test_groups_of_outputs_are_refused_before_any_work(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path / "m", Row((), numbers={"out_group_size": 2}))
    assert problem.code == "checkpoint.aqlm_out_group"
    for word in INSTEAD:
        assert word in str(problem.hint)


@pytest.mark.parametrize("kind", ["gptq", "awq", "higgs"])
def test_other_methods_are_refused_as_before(tmp_path: Path, kind: str) -> None:
    write_aqlm_folder(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"]["quant_method"] = kind
    path.write_text(json.dumps(config))
    (problem,) = header_problems(tmp_path / "m")
    assert problem.code == "checkpoint.unsupported"
    assert f"quantised by {kind}" in problem.message


def test_an_adapter_on_an_aqlm_base_is_refused_with_the_reason(tmp_path: Path) -> None:
    write_aqlm_folder(tmp_path / "m")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    write_weights(adapter, {"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": torch.zeros(4, 64)})
    (adapter / "model.safetensors").rename(adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 4}))
    checkpoint, (problem,) = examine(tmp_path / "m", adapter)
    assert checkpoint is None
    assert problem.code == "adapter.unsupported"
    assert "AQLM" in problem.message
    assert "unquantised model" in str(problem.hint)


def test_validation_reads_no_tensor_and_needs_no_torch(tmp_path: Path) -> None:
    write_aqlm_folder(tmp_path / "m", container="bin", swapped=True)
    program = (
        "import pathlib, sys, numpy\n"
        "def memmap(*a, **k): raise AssertionError('a tensor was read')\n"
        "numpy.memmap = memmap\n"
        "from etcli.checkpoint.opening import examine\n"
        "checkpoint, problems = examine(pathlib.Path(sys.argv[1]))\n"
        "assert checkpoint and not problems, problems\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "m")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with serve() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.address)
        yield served


def test_an_aqlm_repository_is_fetched_from_the_hub_without_its_code(
    hub: Hub, tmp_path: Path, random_llama: Callable[..., Path]
) -> None:
    folder = tmp_path / "published"
    write_aqlm_folder(folder, container="bin", shards=2, spelling="aqlm", tokenizer=random_llama(tokenizer=True))
    (folder / "modeling_llama_aqlm.py").write_text("raise SystemExit")
    hub.models["someone/Llama-2-7b-AQLM-2Bit-2x8-hf"] = folder
    path = fetched(f"hf:someone/Llama-2-7b-AQLM-2Bit-2x8-hf@{COMMIT}")
    assert header_problems(path) == []
    assert not list(path.glob("*.py"))
    assert sorted(file.name for file in path.glob("pytorch_model*")) == sorted(
        file.name for file in folder.glob("pytorch_model*")
    )


def test_a_repository_of_large_codebooks_is_refused_before_its_weights_are_fetched(hub: Hub, tmp_path: Path) -> None:
    name, folder = "someone/Llama-2-7b-AQLM-2Bit-1x16-hf", tmp_path / "published"
    problems_of(folder, Row((), numbers={"nbits_per_codebook": 16, "num_codebooks": 1}))
    hub.models[name] = folder
    with pytest.raises(EtcliError) as caught:
        fetched(f"hf:{name}@{COMMIT}")
    (problem,) = caught.value.problems
    assert problem.code == "checkpoint.aqlm_1x16"
    assert problem.message.startswith(f"{name} is quantised by AQLM")
    assert hub.downloads == ["config.json"]


def fetched(source: str) -> Path:
    from etcli.checkpoint.source import fetch
    from etcli.output.console import Console
    from etcli.recipe.loaded import LoadedRecipe
    from etcli.recipe.schema import Recipe

    recipe = Recipe.model_validate({"name": "aqlm", "model": {"source": source}})
    return fetch(LoadedRecipe(recipe=recipe, path=Path("r.yaml"), base=Path.cwd(), document={}), Console(verbosity=-1))
