"""AQLM folders in every form that is met, read against the dense matrices that their codes stand for, which the test has in float64."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from aqlm_folders import dense_weight, read_weights, write_aqlm_folder, write_weights

from etcli.checkpoint.base import Checkpoint
from etcli.checkpoint.layout import expected_shapes, layer_shapes
from etcli.checkpoint.opening import examine, open_checkpoint
from etcli.common.errors import CheckpointError

Q0 = "model.layers.0.self_attn.q_proj"
UP1 = "model.layers.1.mlp.up_proj"


def opened(folder: Path) -> Checkpoint:
    return open_checkpoint(folder)


def assert_stands_for(checkpoint: Checkpoint, dense: dict[str, torch.Tensor]) -> None:
    """Every tensor of the checkpoint is read, and together they are the network with the weights `dense`, to the last bit."""
    found = {}
    for name in checkpoint.tensors:
        values = checkpoint.read(name)
        assert tuple(values.shape) == checkpoint.tensors[name].shape
        assert values.is_contiguous()
        assert values.dtype == (torch.int8 if name.endswith(".codes") else torch.float32)
        found[name] = values
    for name in [name for name in found if name.endswith(".codes")]:
        linear = name.removesuffix("codes")
        codes, codebooks, scales = (found.pop(linear + part) for part in ("codes", "codebooks", "scales"))
        found[f"{linear}weight"] = dense_weight(codes, codebooks, scales)
    assert found.keys() == dense.keys()
    for name, values in found.items():
        assert values.to(torch.float64).equal(dense[name]), name


@pytest.mark.parametrize("spelling", ["quantization_config", "aqlm"])
@pytest.mark.parametrize(("container", "shards"), [("safetensors", 1), ("safetensors", 3), ("bin", 1), ("bin", 3)])
def test_containers_and_spellings(tmp_path: Path, container: Any, shards: int, spelling: Any) -> None:
    dense = write_aqlm_folder(tmp_path / "m", container=container, shards=shards, spelling=spelling)
    checkpoint = opened(tmp_path / "m")
    assert checkpoint.config.aqlm is not None
    assert (checkpoint.config.aqlm.codebooks, checkpoint.config.aqlm.kept) == (2, ())
    assert checkpoint.unused == ()
    assert checkpoint.remarks == ()
    assert_stands_for(checkpoint, dense)


@pytest.mark.parametrize(
    "options",
    [
        {"codebooks": 1},
        {"dtype": torch.bfloat16},
        {"dtype": torch.float32},
        {"codes_dtype": torch.uint8},
        {"family": "qwen2"},
        {"family": "qwen3", "attention_bias": True},
        {"family": "mistral", "spelling": "aqlm"},
        {"attention_bias": True, "mlp_bias": True},
        {"tie_word_embeddings": True},
        {"hidden_size": 72, "intermediate_size": 104, "num_attention_heads": 3, "num_key_value_heads": 1},
    ],
    ids=str,
)
def test_kinds_of_networks_and_types(tmp_path: Path, options: dict[str, Any]) -> None:
    dense = write_aqlm_folder(tmp_path / "m", **options)
    checkpoint = opened(tmp_path / "m")
    assert_stands_for(checkpoint, dense)
    assert {name: info.shape for name, info in checkpoint.tensors.items()} == expected_shapes(checkpoint.config)


@pytest.mark.known_failure("aqlm-codes-are-signed")
def test_negative_codes_are_the_upper_half_of_a_codebook(tmp_path: Path) -> None:
    write_aqlm_folder(tmp_path / "signed")
    write_aqlm_folder(tmp_path / "unsigned", codes_dtype=torch.uint8)
    signed, unsigned = opened(tmp_path / "signed"), opened(tmp_path / "unsigned")
    codes = signed.read(f"{Q0}.codes")
    assert codes.min() < -100
    assert codes.equal(unsigned.read(f"{Q0}.codes"))
    assert codes.equal(read_weights(tmp_path / "signed")[f"{Q0}.codes"])
    assert (unsigned.read(f"{Q0}.codes").to(torch.int64) & 0xFF).equal(
        read_weights(tmp_path / "unsigned")[f"{Q0}.codes"].to(torch.int64)
    )


@pytest.mark.parametrize("container", ["safetensors", "bin"])
@pytest.mark.known_failure("aqlm-codes-transposed")
def test_the_old_order_of_codes_is_turned(tmp_path: Path, container: Any) -> None:
    dense = write_aqlm_folder(tmp_path / "m", container=container, swapped=True, spelling="aqlm", codebooks=1)
    checkpoint = opened(tmp_path / "m")
    assert checkpoint.tensors[f"{Q0}.codes"].shape == (64, 8, 1)
    assert_stands_for(checkpoint, dense)
    (remark,) = checkpoint.remarks
    assert "14 linears" in remark
    assert "old order" in remark


@pytest.mark.known_failure("aqlm-codes-transposed")
@pytest.mark.parametrize("swapped", [False, True])
def test_where_shapes_cannot_tell_the_order_is_that_of_the_other_linears(tmp_path: Path, swapped: bool) -> None:
    # 256 inputs are 32 groups, and keys and values have 32 outputs
    dense = write_aqlm_folder(tmp_path / "m", hidden_size=256, swapped=swapped)
    checkpoint = opened(tmp_path / "m")
    assert_stands_for(checkpoint, dense)
    remark = checkpoint.remarks[-1]
    assert "k_proj (layers 0 to 1)" in remark
    assert "v_proj (layers 0 to 1)" in remark
    assert "q_proj" not in remark
    assert ("old order, as the others" in remark) is swapped
    assert ("outputs first" in remark) is not swapped


def test_where_nothing_tells_the_order_it_is_todays(tmp_path: Path) -> None:
    others = [f"model.layers.{layer}.mlp.{kind}_proj" for layer in (0, 1) for kind in ("gate", "up", "down")]
    others += [f"model.layers.{layer}.self_attn.{kind}_proj" for layer in (0, 1) for kind in "qo"]
    dense = write_aqlm_folder(tmp_path / "m", hidden_size=256, kept=others)
    checkpoint = opened(tmp_path / "m")
    assert_stands_for(checkpoint, dense)
    (remark,) = checkpoint.remarks
    assert "cannot tell" in remark
    assert "outputs first, as they are saved today" in remark


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("legacy", [False, True])
def test_codes_that_were_saved_as_a_view(tmp_path: Path, swapped: bool, legacy: bool) -> None:
    """Files of `torch.save` keep strides: codes may be turned in the file already, and turned once more by their age."""
    dense = write_aqlm_folder(tmp_path / "m", swapped=swapped)
    tensors = read_weights(tmp_path / "m")
    views = {
        name: tensor.transpose(0, 1).contiguous().transpose(0, 1) if name.endswith(".codes") else tensor
        for name, tensor in tensors.items()
    }
    assert not views[f"{Q0}.codes"].is_contiguous()
    (tmp_path / "m" / "model.safetensors").unlink()
    torch.save(views, tmp_path / "m" / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    checkpoint = opened(tmp_path / "m")
    assert_stands_for(checkpoint, dense)
    whole = checkpoint.read(f"{Q0}.codes")
    assert checkpoint.read_rows(f"{Q0}.codes", 3, 11).equal(whole[3:11])
    write_aqlm_folder(tmp_path / "plain")
    assert checkpoint.sha256(f"{Q0}.codes") != opened(tmp_path / "plain").sha256(f"{Q0}.codes")


def test_a_single_file_of_weights_under_another_name(tmp_path: Path) -> None:
    dense = write_aqlm_folder(tmp_path / "m", container="bin")
    (tmp_path / "m" / "pytorch_model.bin").rename(tmp_path / "m" / "weights.pt")
    assert_stands_for(opened(tmp_path / "m" / "weights.pt"), dense)


@pytest.mark.parametrize("suffix", ["", ".weight"])
def test_linears_that_are_left_plain(tmp_path: Path, suffix: str) -> None:
    names = [f"{name}{suffix}" for name in ("lm_head", "model.norm", UP1, Q0)]
    dense = write_aqlm_folder(tmp_path / "m", kept=[UP1, Q0], not_quantized=names)
    checkpoint = opened(tmp_path / "m")
    assert checkpoint.config.aqlm is not None
    assert checkpoint.config.aqlm.kept == (Q0, UP1)
    assert_stands_for(checkpoint, dense)
    assert "self_attn.q_proj.weight" in layer_shapes(checkpoint.config, 0)
    assert "self_attn.q_proj.codes" in layer_shapes(checkpoint.config, 1)


@pytest.mark.parametrize(
    ("listed", "kept"),
    [
        (["model.layers.1"], 7),
        (["model.layers.1.mlp"], 3),
        (["q_proj"], 2),
        (["self_attn.q_proj.weight"], 2),
        (["layers.1.self_attn.q_proj"], 1),
        (["proj", "model.layers.1.self", "odel.layers.1", "", "model.layers.1.self_attn.q_proj.bias"], 0),
    ],
)
def test_what_a_name_in_the_list_stands_for(tmp_path: Path, listed: list[str], kept: int) -> None:
    """As transformers' `should_convert_module` takes module names, but at whole words."""
    from transformers.quantizers.quantizers_utils import should_convert_module

    linears = [name.removesuffix(".codes") for name in read_names(tmp_path / "all") if name.endswith(".codes")]
    plain = [name for name in linears if not should_convert_module(name, [n.removesuffix(".weight") for n in listed])]
    if kept:
        assert len(plain) == kept
    write_aqlm_folder(tmp_path / "m", kept=plain if kept else [], not_quantized=listed)
    checkpoint = opened(tmp_path / "m")
    assert checkpoint.config.aqlm is not None
    assert checkpoint.config.aqlm.kept == (tuple(sorted(plain)) if kept else ())


