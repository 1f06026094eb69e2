"""Recipe and AQLM checkpoint held against one another: `validate` and `export` refuse alike, at the recipe's line, before any work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from aqlm_folders import write_aqlm_folder

from etcli.checkpoint.opening import open_checkpoint
from etcli.common.errors import EtcliError, ExitCode, Problem
from etcli.common.workspace import Workspace
from etcli.export.stage import ExportOptions, export
from etcli.output.console import Console
from etcli.recipe.fit import fit_problems, quantising_problems
from etcli.recipe.loaded import LoadedRecipe
from etcli.recipe.loader import load
from etcli.verbs.inspect import inspect
from etcli.verbs.validate import validate

Build = Callable[..., Path]
QUIET = Console(verbosity=-1)


@pytest.fixture
def aqlm(tmp_path: Path, random_llama: Build) -> Path:
    """A small AQLM folder with a tokenizer."""
    folder = tmp_path / "m"
    write_aqlm_folder(folder, kept=["model.layers.0.self_attn.q_proj"], tokenizer=random_llama(tokenizer=True))
    return folder


def recipe(tmp_path: Path, source: Path, precision: str, *more: str) -> LoadedRecipe:
    path = tmp_path / "etcli.yaml"
    lines = [
        "name: tiny",
        "model:",
        f"  source: {source}",
        *more,
        "export:",
        "  shapes: [8t64c, 1t64c]",
        f"  precision: {precision}",
    ]
    path.write_text("\n".join(lines) + "\n")
    return load(str(path))


def refused(loaded: LoadedRecipe, tmp_path: Path) -> Problem:
    """What `validate` says, which is what `export` says, and that alone, with nothing written."""
    with pytest.raises(EtcliError) as caught:
        validate(loaded, QUIET)
    (problem,) = caught.value.problems
    workspace = Workspace(tmp_path / "work", "tiny")
    with pytest.raises(EtcliError) as again:
        export(loaded, workspace, ExportOptions(), QUIET)
    assert again.value.problems == (problem,)
    assert not workspace.root.exists()
    assert problem.exit_code is ExitCode.USAGE
    assert problem.file == tmp_path / "etcli.yaml"
    return problem


def test_the_right_precision_is_fine(tmp_path: Path, aqlm: Path) -> None:
    result = validate(recipe(tmp_path, aqlm, "aqlm"), QUIET)
    assert result.model is not None
    assert result.model.aqlm is not None
    assert result.summary.endswith("safetensors, quantised by AQLM 2x8")


@pytest.mark.parametrize("precision", ["fp32", "fp16", "8da4w"])
def test_another_precision_for_an_aqlm_checkpoint(tmp_path: Path, aqlm: Path, precision: str) -> None:
    problem = refused(recipe(tmp_path, aqlm, precision), tmp_path)
    assert (problem.code, problem.line) == ("recipe.aqlm_checkpoint", 6)
    assert "export.precision: aqlm" in str(problem.hint)


def test_precision_aqlm_for_plain_weights(tmp_path: Path, random_llama: Build) -> None:
    problem = refused(recipe(tmp_path, random_llama(tokenizer=True), "aqlm"), tmp_path)
    assert (problem.code, problem.line) == ("recipe.aqlm_plain", 6)
    assert "model.quantize: aqlm" in str(problem.hint)
    assert "demonstration" in str(problem.hint)


def test_a_checkpoint_that_is_refused_is_refused_by_both(tmp_path: Path, aqlm: Path) -> None:
    path = aqlm / "config.json"
    path.write_text(path.read_text().replace('"nbits_per_codebook": 8', '"nbits_per_codebook": 16'))
    loaded = recipe(tmp_path, aqlm, "aqlm")
    for work in (
        lambda: validate(loaded, QUIET),
        lambda: export(loaded, Workspace(tmp_path / "work", "tiny"), ExportOptions(), QUIET),
    ):
        with pytest.raises(EtcliError) as caught:
            work()
        assert [problem.code for problem in caught.value.problems] == ["checkpoint.aqlm_1x16"]
        assert caught.value.exit is ExitCode.CHECKPOINT
    assert not (tmp_path / "work").exists()


def test_quantising_what_is_quantised(tmp_path: Path, aqlm: Path) -> None:
    loaded = recipe(tmp_path, aqlm, "aqlm", "  quantize: aqlm")
    config = open_checkpoint(aqlm).config
    (problem,) = quantising_problems(loaded, config)
    assert (problem.code, problem.line) == ("recipe.aqlm_twice", 4)
    assert list(fit_problems(loaded, config)) == []  # as it is of the folder that model.quantize makes


def test_quantising_linears_that_groups_do_not_divide(tmp_path: Path, random_llama: Build) -> None:
    folder = random_llama(intermediate_size=100)
    loaded = recipe(tmp_path, folder, "aqlm", "  quantize: aqlm")
    (problem,) = quantising_problems(loaded, open_checkpoint(folder).config)
    assert (problem.code, problem.line) == ("recipe.aqlm_group", 4)
    assert "100 (feed-forward size)" in problem.message


def test_quantising_plain_weights_is_fine(tmp_path: Path, random_llama: Build) -> None:
    loaded = recipe(tmp_path, random_llama(), "aqlm", "  quantize: aqlm")
    config = open_checkpoint(random_llama()).config
    assert [*quantising_problems(loaded, config), *fit_problems(loaded, config)] == []


@pytest.mark.parametrize("precision", ["fp32", "8da4w"])
def test_quantising_for_another_precision(tmp_path: Path, random_llama: Build, precision: str) -> None:
    with pytest.raises(EtcliError) as caught:
        recipe(tmp_path, random_llama(), precision, "  quantize: aqlm")
    (problem,) = caught.value.problems
    assert (problem.code, problem.line) == ("recipe.conflict", 4)
    assert "export.precision: aqlm" in str(problem.hint)


def test_inspecting_an_aqlm_checkpoint(aqlm: Path) -> None:
    facts = inspect(aqlm).checkpoint
    assert facts is not None
    # counted by hand: embedding and head 320 x 64; a layer of q, k, v, o, gate, up, down and two norms; the last norm
    layer = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 64 * 96
    assert facts.parameters == 2 * 320 * 64 + 2 * (layer + 2 * 64) + 64
    assert facts.aqlm is not None
    assert (facts.aqlm.scheme, facts.aqlm.linears, facts.aqlm.code_bits) == ("2x8", 13, 2.0)
    outputs = 2 * (64 + 2 * 32 + 64 + 2 * 96 + 64) - 64
    weights = 2 * layer - 64 * 64
    stored = 2 * weights // 8 + 13 * 2 * 256 * 8 * 2 + 2 * outputs
    assert facts.aqlm.stored_bits == pytest.approx(8 * stored / weights)


def test_what_inspect_prints_of_an_aqlm_checkpoint(aqlm: Path) -> None:
    argv = [sys.executable, "-m", "etcli", "inspect", str(aqlm)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={"COLUMNS": "160"})
    assert done.returncode == 0, done.stderr
    assert "13 linears by AQLM 2x8: 2 bits a weight" in done.stdout
    assert "self_attn.q_proj (1 layer)" in done.stdout
