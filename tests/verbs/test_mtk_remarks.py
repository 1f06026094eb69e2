"""A network that upstream's MediaTek runner gets wrong is told of before it is exported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from small_export import export_here, load_document, small_document

from etcli.output.console import Console
from etcli.verbs.validate import validate

SCALED = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


class Reached(Exception):
    """The export has said what it had to say, and would begin to work."""


@pytest.mark.known_failure("mtk-rope-scaling")
@pytest.mark.parametrize(("runner", "told"), [("mtk", 1), ("etcli", 0)])
def test_scaled_positions(
    random_llama: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runner: str, told: int
) -> None:
    checkpoint = random_llama(tokenizer=True, tie_word_embeddings=True, rope_parameters=SCALED)
    document = {**small_document(checkpoint), "run": {"runner": runner}}
    validating, exporting = Console(verbosity=-1), Console(verbosity=-1)
    validate(load_document(document), validating)

    def reached(*_: object) -> None:
        raise Reached

    monkeypatch.setattr("etcli.export.remarks.vocabulary_warning", reached)
    with pytest.raises(Reached):
        export_here(document, tmp_path, exporting)
    for console in (validating, exporting):
        assert [warning.code for warning in console.warnings].count("mtk.rope_scaling") == told
