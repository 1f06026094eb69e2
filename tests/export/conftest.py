"""A small random model, exported once for all tests of the room."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from small_export import Exported, export_here, small_document

from etcli.common.workspace import Workspace


@pytest.fixture(scope="session")
def small_checkpoint(random_llama: Callable[..., Path]) -> Path:
    """Two layers, grouped queries, a tied head, llama3 rope, a tokenizer."""
    rope = {
        "rope_type": "llama3",
        "rope_theta": 5e5,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    return random_llama(tokenizer=True, tie_word_embeddings=True, rope_parameters=rope)


@pytest.fixture(scope="session")
def exported(small_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Exported for XNNPACK in two chunks. Tests do not change it: `copied` is there for that."""
    root = tmp_path_factory.mktemp("exported")
    document = small_document(small_checkpoint)
    export_here(document, root, jobs=2)
    return Exported(document, Workspace(root, "small"), small_checkpoint)


@pytest.fixture
def copied(exported: Exported, tmp_path: Path) -> Exported:
    """A whole workspace with its finished pieces, times kept, to be changed."""
    root = tmp_path / "workspace"
    shutil.copytree(exported.workspace.root, root)
    return Exported(copy.deepcopy(exported.document), Workspace(root, "small"), exported.checkpoint)
