"""The stand-ins for MediaTek's converter and compiler: what they refuse, what they take, and that they shadow nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from simulated_npu import run_network

from etcli.common.errors import ToolError
from etcli.export.backends.neuron import compile_specs
from etcli.export.simulated_sdk import PACKAGES, simulated_sdk, simulated_sdk_path
from etcli.export.simulated_sdk._blob import Tensor, make_constant, read_blob, read_shared
from etcli.toolchain.executorch import host_package
from etcli.toolchain.registrations import read_registrations

PLATFORM = "--platform-config=mt6991"


@pytest.fixture
def sdk() -> Iterator[SimpleNamespace]:
    """Both packages, out of this process again afterwards."""
    with simulated_sdk():
        modules = {name: import_module(name) for name in PACKAGES}
        yield SimpleNamespace(converter=modules["mtk_converter"], neuron=modules["mtk_neuron"])
    for name in list(sys.modules):
        if name.partition(".")[0] in PACKAGES:
            del sys.modules[name]


@pytest.fixture
def compiler(sdk: SimpleNamespace) -> ModuleType:
    compiler: ModuleType = sdk.neuron
    return compiler


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 4).requires_grad_(False)

    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x)).index_select(0, rows)


@pytest.fixture(scope="module")
def partition() -> torch.export.ExportedProgram:
    """Two inputs, of which the first is float32."""
    from executorch.exir import EdgeCompileConfig, to_edge

    exported = torch.export.export(Net().eval(), (torch.rand(2, 3), torch.tensor([1, 0, 1])), strict=True)
    program: torch.export.ExportedProgram = to_edge(
        exported, compile_config=EdgeCompileConfig(_check_ir_validity=False)
    ).exported_program()
    return program


def converter_of(sdk: SimpleNamespace, partition: torch.export.ExportedProgram, **changes: Any) -> Any:
    """A converter set up as ExecuTorch's preprocess does, with `changes`."""
    converter = sdk.converter.PyTorchV2Converter.from_exported_program(partition)
    settings = {
        "quantize": True,
        "input_quantization_bitwidths": None,
        "allow_missing_quantization_ranges": True,
        "prepend_input_quantize_ops": True,
        "prepend_input_quantize_ops_indices": [0],
        "append_output_dequantize_ops": True,
        "append_output_dequantize_ops_indices": [0],
        **changes,
    }
    for name, value in settings.items():
        setattr(converter, name, value)
    return converter


def test_a_partition_is_converted_and_compiled(sdk: SimpleNamespace, partition: torch.export.ExportedProgram) -> None:
    mlir = converter_of(sdk, partition).convert_to_mlir()
    assert isinstance(mlir, str)
    assert "simulated" in mlir
    assert "float32[2, 3]" in mlir
    blob = sdk.neuron.compile(mlir, f"--relax-fp32 --opt=3 {PLATFORM}")
    network = read_blob(blob)
    assert (network.platform, network.options) == ("mt6991", ("--relax-fp32", "--opt=3", PLATFORM))
    assert network.inputs == (Tensor("float32", (2, 3)), Tensor("int64", (3,)))
    assert network.outputs == (Tensor("float32", (3, 4)),)
    assert not network.shared
    assert {constant.name for constant in network.constants} == {"linear.weight", "linear.bias"}
    assert b"linear.weight" in network.program


