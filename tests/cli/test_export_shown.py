"""What `etcli export` prints at its end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import samples

from etcli.cli import show
from etcli.common.workspace import Workspace
from etcli.export.result import ExportResult, exported_files
from etcli.manifests.bundle import BundleManifest
from etcli.manifests.export_report import ChunkReport
from etcli.output.console import Console


def shown(
    files: list[tuple[int, str]], capsys: pytest.CaptureFixture[str], manifest: object = None, of: str = ""
) -> list[list[str]]:
    """The cells of the table of errors for these programs, with a chunk each."""
    chunks = tuple(
        ChunkReport(
            index=index,
            file=file,
            seconds={},
            peak_memory_bytes=0,
            weights_bytes=0,
            max_abs_error=None,
            reused=False,
            float_errors={"method": 0.01 * (place + 1)},
        )
        for place, (index, file) in enumerate(files)
    )
    show.exported(
        Console(),
        ExportResult(
            cast("BundleManifest", manifest or SimpleNamespace(precision="8da4w")), Path("bundle"), chunks=chunks
        ),
    )
    lines = capsys.readouterr().out.splitlines()
    table = lines[lines.index(f"Error{of} against float32 on random inputs") + 1 :]
    (told,) = [line for line in table if "does not measure answers" in line]
    assert "etcli export --evaluate" in told
    return [
        [cell.strip() for cell in line.replace("┃", "│").split("│")] for line in table if "┃" in line or "│" in line
    ]


def test_errors_are_those_of_chunks(capsys: pytest.CaptureFixture[str]) -> None:
    rows = shown([(0, "chunks/small_0.pte"), (1, "chunks/small_1.pte")], capsys)
    assert rows == [["chunk", "root mean square"], ["0", "1.000%"], ["1", "2.000%"]]


def test_programs_of_one_chunk_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    rows = shown([(0, "chunks/small_8t32c_0.pte"), (0, "chunks/small_1t32c_0.pte")], capsys)
    assert rows[0][0] == "program"
    assert [row[0] for row in rows[1:]] == ["chunks/small_8t32c_0.pte", "chunks/small_1t32c_0.pte"]


def test_with_aqlm_the_error_is_said_to_be_the_heads(capsys: pytest.CaptureFixture[str]) -> None:
    rows = shown([(1, "chunks/small_1.pte")], capsys, SimpleNamespace(precision="aqlm"), of=" of the head")
    assert rows[1:] == [["1", "1.000%"]]


@pytest.mark.known_failure("export-what-comes-out")
def test_every_file_of_the_bundle_is_shown_with_its_role(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded = samples.make_recipe(tmp_path)
    manifest = samples.make_bundle(loaded, Workspace(tmp_path / "work", loaded.recipe.name))
    files = exported_files(manifest)
    roles = {file.path: file.role for file in files}
    assert set(roles) == {file.path for file in manifest.files()}
    assert roles["embedding_float32.bin"] == "embedding"
    assert [role for role in roles.values() if role.startswith("chunk")] == ["chunk 0", "chunk 1"]
    show.exported(Console(), ExportResult(manifest, tmp_path / "bundle", files=files))
    lines = capsys.readouterr().out.splitlines()
    for file in files:
        (line,) = (line for line in lines if f" {file.path} " in line)
        assert file.sha256[:12] in line
        assert file.role in line
