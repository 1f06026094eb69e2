"""Lowering gives the same bytes however little it copies, and the verification sees what is wrong."""

from __future__ import annotations

import copy
import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from executorch.exir._serialize._named_data_store import NamedDataStore
from small_export import Exported

from etcli.common.errors import CheckpointError, EtcliError, ExportError
from etcli.export import lean
from etcli.export.assembly import united_config
from etcli.export.backends.base import Backend
from etcli.export.backends.portable import Portable
from etcli.export.backends.xnnpack import Xnnpack
from etcli.export.contract import method_entry
from etcli.export.job import ChunkWork, NamedShape
from etcli.export.lowering import PROGRAM
from etcli.export.operators import fewest_calls
from etcli.export.runtime import run_method
from etcli.export.samples import sample_inputs
from etcli.export.verification import Expected, check_tensors, compare_methods, delegate_calls
from etcli.manifests.bundle import Shape
from etcli.pte.facts import MethodFacts, ProgramFacts
from etcli.pte.read import read_program


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(256, 256).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


def lowered(path: Path, net: Net, backend: Backend) -> bytes:
    programs = {f"m_{rows}": torch.export.export(net, (torch.randn(rows, 256),), strict=False) for rows in (3, 1)}
    with path.open("wb") as file:
        backend.lower(programs).write_to_file(file)
    return path.read_bytes()


@pytest.mark.parametrize("backend", [Xnnpack(), Portable()])
def test_lean_lowering_gives_the_same_bytes_and_cleans_up(tmp_path: Path, backend: Backend) -> None:
    """Weights of a delegate, and constants that stay outside, are on the disk and not in memory."""
    torch.manual_seed(0)
    net = Net().eval()
    plain = lowered(tmp_path / "plain.pte", net, backend)
    add, thresholds = NamedDataStore.add_named_data, lean.gc.get_threshold()
    with lean.lean_lowering(tmp_path):
        assert copy.deepcopy(net.linear.weight) is net.linear.weight
        trained = torch.nn.Parameter(torch.ones(2))
        assert copy.deepcopy(trained) is not trained
        assert lowered(tmp_path / "lean.pte", net, backend) == plain
        blobs = [path for path in tmp_path.iterdir() if path.suffix == ""]
        assert [path.stat().st_size for path in blobs] == [256 * 256 * 4]
    assert copy.deepcopy(net.linear.weight) is not net.linear.weight
    assert NamedDataStore.add_named_data is add
    assert lean.gc.get_threshold() == thresholds


def test_other_versions_are_left_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lean.known_versions()
    monkeypatch.setattr(lean, "KNOWN", {**lean.KNOWN, "executorch": "1.5.2"})
    add = NamedDataStore.add_named_data
    with lean.lean_lowering(tmp_path):
        assert NamedDataStore.add_named_data is add