def test_equal_outputs_and_views_are_written_each_to_its_place(sdk: SimpleNamespace, tmp_path: Path) -> None:
    from executorch.exir import EdgeCompileConfig, to_edge

    class Many(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x * 2.0, x * 2.0, (x * 2.0).reshape(6), x.reshape(3, 2), y.unsqueeze(0), torch.cat([y, y])[2:]

    inputs = (torch.rand(2, 3), torch.rand(2))
    exported = torch.export.export(Many(), inputs, strict=True)
    edge = to_edge(exported, compile_config=EdgeCompileConfig(_check_ir_validity=False)).exported_program()
    settings = {"prepend_input_quantize_ops_indices": [0, 1], "append_output_dequantize_ops_indices": list(range(6))}
    blob = sdk.neuron.compile(converter_of(sdk, edge, **settings).convert_to_mlir(), PLATFORM)
    found = run_network(blob, None, inputs, tmp_path)
    for output, eager in zip(found, Many()(*inputs), strict=True):
        assert torch.equal(output, eager)


def test_constants_are_folded_only_where_nothing_changes(sdk: SimpleNamespace, tmp_path: Path) -> None:
    from executorch.exir import EdgeCompileConfig, to_edge

    quantised = torch.ops.quantized_decomposed

    class Constants(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.linspace(-1, 1, 12).reshape(3, 4))
            self.register_buffer("stored", torch.arange(-6, 6, dtype=torch.int8).reshape(3, 4))
            self.register_buffer("scales", torch.tensor([0.1, 0.2, 0.3]))
            self.register_buffer("zero_points", torch.tensor([1, 0, -2]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            channels = (0, -128, 127, torch.int8)
            rounded = quantised.quantize_per_channel(self.weight, self.scales, self.zero_points, *channels)
            own = quantised.dequantize_per_channel(rounded, self.scales, self.zero_points, *channels)
            before = quantised.dequantize_per_channel(self.stored, self.scales, None, *channels)
            whole = quantised.dequantize_per_tensor(self.stored, 0.3, 1, -128, 127, torch.int8)
            # The weight as it is, too: it keeps its name, the rounded one has a number.
            return x @ self.weight.t() + x @ own.t() + (before + whole).sum(1)

    inputs = (torch.rand(2, 4),)
    exported = torch.export.export(Constants(), inputs, strict=True)
    edge = to_edge(exported, compile_config=EdgeCompileConfig(_check_ir_validity=False)).exported_program()
    blob = sdk.neuron.compile(converter_of(sdk, edge).convert_to_mlir(), PLATFORM)
    constants = {constant.name: constant for constant in read_blob(blob).constants}
    assert (constants["weight"].stored, constants["weight"].scales) == ("float32", None)
    assert (constants["weight.2"].stored, constants["weight.2"].axis) == ("int8", 0)
    assert all(constant.dtype == "float32" for constant in constants.values() if constant.scales is not None)
    (output,) = run_network(blob, None, inputs, tmp_path)
    torch.testing.assert_close(output, Constants()(*inputs), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--opt=3", "--platform-config is missing"),
        ("--platform-config=mt6985", "--platform-config takes one of mt6989, mt6991, mt6993, not 'mt6985'"),
        ("--platform-config", "--platform-config takes one of mt6989, mt6991, mt6993, and has none"),
        (f"{PLATFORM} --opt=4", "--opt takes one of 0, 1, 2, 3, not '4'"),
        (f"{PLATFORM} --opt=", "--opt takes one of 0, 1, 2, 3, not ''"),
        (f"{PLATFORM} --opt=3 --opt=2", "--opt is given twice"),
        (f"{PLATFORM} --gno-exp=1", "--gno-exp takes no value, and has '1'"),
        (f"{PLATFORM} --gno-expp", "unknown option '--gno-expp' (did you mean --gno-exp?)"),
        (f"{PLATFORM} --HighAddr=\x01", "unknown option '--HighAddr=\\x01'"),
        (f"{PLATFORM} stray", "unknown option 'stray'"),
    ],
)
def test_wrong_options_are_refused(compiler: ModuleType, options: str, said: str) -> None:
    with pytest.raises(compiler.CompileError) as caught:
        compiler.compile("", options)
    assert str(caught.value).startswith("simulated compiler: ")
    assert said in str(caught.value)


def test_all_wrong_options_are_told_at_once(compiler: ModuleType) -> None:
    with pytest.raises(
        compiler.CompileError, match=r"--opt takes .*; unknown option '--fast'.*; --platform-config is missing"
    ):
        compiler.compile("", "--opt=9 --fast")


def test_text_from_elsewhere_is_refused(compiler: ModuleType) -> None:
    with pytest.raises(compiler.CompileError, match="not what the simulated converter gives"):
        compiler.compile("module {}", PLATFORM)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"quantize": False}, "quantize is True here"),
        ({"input_quantization_bitwidths": [8, 8]}, "input_quantization_bitwidths is None here"),
        ({"allow_missing_quantization_ranges": False}, "allow_missing_quantization_ranges is True here"),
        ({"prepend_input_quantize_ops": False}, "prepend_input_quantize_ops is True here"),
        (
            {"prepend_input_quantize_ops_indices": [0, 1]},
            r"prepend_input_quantize_ops_indices are .* \[0\], not \[0, 1\]",
        ),
        ({"prepend_input_quantize_ops_indices": []}, r"prepend_input_quantize_ops_indices are .* \[0\], not \[\]"),
        ({"append_output_dequantize_ops_indices": None}, "append_output_dequantize_ops_indices are .*, not None"),
    ],
)
def test_attributes_that_ask_for_something_else_are_refused(
    changes: dict[str, Any], said: str, sdk: SimpleNamespace, partition: torch.export.ExportedProgram
) -> None:
    with pytest.raises(sdk.converter.ConversionError, match=said):
        converter_of(sdk, partition, **changes).convert_to_mlir()


