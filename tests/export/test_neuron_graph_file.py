"""Quantised graphs come back as they were, and a file that would have something run is refused."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from etcli.common.errors import ExportError
from etcli.export.neuron.graph_file import load_graph, save_graph

Edit = Callable[[dict[str, Any]], None]


class Network(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)
        self.register_buffer("scale", torch.linspace(0.5, 2, 4))

    def forward(self, x: torch.Tensor, caches: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = x.shape[1]
        return self.linear(x) * self.scale, torch.cat([caches, x], dim=1)[:, tokens:].reshape(1, -1)


def inputs(tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    return torch.randn(1, tokens, 8, generator=generator), torch.randn(1, 16, 8, generator=generator)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "chunk.pt2"
    dynamic = ({1: torch.export.Dim("T", min=1, max=16)}, None)
    save_graph(torch.export.export(Network().eval(), inputs(8), strict=True, dynamic_shapes=dynamic), path)
    return path


def edited(source: Path, target: Path, part: str, edit: Edit) -> Path:
    """A copy of the file with the JSON document `part` changed."""
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as copy:
        for info in archive.infolist():
            data = archive.read(info)
            if info.filename.endswith(part):
                document = json.loads(data)
                edit(document)
                data = json.dumps(document).encode()
            copy.writestr(info.filename, data)
    return target


def refused(path: Path) -> str:
    with pytest.raises(ExportError) as caught:
        load_graph(path)
    (problem,) = caught.value.problems
    assert problem.code == "neuron.graph_file"
    assert problem.file == path
    return problem.message


def test_what_was_written_is_read_for_any_number_of_tokens(written: Path) -> None:
    graph = load_graph(written)
    saved = torch.export.load(written).module()
    for tokens in (1, 5, 16):
        found, expected = graph(*inputs(tokens)), saved(*inputs(tokens))
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


class Rounded(torch.nn.Module):
    """A linear whose weight is rounded along its rows, and one that is used unrounded as well."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype, most = dtype, torch.iinfo(dtype).max
        self.weight, self.shared = torch.nn.Parameter(torch.randn(6, 8)), torch.nn.Parameter(torch.randn(6, 8))
        self.register_buffer("scales", self.weight.detach().abs().amax(1) / most)
        self.register_buffer("zero_points", torch.arange(6) - 3)

    def rounded(self, weight: torch.Tensor) -> torch.Tensor:
        operators, limits = torch.ops.quantized_decomposed, torch.iinfo(self.dtype)
        rest = (self.scales, self.zero_points, 0, limits.min, limits.max, self.dtype)
        integers = operators.quantize_per_channel(weight, *rest)
        return operators.dequantize_per_channel(integers, *rest)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        linear = torch.nn.functional.linear
        return linear(x, self.rounded(self.weight)), linear(x, self.rounded(self.shared)) + self.shared.sum()


def rounded_graph(dtype: torch.dtype, path: Path) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """Written to `path`; an input, and the outputs of the graph as it was."""
    import torch.ao.quantization.fx._decomposed

    torch.manual_seed(0)
    x = torch.randn(3, 8)
    program = torch.export.export(Rounded(dtype).eval(), (x,), strict=True)
    with torch.no_grad():
        outputs = program.module()(x)
    save_graph(program, path)
    return x, outputs


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16])
def test_weights_that_the_graph_rounds_are_stored_so_and_compute_the_same(dtype: torch.dtype, tmp_path: Path) -> None:
    x, outputs = rounded_graph(dtype, tmp_path / "chunk.pt2")
    with zipfile.ZipFile(tmp_path / "chunk.pt2") as archive:
        sizes = {name.rpartition("/")[2]: archive.getinfo(name).file_size for name in archive.namelist()}
        (config,) = (name for name in archive.namelist() if name.endswith("model_weights_config.json"))
        entries = json.loads(archive.read(config))["config"]
    assert sizes[entries["weight"]["path_name"]] == 6 * 8 * dtype.itemsize
    assert sizes[entries["shared"]["path_name"]] == 6 * 8 * 4
    found = load_graph(tmp_path / "chunk.pt2")(x)
    assert all(torch.equal(one, other) for one, other in zip(found, outputs, strict=True))


def test_scales_of_another_axis_are_refused(tmp_path: Path) -> None:
    rounded_graph(torch.int8, tmp_path / "chunk.pt2")

    def along(axis: int) -> Edit:
        def edit(model: dict[str, Any]) -> None:
            for node in model["graph_module"]["graph"]["nodes"]:
                for one in node["inputs"]:
                    if one["name"] == "axis":
                        one["arg"]["as_int"] = axis

        return edit

    for axis in (1, 7, -1):
        path = edited(tmp_path / "chunk.pt2", tmp_path / f"{axis}.pt2", "model.json", along(axis))
        assert "not those of the axis" in refused(path)