def read_names(folder: Path) -> list[str]:
    write_aqlm_folder(folder)
    return list(read_weights(folder))


def test_the_head_is_plain_whether_the_list_names_it_or_not(tmp_path: Path) -> None:
    dense = write_aqlm_folder(tmp_path / "m", not_quantized=[])
    assert_stands_for(opened(tmp_path / "m"), dense)


def test_logits_are_those_of_transformers_with_the_dense_weights(tmp_path: Path) -> None:
    """The rows of queries and keys, the groups along the inputs and the scales of outputs, all at once."""
    import transformers

    dense = write_aqlm_folder(tmp_path / "m", num_hidden_layers=1)
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    del config["quantization_config"]
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config)).double().eval()
    model.load_state_dict(dense, strict=True)
    checkpoint = opened(tmp_path / "m")
    layer = model.model.layers[0]
    inputs = torch.randn(3, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for name in ("self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj"):
        prefix = f"model.layers.0.{name}"
        codes, books, scales = (checkpoint.read(f"{prefix}.{part}") for part in ("codes", "codebooks", "scales"))
        looked_up = books[torch.arange(2), codes.long() & 0xFF].sum(2).squeeze(2)  # [out, in / 8, 8]
        ours = torch.einsum("tgi,ogi->to", inputs.reshape(3, -1, 8), looked_up.double()) * scales.double().view(1, -1)
        torch.testing.assert_close(ours, layer.get_submodule(name)(inputs), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("swapped", [False, True])
def test_rows_of_codes(tmp_path: Path, swapped: bool) -> None:
    write_aqlm_folder(tmp_path / "m", swapped=swapped)
    checkpoint = opened(tmp_path / "m")
    whole = checkpoint.read(f"{Q0}.codes")
    assert checkpoint.read_rows(f"{Q0}.codes", 3, 11).equal(whole[3:11])
    assert checkpoint.read_rows(f"{Q0}.codes", 5, 5).shape == (0, 8, 2)
    assert checkpoint.read_rows(f"{Q0}.codebooks", 1, 2).shape == (1, 256, 1, 8)


def test_hashes_follow_codes_and_their_order(tmp_path: Path) -> None:
    write_aqlm_folder(tmp_path / "m")
    before = opened(tmp_path / "m")
    hashes = {name: before.sha256(name) for name in before.tensors}
    assert len(set(hashes.values())) == len(hashes)
    tensors = read_weights(tmp_path / "m")
    tensors[f"{Q0}.codes"][0, 0, 0] += 1
    write_weights(tmp_path / "m", tensors)
    after = opened(tmp_path / "m")
    assert [name for name in hashes if after.sha256(name) != hashes[name]] == [f"{Q0}.codes"]
    write_aqlm_folder(tmp_path / "old", swapped=True)
    old = opened(tmp_path / "old")
    differing = {name.rpartition(".")[2] for name in hashes if old.sha256(name) != hashes[name]}
    assert differing == {"codes"}


def test_reading_writes_nothing(tmp_path: Path) -> None:
    write_aqlm_folder(tmp_path / "m")
    checkpoint = opened(tmp_path / "m")
    digest = checkpoint.sha256(f"{Q0}.codes")
    checkpoint.read(f"{Q0}.codes").zero_()
    assert opened(tmp_path / "m").read(f"{Q0}.codes").any()
    assert checkpoint.sha256(f"{Q0}.codes") == digest


@pytest.mark.parametrize("value", [0.0, -0.0])
def test_scales_of_nothing_but_zeros_are_refused_when_they_are_read(tmp_path: Path, value: float) -> None:
    write_aqlm_folder(tmp_path / "m")
    tensors = read_weights(tmp_path / "m")
    tensors[f"{Q0}.scales"].fill_(value)
    tensors[f"{UP1}.scales"][3:].fill_(value)  # single outputs may well be zero: a pruned network has such
    write_weights(tmp_path / "m", tensors)
    checkpoint, problems = examine(tmp_path / "m")
    assert checkpoint is not None, problems
    assert checkpoint.read(f"{UP1}.scales").any()
    with pytest.raises(CheckpointError, match="nothing but zeros") as caught:
        checkpoint.read(f"{Q0}.scales")
    assert caught.value.problems[0].code == "checkpoint.aqlm_scales"


def test_a_plain_network_of_the_same_size_has_no_aqlm(random_llama: Callable[..., Path]) -> None:
    checkpoint = opened(random_llama())
    assert checkpoint.config.aqlm is None
    assert layer_shapes(checkpoint.config, 1) == layer_shapes(checkpoint.config)


def test_both_spellings_at_once_are_fine_where_they_agree(tmp_path: Path) -> None:
    dense = write_aqlm_folder(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    config = json.loads(path.read_text())
    block = {key: value for key, value in config["quantization_config"].items() if key != "quant_method"}
    path.write_text(json.dumps(config | {"aqlm": block}))
    assert_stands_for(opened(tmp_path / "m"), dense)


def test_weights_are_those_of_the_packages_own_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the publishers' `aqlm` package, where it happens to be installed."""
    monkeypatch.setenv("AQ_USE_JIT", "0")
    theirs = pytest.importorskip("aqlm.utils")
    dense = write_aqlm_folder(tmp_path / "m")
    checkpoint = opened(tmp_path / "m")
    codes, books, scales = (checkpoint.read(f"{Q0}.{part}") for part in ("codes", "codebooks", "scales"))
    weight = theirs._dequantize_weight(theirs.unpack_int_data(codes, 8), books.double(), scales.double())
    torch.testing.assert_close(weight, dense[f"{Q0}.weight"], rtol=1e-12, atol=1e-12)
