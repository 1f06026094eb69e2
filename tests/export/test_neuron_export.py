"""A random model exported for the simulated NPU: what comes out, and that it is what the quantised graph computes."""

from __future__ import annotations

import copy
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from small_export import Exported, export_here, load_document

from etcli.common.errors import EtcliError, ExportError, UsageError
from etcli.common.workspace import Workspace
from etcli.export.estimates import calibration_bytes, disk_bytes, lowering_bytes, quantising_bytes, tables_bytes
from etcli.export.failures import Ended, failure
from etcli.export.inputs import TABLES
from etcli.export.job import Outcome
from etcli.export.neuron import plan
from etcli.export.neuron.graph_file import load_graph
from etcli.export.neuron.records import inputs_of
from etcli.export.neuron.simulated_run import run_methods
from etcli.export.plan import make_plan
from etcli.export.samples import sample_inputs
from etcli.export.verification import Expected, compare_outputs, nudged
from etcli.llama.prefill import Call
from etcli.manifests.bundle import Shape
from etcli.manifests.export_report import ExportReport
from etcli.pte.read import read_program
from etcli.tokenizer.opening import open_tokenizer


def neuron_document(checkpoint: Path, **export: Any) -> dict[str, Any]:
    defaults = {"backend": "neuron", "precision": "A16W8", "chunks": 2, "shapes": ["8t32c", "1t32c"]}
    return {
        "name": "small",
        "model": {"source": str(checkpoint)},
        "export": {**defaults, **export},
        "neuron": {
            "platform": "mt6991",
            "sdk": "simulator",
            "calibration": {"prompts": ["the cat sat on the mat", "a dog"], "response_cap": 4},
        },
    }


