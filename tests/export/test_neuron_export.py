"""A random model exported for the simulated NPU: what comes out, and that it is what the quantised graph computes."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_export import Exported, export_here

from etcli.common.workspace import Workspace
from etcli.pte.read import read_program

pytestmark = pytest.mark.xdist_group("neuron_export")


def neuron_document(checkpoint: Path, **export: object) -> dict[str, object]:
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


def test_exported_again_it_is_current(package: Exported) -> None:
    assert package.again().current
