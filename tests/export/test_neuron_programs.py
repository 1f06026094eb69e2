"""What is compiled for the simulated NPU computes what the same quantised graph computes in eager PyTorch."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import neuron_programs
import pytest
import torch
from neuron_programs import PRECISIONS
from simulated_npu import Delegated, delegated, header_of, run_network

Methods = tuple[dict[str, Delegated], Mapping[str, tuple]]
"""The delegated methods, and by their name what eager gets and gives."""

Programs = Callable[[str, str, str], Methods]

USUAL = [("small", "package", precision) for precision in PRECISIONS]
USUAL += [("small", "separate", "A8W8"), ("chunk", "package", "A16W4")]

STEPS = {"A16": 2.0**-15, "A8": 2.0**-7}
"""A step of an activation, by a tensor's largest value. Where products are added up in another order, one may fall on the other side of a
half, and from layer to layer more of them. How many do depends on the processor's own kernels, so the sizes are limited and not the number."""

ALLOWED_STEPS = 8
ALLOWED_MEAN_STEPS = 0.25
"""How many steps a value may be off, and all values on average."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """The methods of a network in a layout and a precision. The usual ones are made in one process, others when they are asked for."""
    folder = tmp_path_factory.mktemp("neuron")

    def make(wanted: list[tuple[str, str, str]]) -> None:
        words = [word for one in wanted for word in one]
        done = subprocess.run(
            [sys.executable, "-W", "ignore", neuron_programs.__file__, folder, *words],
            capture_output=True,
            text=True,
            timeout=590,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "2"},
        )
        assert done.returncode == 0, done.stderr[-4000:]

    def methods(network: str, layout: str, precision: str) -> Methods:
        stem = f"{network}_{layout}_{precision}"
        if not (folder / f"{stem}.pte").exists():
            one = (network, layout, precision)
            make(USUAL if one in USUAL else [one])
        found = delegated((folder / f"{stem}.pte").read_bytes())
        if layout == "separate":
            found |= delegated((folder / f"{stem}_1.pte").read_bytes())
        return found, torch.load(folder / f"{stem}.pt")

    return methods


def check_method(
    method: Delegated, shared: bytes | None, expected: Mapping[str, tuple], precision: str, folder: Path
) -> None:
    inputs, outputs = expected[method.method]
    found = run_network(method.blob, shared, [inputs[index] for index in method.inputs], folder)
    for index, output in zip(method.outputs, found, strict=True):
        eager = outputs[index]
        assert output.shape == eager.shape
        step = STEPS[precision.partition("W")[0]] * eager.abs().max()
        off = (output - eager).abs() / step
        assert off.max() <= ALLOWED_STEPS, (method.method, index)
        assert off.mean() <= ALLOWED_MEAN_STEPS, (method.method, index)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_precision_computes_what_eager_does(precision: str, programs: Programs, tmp_path: Path) -> None:
    methods, expected = programs("small", "package", precision)
    assert sorted(methods) == ["net_1t32c_0", "net_8t32c_0"]
    for method in methods.values():
        check_method(method, method.shared["net_0"], expected, precision, tmp_path)


def test_a_chunk_computes_what_eager_does(programs: Programs, tmp_path: Path) -> None:
    methods, expected = programs("chunk", "package", "A16W4")
    for method in methods.values():
        check_method(method, method.shared["net_0"], expected, "A16W4", tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("layout", ["package", "separate"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_chunk_of_every_precision_and_layout(precision: str, layout: str, programs: Programs, tmp_path: Path) -> None:
    methods, expected = programs("chunk", layout, precision)
    assert len(methods) == 2
    for method in methods.values():
        check_method(method, method.shared.get("net_0"), expected, precision, tmp_path)


def test_networks_of_their_own_weights_compute_the_same(programs: Programs, tmp_path: Path) -> None:
    methods, expected = programs("small", "separate", "A8W8")
    assert len(methods) == 2
    for method in methods.values():
        assert method.shared == {}
        assert header_of(method.blob)["shared"] is False
        assert "--dla-opt=0" not in header_of(method.blob)["options"]
        check_method(method, None, expected, "A8W8", tmp_path)


def test_the_delegate_gets_what_its_contract_says(programs: Programs) -> None:
    methods, expected = programs("chunk", "package", "A16W4")
    options = "--relax-fp32 --opt=3 --gno=LTS --gno-exp --gno-non-4d-tiling --platform-config=mt6991 --dla-opt=0"
    for name, method in methods.items():
        inputs, outputs = expected[name]
        assert method.backend == "NeuropilotBackend"
        assert method.head == (1, len(inputs), len(outputs), len(method.blob))
        assert method.specs["ImportForever"] == b"\x01"
        assert method.specs["ExtractSharedBlobKey"] == b"net_0"
        header = header_of(method.blob)
        assert header["simulated"] is True
        assert header["platform"] == "mt6991"
        assert header["options"] == options.split()
        # The partition's own order, in which logits come last.
        assert method.outputs == (1, 3, 2, 4, 0)
        for tensors, order, described in ((inputs, method.inputs, "inputs"), (outputs, method.outputs, "outputs")):
            assert [one["shape"] for one in header[described]] == [list(tensors[index].shape) for index in order]
            assert {one["dtype"] for one in header[described]} == {"float32"}


@pytest.mark.parametrize(
    ("precision", "stored", "limits"),
    [
        ("A16W4", "int8", (-8, 7)),
        ("A16W8", "int8", (-128, 127)),
        ("A16W16", "int16", (-32768, 32767)),
        ("A8W4", "int8", (-8, 7)),
    ],
)
def test_weights_are_stored_as_they_are_quantised_and_once(
    precision: str, stored: str, limits: tuple[int, int], programs: Programs
) -> None:
    methods, _ = programs("small", "package", precision)
    kept = []
    for method in methods.values():
        shared = method.shared["net_0"]
        weights = header_of(shared)["weights"]
        header = header_of(method.blob)
        assert header["shared"] is True
        constants = {one["name"]: one for one in header["constants"]}
        for name, shape in (("up.weight", [24, 16]), ("down.weight", [16, 24])):
            weight = constants[name]
            assert weight["dtype"] == "float32"
            assert weight["shape"] == shape
            assert weight["stored"]["dtype"] == stored
            assert weight["stored"]["axis"] == 0
            assert weight["stored"]["scales"]["size"] == 4 * shape[0]
            place = weights[weight["sha256"]]
            data = shared[place["offset"] : place["offset"] + place["size"]]
            values = torch.frombuffer(bytearray(data), dtype=getattr(torch, stored))
            assert limits[0] <= values.min() < 0 < values.max() <= limits[1]
            # Every weight of random numbers reaches the end of its row's range.
            assert values.max() == limits[1] or values.min() == limits[0]
        assert constants["down.bias"]["stored"]["dtype"] == "float32"
        assert all("offset" not in one["stored"] for one in header["constants"])
        assert all(
            hashlib.sha256(shared[place["offset"] : place["offset"] + place["size"]]).hexdigest() == key
            for key, place in weights.items()
        )
        kept.append({one["sha256"] for one in header["constants"]})
    assert kept[0] == kept[1]


def test_nothing_of_a_weight_is_computed_in_a_call(programs: Programs) -> None:
    from executorch.exir._serialize._program import deserialize_pte_binary

    methods, _ = programs("chunk", "package", "A16W4")
    for method in methods.values():
        place = header_of(method.blob)["program"]
        nested = deserialize_pte_binary(method.blob[place["offset"] : place["offset"] + place["size"]]).program
        (plan,) = nested.execution_plan
        assert plan.name == "forward"
        operators = [operator.name for operator in plan.operators]
        assert "aten::linear" in operators
        assert not {"aten::mm", "aten::addmm", "quantized_decomposed::quantize_per_channel"} & set(operators)
        # No constant's bytes are in the program.
        assert all(not buffer.storage for buffer in nested.constant_buffer)
