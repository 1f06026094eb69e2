"""`clean` removes what `model.quantize` made for the recipe, and nothing else of the cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_export import load_document

from etcli.checkpoint.opening import open_checkpoint
from etcli.export.aqlm.making import Original, Settings, folder_of
from etcli.output.console import Console
from etcli.tokenizer.opening import open_tokenizer
from etcli.verbs.clean import Cleaned, clean_quantised

QUIET = Console(verbosity=-1)
NOTHING = Cleaned("here", 0)


def document(source: Path, **model: Any) -> dict[str, Any]:
    return {
        "name": "small",
        "model": {"source": str(source), "quantize": "aqlm", **model},
        "export": {"precision": "aqlm", "shapes": ["8t32c", "1t32c"]},
    }


@pytest.mark.parametrize("suffix", ["", ".unfinished"])
def test_what_was_made_or_begun_goes(
    random_llama: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path))
    source = random_llama(tokenizer=True)
    folder = folder_of(Original(source, None, open_checkpoint(source), open_tokenizer(source)), Settings(), QUIET)
    other = folder.with_name("0" * 32)
    for place in (Path(f"{folder}{suffix}"), other):
        place.mkdir(parents=True)
        (place / "model.safetensors").write_bytes(b"weights")
    found = clean_quantised(load_document(document(source)), NOTHING, QUIET)
    assert (found.quantised, found.quantised_files) == (str(folder), 1)
    assert sorted(path.name for path in folder.parent.iterdir() if path.is_dir()) == [other.name]
    assert clean_quantised(load_document(document(source)), NOTHING, QUIET) == NOTHING


def test_a_source_that_is_gone_and_a_recipe_without_quantize_are_left_alone(
    random_llama: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path))
    assert clean_quantised(load_document(document(tmp_path / "gone")), NOTHING, QUIET) == NOTHING
    plain = {"name": "small", "model": {"source": str(random_llama(tokenizer=True))}}
    assert clean_quantised(load_document(plain), NOTHING, QUIET) == NOTHING