def test_writing_into_a_weight_leaves_the_file_alone(written: Path) -> None:
    before = written.read_bytes()
    load_graph(written).get_parameter("linear.weight").detach().zero_()
    assert written.read_bytes() == before


@pytest.mark.parametrize(
    "target", ["torch.hub.load", "torch.ops.aten.from_file.default", "torch.load", "_operator.call", "os.system"]
)
def test_no_other_operator_is_looked_up(target: str, written: Path, tmp_path: Path) -> None:
    def edit(model: dict[str, Any]) -> None:
        model["graph_module"]["graph"]["nodes"][-1]["target"] = target

    assert target in refused(edited(written, tmp_path / "chunk.pt2", "models/model.json", edit))


def test_expressions_are_not_evaluated(written: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"

    def edit(model: dict[str, Any]) -> None:
        values = model["graph_module"]["graph"]["sym_int_values"]
        next(iter(values.values()))["as_expr"]["expr_str"] = f"open({str(mark)!r}, 'w')"

    assert "no sum of products" in refused(edited(written, tmp_path / "chunk.pt2", "models/model.json", edit))
    assert not mark.exists()


@pytest.mark.parametrize(
    "text", ["Pow(9, Pow(9, Pow(9, 9)))", "9**9**9**9", "s0**4**4**4", "Pow(Integer(9), Integer(4))", "1" * 60 + "!"]
)
def test_expressions_that_would_take_for_ever_are_refused(text: str, written: Path, tmp_path: Path) -> None:
    def edit(model: dict[str, Any]) -> None:
        values = model["graph_module"]["graph"]["sym_int_values"]
        next(iter(values.values()))["as_expr"]["expr_str"] = text

    assert "no sum of products" in refused(edited(written, tmp_path / "chunk.pt2", "models/model.json", edit))


def test_guards_are_refused(written: Path, tmp_path: Path) -> None:
    def edit(model: dict[str, Any]) -> None:
        model["guards_code"] = ["print('ran')"]

    assert "guards" in refused(edited(written, tmp_path / "chunk.pt2", "models/model.json", edit))


class Marks:
    """Leaves a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.path), "w")


def test_pickles_are_refused_and_not_read(written: Path, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    stream = io.BytesIO()
    pickle.dump(Marks(mark), stream)

    def edit(weights: dict[str, Any]) -> None:
        next(iter(weights["config"].values()))["use_pickle"] = True

    path = edited(written, tmp_path / "chunk.pt2", "model_weights_config.json", edit)
    assert "pickled" in refused(path)
    samples = tmp_path / "samples.pt2"
    with zipfile.ZipFile(written) as archive, zipfile.ZipFile(samples, "w", zipfile.ZIP_STORED) as copy:
        for info in archive.infolist():
            copy.writestr(info.filename, stream.getvalue() if "sample_inputs" in info.filename else archive.read(info))
    load_graph(samples)  # example inputs are never looked at
    assert not mark.exists()


def test_constants_and_doubled_parts_are_refused(written: Path, tmp_path: Path) -> None:
    def edit(constants: dict[str, Any]) -> None:
        constants["config"]["c"] = {"path_name": "custom_obj_0", "use_pickle": True}

    assert "constants" in refused(edited(written, tmp_path / "a.pt2", "model_constants_config.json", edit))
    doubled = edited(written, tmp_path / "b.pt2", "nothing", lambda _: None)
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(doubled, "a") as archive:
        archive.writestr(next(name for name in archive.namelist() if name.endswith("model.json")), b"{}")
    assert "two parts" in refused(doubled)


@pytest.mark.parametrize("field", ["sizes", "strides"])
def test_weights_stay_within_their_part(field: str, written: Path, tmp_path: Path) -> None:
    def edit(weights: dict[str, Any]) -> None:
        weights["config"]["linear.weight"]["tensor_meta"][field][0]["as_int"] = 1 << 20

    assert "larger than its part" in refused(edited(written, tmp_path / "c.pt2", "model_weights_config.json", edit))


def test_cut_and_foreign_files_are_refused(written: Path, tmp_path: Path) -> None:
    data = written.read_bytes()
    for number, content in enumerate((b"", b"words", data[:-10], data[: len(data) // 2])):
        path = tmp_path / f"{number}.pt2"
        path.write_bytes(content)
        refused(path)
    assert "missing" in refused(tmp_path / "none.pt2")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_are_numbers(value: float, written: Path, tmp_path: Path) -> None:
    """Else every logit would be none, and the device be blamed for it."""
    network = Network().eval()
    weight = network.scale.numpy().tobytes()
    wrong = network.scale.clone()
    wrong[2] = value
    data = written.read_bytes()
    assert data.count(weight) == 1
    path = tmp_path / "nan.pt2"
    with zipfile.ZipFile(written) as archive, zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as copy:
        for info in archive.infolist():
            copy.writestr(info.filename, archive.read(info).replace(weight, wrong.numpy().tobytes()))
    assert "no numbers" in refused(path)