@pytest.fixture(scope="module")
def package(small_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    root = tmp_path_factory.mktemp("npu")
    document = neuron_document(small_checkpoint)
    export_here(document, root)
    return Exported(document, Workspace(root, "small"), small_checkpoint)


def test_a_package_is_one_network_a_method_and_shares_its_weights(package: Exported) -> None:
    manifest = package.manifest
    assert manifest.backend == "neuron"
    assert manifest.simulated
    assert manifest.verified
    assert manifest.cache == "shift"
    assert len(manifest.chunks) == 2
    for chunk in manifest.chunks:
        (file,) = chunk.files
        facts = read_program(package.bundle / file.path)
        assert [entry.key for entry in facts.named_data] == [f"chunk_{chunk.index}"]
        for method in facts.methods:
            assert [(one.backend, one.calls) for one in method.delegates] == [("NeuropilotBackend", 1)]
            assert method.operator_names == ()


def test_quantised_graphs_are_in_the_bundle_and_never_on_a_device(package: Exported) -> None:
    manifest = package.manifest
    assert [entry.path for entry in manifest.reference] == ["reference/chunk_0.pt2", "reference/chunk_1.pt2"]
    assert all((package.bundle / entry.path).stat().st_size == entry.size for entry in manifest.reference)
    assert not {entry.path for entry in manifest.reference} & {entry.path for entry in manifest.deployed_files()}


def test_workers_held_no_more_than_was_estimated(package: Exported) -> None:
    model = package.manifest.model
    plan = make_plan(load_document(package.document), model)
    allowed = {
        ".pte": max(lowering_bytes(plan, chunk, chunk.programs[0], model) for chunk in plan.chunks),
        ".pt2": max(quantising_bytes(plan, chunk, model) for chunk in plan.chunks),
        ".safetensors": calibration_bytes(plan, model),
        ".bin": tables_bytes(plan, model),
    }
    seen = set()
    for path in (package.workspace.export_work / "pieces").glob("*/outcome.json"):
        outcome = Outcome.read(path)
        kind = Path(outcome.files[0].path).suffix
        assert outcome.peak_memory_bytes <= allowed[kind], outcome.files
        seen.add(kind)
    assert seen == set(allowed)
    missing = {TABLES, *(program.file for program in plan.programs)}
    assert sum(entry.size for entry in package.manifest.files()) <= disk_bytes(plan, missing, missing)


def test_a_row_is_the_same_number_when_it_comes_back_in_a_cache(package: Exported) -> None:
    """Rows that are larger than any that was measured, all in one call or each in its own: a bound that a row meets twice must be one."""
    config = package.manifest.model
    graph = load_graph(package.bundle / "reference" / "chunk_0.pt2")
    hidden = 3 * torch.randn(1, 8, config.hidden_size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        [(_, together)] = inputs_of(config, 1, 32, [Call(8, 0)], lambda _: hidden, graph)
        singly = list(inputs_of(config, 1, 32, [Call(1, 0)] * 8, lambda row: hidden[:, row : row + 1], graph))
    answers = torch.cat([outputs[0] for _, outputs in singly], dim=1)
    assert (answers - together[0]).abs().max() < 1e-3 * together[0].abs().max()
    for cache, own in zip(singly[-1][1][1:], together[1:], strict=True):
        assert (cache - own).abs().max() < 1e-3 * own.abs().max()


def test_exported_again_it_is_current(package: Exported) -> None:
    assert package.again().current


def test_what_quantising_cost_is_measured_on_the_bundles_graphs(package: Exported, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    root = tmp_path / "workspace"
    shutil.copytree(package.workspace.root, root)
    text = "the dog and the cat of the capital of Japan. " * 6
    (tmp_path / "text.txt").write_text(text)
    result = export_here(package.document, root, evaluate=True, evaluate_text=tmp_path / "text.txt")
    assert result.current
    found = result.evaluation
    assert found is not None
    assert ExportReport.read(result.folder / "export-report.json").evaluation == found
    assert found.positions == 32  # as many as the caches have slots
    model = transformers.LlamaForCausalLM.from_pretrained(package.checkpoint, dtype=torch.float32)
    ids = torch.tensor([open_tokenizer(package.checkpoint).encode(text.strip(), bos=True)[:33]])
    with torch.no_grad():
        loss = model(ids, labels=ids).loss
    assert found.perplexity_float == pytest.approx(float(loss.exp()), rel=1e-3)
    assert found.perplexity == pytest.approx(found.perplexity_float, rel=0.1)
    assert 0 < found.mean_kl < 0.05
    assert len(found.chunk_errors) == 2
    assert all(0 < error < 0.1 for error in found.chunk_errors)


@pytest.mark.known_failure("neuron-compiler-refuses")
def test_what_the_compiler_refuses_is_told_with_its_reason(
    package: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        plan, "_check_simulated_options", lambda *_: None
    )  # as with MediaTek's, whose options nobody else knows
    root = tmp_path / "workspace"
    shutil.copytree(package.workspace.root, root)  # quantised graphs are there already
    document = copy.deepcopy(package.document)
    document["neuron"]["compile_specs"] = {"no-such-option": "1"}
    with pytest.raises(EtcliError) as caught:
        export_here(document, root)
    (problem,) = caught.value.problems
    assert problem.code == "neuron.compiler_failed"
    assert "chunk 0: small_1t32c_0" in problem.message or "chunk 1: small_1t32c_1" in problem.message
    assert "no-such-option" in problem.message
    assert problem.file is not None
    assert problem.file.parent.name == "logs"


@pytest.mark.known_failure("neuron-compiler-dies")
def test_a_compiler_that_crashes_is_told_and_finished_chunks_are_kept(
    package: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "workspace"
    shutil.copytree(package.workspace.root, root)
    document = copy.deepcopy(package.document)
    document["neuron"]["compile_specs"] = {"ImportForever": "1"}  # quantised graphs stay, both chunks are compiled
    monkeypatch.setenv("ETCLI_NEURON_SIM_CRASH", "SIGSEGV:lm_head")
    with pytest.raises(ExportError) as caught:
        export_here(document, root, jobs=1)
    (problem,) = caught.value.problems
    assert problem.code == "neuron.compiler_killed"
    assert re.search(r"killed by SIGSEGV while it compiled small_(8|1)t32c_1 of chunk 1", problem.message)
    assert problem.file is not None
    log = problem.file.read_text()
    assert "mtk_converter 0+simulated, mtk_neuron 0+simulated, executorch " in log
    assert "--platform-config=mt6991" in log
    found = re.search(r"\S+/chunk\.pt2", problem.hint or "")
    assert found is not None
    graph = Path(found[0])
    assert graph.read_bytes() == (package.bundle / "reference" / "chunk_1.pt2").read_bytes()
    monkeypatch.delenv("ETCLI_NEURON_SIM_CRASH")
    result = export_here(document, root)
    assert {chunk.index: chunk.reused for chunk in result.chunks} == {0: True, 1: False}


def test_a_killed_compiler_is_told_with_chunk_and_method(tmp_path: Path) -> None:
    ended = Ended(
        code=-signal.SIGSEGV,
        folder=tmp_path,
        log=tmp_path / "chunk_1.log",
        step="compile small_8t32c_1",
        last=(),
        peak_bytes=1,
        oom_killed=False,
        available_bytes=1 << 40,
    )
    (problem,) = failure("chunk 1", ended).problems
    assert problem.code == "neuron.compiler_killed"
    assert "small_8t32c_1 of chunk 1" in problem.message
    assert "SIGSEGV" in problem.message
    assert problem.file == tmp_path / "chunk_1.log"


def test_a_damaged_network_is_found_after_export(package: Exported, tmp_path: Path) -> None:
    """Weights of the other chunk, whose programs have the same shapes."""
    places = {chunk.index: package.bundle / chunk.files[0].path for chunk in package.manifest.chunks}
    graph = load_graph(package.bundle / "reference" / "chunk_0.pt2")
    inputs = sample_inputs(package.manifest.model, 1, Shape(tokens=8, cache=32), "shift", seed=1)
    with torch.no_grad():
        expected = Expected(tuple(graph(*inputs)), tuple(graph(*nudged(inputs))))
    calls = {
        "small_8t32c_0": inputs,
        "small_1t32c_0": sample_inputs(package.manifest.model, 1, Shape(tokens=1, cache=32), "shift", seed=1),
    }
    found = dict(run_methods(places[0], calls, tmp_path))
    assert compare_outputs("small_8t32c_0", found["small_8t32c_0"], expected, 1e-4) < 0.1
    wrong = [torch.roll(tensor, 1, dims=-1) for tensor in found["small_8t32c_0"]]
    with pytest.raises(ExportError, match="differs"):
        compare_outputs("small_8t32c_0", wrong, expected, 1e-4)


@pytest.mark.parametrize(
    ("layout", "precision"),
    [
        pytest.param("separate", "A16W4", marks=pytest.mark.full),
        pytest.param("package", "A8W8", marks=pytest.mark.full),
        pytest.param("separate", "A8W8", marks=pytest.mark.full),
        pytest.param("package", "A16W4", marks=pytest.mark.full),
        pytest.param("separate", "A16W8", marks=pytest.mark.full),
        pytest.param("package", "A16W16", marks=pytest.mark.full),
        pytest.param("package", "A8W4", marks=pytest.mark.full),
    ],
)
def test_other_layouts_and_precisions(layout: str, precision: str, small_checkpoint: Path, tmp_path: Path) -> None:
    result = export_here(neuron_document(small_checkpoint, layout=layout, precision=precision, chunks=1), tmp_path)
    manifest = result.manifest
    assert manifest is not None
    assert manifest.verified
    files = [file.path for chunk in manifest.chunks for file in chunk.files]
    assert files == (
        ["chunks/small_0.pte"] if layout == "package" else ["chunks/small_8t32c_0.pte", "chunks/small_1t32c_0.pte"]
    )
    for path in files:
        facts = read_program(result.folder / path)
        assert [method.backends for method in facts.methods] == [("NeuropilotBackend",)] * len(facts.methods)
        assert len(facts.named_data) == (1 if layout == "package" else 0)


def test_another_interpreter_is_not_for_a_cluster(package: Exported, tmp_path: Path) -> None:
    document = copy.deepcopy(package.document)
    document["export"]["python"] = "python3"
    with pytest.raises(UsageError) as caught:
        export_here(document, tmp_path, executor="dask://127.0.0.1:1", verify=False)
    assert caught.value.problems[0].code == "export.executor"