def test_an_attribute_that_there_is_none_of_is_refused(
    sdk: SimpleNamespace, partition: torch.export.ExportedProgram
) -> None:
    with pytest.raises(AttributeError, match="quantise"):
        converter_of(sdk, partition, quantise=True)


def test_what_cannot_be_converted_is_named(sdk: SimpleNamespace) -> None:
    from executorch.exir import EdgeCompileConfig, to_edge

    class Sorted(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.topk(x, 2).values + 1

    exported = torch.export.export(Sorted(), (torch.rand(5),), strict=True)
    edge = to_edge(exported, compile_config=EdgeCompileConfig(_check_ir_validity=False)).exported_program()
    with pytest.raises(
        sdk.converter.ConversionError, match=r"simulated converter: \w+: aten\.topk\.default is not supported"
    ):
        sdk.converter.PyTorchV2Converter.from_exported_program(edge)
    with pytest.raises(sdk.converter.ConversionError, match="not GraphModule"):
        sdk.converter.PyTorchV2Converter.from_exported_program(edge.graph_module)


def test_every_supported_operator_has_a_kernel_of_the_simulated_npu(sdk: SimpleNamespace) -> None:
    import executorch.kernels.quantized  # noqa: F401
    from executorch.exir.dialects._ops import ops as exir_ops

    operators = import_module("mtk_converter._operators").OPERATORS
    package = host_package().root
    kernels = {
        name
        for library in ("kernels_optimized", "kernels_quantized")
        for name in read_registrations(package / "lib" / f"libexecutorch_{library}.so").operators
    }
    missing = []
    for name in sorted(operators - {"getitem"}):
        space, operator, overload = name.split(".")
        out = getattr(getattr(getattr(exir_ops.edge, space), operator), overload).to_out_variant()
        if out._schema.name + (f".{out._schema.overload_name}" if out._schema.overload_name else "") not in kernels:
            missing.append(name)
    assert missing == []


def blobs(compiler: ModuleType, *platforms: str) -> list[bytes]:
    """Networks of a common constant and one of their own each."""
    made = []
    for index, platform in enumerate(platforms):
        converted = SimpleNamespace(
            inputs=(Tensor("float32", (2,)),),
            outputs=(Tensor("float32", (2,)),),
            program=b"program",
            constants=(
                make_constant("common", "float32", (64, 64), bytes(range(256)) * 16, stored="int8", scales=[0.5]),
                make_constant("own", "float32", (2,), bytes([index] * 8)),
            ),
        )

        class Mlir(str):
            pass

        mlir = Mlir("")
        mlir.converted = converted  # type: ignore[attr-defined]
        made.append(compiler.compile(mlir, f"--platform-config={platform}"))
    return made


def test_common_weights_move_into_one_file(compiler: ModuleType) -> None:
    models = blobs(compiler, "mt6991", "mt6991")
    shared, slim = compiler.extract_shared_data(models, options="-e union")
    assert len(slim) == 2
    assert all(len(new) < len(old) - 3800 for new, old in zip(slim, models, strict=True))
    weights = read_shared(shared)
    assert sorted(len(data) for data in weights.values()) == [8, 8, 4096]
    for index, new in enumerate(slim):
        network = read_blob(new)
        assert network.shared
        assert all(constant.data is None for constant in network.constants)
        common, own = (weights[constant.sha256] for constant in network.constants)
        assert bytes(common) == bytes(range(256)) * 16
        assert bytes(own) == bytes([index] * 8)


def test_weights_that_cannot_be_shared_are_refused(compiler: ModuleType) -> None:
    model, other = blobs(compiler, "mt6991", "mt6989")
    for options in ("", "-e", "-e intersection", "--union"):
        with pytest.raises(compiler.CompileError, match="'-e union'"):
            compiler.extract_shared_data([model], options=options)
    with pytest.raises(compiler.CompileError, match="no models"):
        compiler.extract_shared_data([], options="-e union")
    with pytest.raises(compiler.CompileError, match="mt6991 and mt6989"):
        compiler.extract_shared_data([model, other], options="-e union")
    with pytest.raises(compiler.CompileError, match="bytes, not str"):
        compiler.extract_shared_data(["model"], options="-e union")
    with pytest.raises(compiler.CompileError, match="simulated NPU"):
        compiler.extract_shared_data([b"TFL3" + model[4:]], options="-e union")
    _, (slim,) = compiler.extract_shared_data([model], options="-e union")
    with pytest.raises(compiler.CompileError, match="taken out before"):
        compiler.extract_shared_data([slim], options="-e union")


def test_the_simulator_is_found_only_where_it_is_asked_for() -> None:
    program = """
import importlib.util, sys
from etcli.export.simulated_sdk import is_simulated, simulated_sdk
assert importlib.util.find_spec("mtk_neuron") is None and importlib.util.find_spec("mtk_converter") is None
with simulated_sdk():
    import mtk_neuron
    assert is_simulated()
assert "torch" not in sys.modules
assert importlib.util.find_spec("mtk_converter") is None
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_vendors_packages_are_never_shadowed_and_never_used_for_the_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mtk_neuron.py").write_text("vendor = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    with simulated_sdk():
        simulated = import_module("mtk_neuron")
    assert Path(simulated.__file__ or "").is_relative_to(simulated_sdk_path())
    for name in [name for name in sys.modules if name.partition(".")[0] == "mtk_neuron"]:
        monkeypatch.delitem(sys.modules, name)
    vendor = import_module("mtk_neuron")
    assert vendor.vendor is True
    with pytest.raises(ToolError) as caught, simulated_sdk():
        pass
    assert caught.value.problems[0].code == "neuron.sdk_already_imported"
    monkeypatch.delitem(sys.modules, "mtk_neuron")


def test_compile_specs_are_those_of_executorchs_own_export_and_the_users() -> None:
    specs = compile_specs("mt6991", shared_key="net_0")
    assert [(spec.key, spec.value) for spec in specs] == [
        ("gno", b"LTS"),
        ("gno-exp", b""),
        ("gno-non-4d-tiling", b""),
        ("ImportForever", b"\x01"),
        ("platform-config", b"mt6991"),
        ("ExtractSharedBlobKey", b"net_0"),
    ]
    own = {
        spec.key: spec.value
        for spec in compile_specs("mt6989", additions={"gno": "NDF", "HighAddr": "1", "ImportForever": "0"})
    }
    assert own["gno"] == b"NDF"
    assert own["HighAddr"] == b"\x01"
    assert own["ImportForever"] == b"\x00"
    assert "ExtractSharedBlobKey" not in own
    for key, value in (("platform-config", "mt6989"), ("ExtractSharedBlobKey", "x"), ("HighAddr", "yes")):
        with pytest.raises(ValueError, match=key):
            compile_specs("mt6991", additions={key: value})