def test_sample_inputs_are_repeatable_and_mean_something(exported: Exported) -> None:
    model, shape = exported.manifest.model, Shape(tokens=8, cache=32)
    first, second = (sample_inputs(model, 1, shape, "shift", seed=3) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    hidden, mask, rotary, *caches = first
    assert hidden.shape == (1, 8, 64)
    assert (mask[0, 0, 0] == 0).sum() == 16 + 1
    assert torch.allclose(rotary[:, 0] ** 2 + rotary[:, 1] ** 2, torch.ones(1, 8, 16))
    assert [cache.shape for cache in caches] == [(1, 2, 32, 16)] * 2


WORK = ChunkWork(
    index=0,
    first_layer=0,
    layers=1,
    head=False,
    methods=(
        NamedShape(name="small_8t32c_0", shape=Shape(tokens=8, cache=32)),
        NamedShape(name="small_1t32c_0", shape=Shape(tokens=1, cache=32)),
    ),
    cache="shift",
    backend="xnnpack",
    tolerance=1e-4,
)


@pytest.fixture
def program(exported: Exported, tmp_path: Path) -> Path:
    """A copy of the first chunk's program."""
    return Path(shutil.copy(exported.bundle / "chunks/small_0.pte", tmp_path / PROGRAM))


Calls = dict[str, list[torch.Tensor]]
Wanted = dict[str, Expected]


@pytest.fixture
def calls(exported: Exported, program: Path) -> tuple[Calls, Wanted]:
    """Inputs of each method, and what the program gives for them."""
    inputs = {
        method.name: list(sample_inputs(exported.manifest.model, 1, method.shape, WORK.cache, seed=0))
        for method in WORK.methods
    }
    return inputs, {name: Expected(tuple(run_method(program, name, tensors))) for name, tensors in inputs.items()}


def test_verification_passes_and_tells_what_it_found(
    program: Path, calls: tuple[Calls, Wanted], exported: Exported
) -> None:
    facts, methods = check_tensors(program, WORK)
    assert methods == exported.manifest.chunks[0].files[0].methods
    wanted = dict.fromkeys(calls[0], fewest_calls(WORK, exported.manifest.model))
    assert delegate_calls(facts, methods, "XnnpackBackend") == wanted
    assert compare_methods(program, WORK, *calls) == {"small_8t32c_0": 0.0, "small_1t32c_0": 0.0}


@pytest.mark.parametrize(("method", "output"), [("small_8t32c_0", 0), ("small_1t32c_0", 2)])
@pytest.mark.parametrize("wrong", [1e-2, float("nan")])
def test_verification_refuses_another_result(
    program: Path, calls: tuple[Calls, Wanted], method: str, output: int, wrong: float
) -> None:
    calls[1][method].outputs[output].view(-1)[-1] += wrong
    with pytest.raises(ExportError, match=f"output {output} differs") as caught:
        compare_methods(program, WORK, *calls)
    assert caught.value.problems[0].code == "export.differs"


def test_verification_refuses_a_damaged_program(program: Path) -> None:
    content = program.read_bytes()
    program.write_bytes(content[: len(content) // 2])
    with pytest.raises(ExportError, match="not a whole ExecuTorch program"):
        check_tensors(program, WORK)


def _planned(method: MethodFacts) -> MethodFacts:
    first, *others = method.outputs
    return dataclasses.replace(method, outputs=(dataclasses.replace(first, planned=True), *others))


def _last_row_only(method: MethodFacts) -> MethodFacts:
    first, *others = method.outputs
    return dataclasses.replace(method, outputs=(dataclasses.replace(first, shape=(1, 1, 64)), *others))


def _short_cache(method: MethodFacts) -> MethodFacts:
    *others, last = method.outputs
    return dataclasses.replace(method, outputs=(*others, dataclasses.replace(last, shape=(1, 2, 8, 16))))


def _no_mask(method: MethodFacts) -> MethodFacts:
    return dataclasses.replace(method, inputs=(method.inputs[0], *method.inputs[2:]))


def _transposed(method: MethodFacts) -> MethodFacts:
    first, *others = method.inputs
    return dataclasses.replace(method, inputs=(dataclasses.replace(first, dim_order=(0, 2, 1)), *others))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_planned, "hidden has a place in the program's memory plan"),
        (_last_row_only, "which is not 8 rows"),
        (_short_cache, "value_0 goes in as"),
        (_no_mask, "4 tensors where 5 are expected"),
        (_transposed, "hidden is not a contiguous tensor"),
    ],
)
def test_contract_names_the_tensor_that_breaks_it(
    exported: Exported, change: Callable[[MethodFacts], MethodFacts], words: str
) -> None:
    facts = read_program(exported.bundle / "chunks/small_0.pte")
    method = facts.method("small_8t32c_0")
    assert method is not None
    broken = dataclasses.replace(facts, methods=(change(method),))
    with pytest.raises(ExportError, match=words):
        method_entry(broken, WORK, WORK.methods[0])
    with pytest.raises(ExportError, match="missing from the program"):
        method_entry(dataclasses.replace(facts, methods=()), WORK, WORK.methods[0])
    assert isinstance(facts, ProgramFacts)


class _Tokenizer:
    vocab_size = 300
    stop_ids = (9, 4)


@pytest.mark.known_failure("tokenizer-stop-ids")
def test_stop_ids_of_checkpoint_and_tokenizer_are_united(exported: Exported) -> None:
    model = exported.manifest.model.model_copy(update={"stop_ids": (7, 4)})
    assert united_config(model, _Tokenizer()).stop_ids == (4, 7, 9)  # type: ignore[arg-type]


@pytest.mark.parametrize(("vocab_size", "stop_ids", "code"), [(400, (), "vocabulary"), (300, (320,), "stop_ids")])
@pytest.mark.known_failure("tokenizer-larger-than-embedding")
def test_tokenizer_of_another_model(exported: Exported, vocab_size: int, stop_ids: tuple[int, ...], code: str) -> None:
    tokenizer = _Tokenizer()
    tokenizer.vocab_size, tokenizer.stop_ids = vocab_size, stop_ids  # type: ignore[misc, assignment]
    with pytest.raises(CheckpointError) as caught:
        united_config(exported.manifest.model, tokenizer)  # type: ignore[arg-type]
    assert isinstance(caught.value, EtcliError)
    assert caught.value.problems[0].code == f"tokenizer.{code}"
