"""Commands in hints get the recipe and what else they have to name; everything else in a hint stays as it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import samples

from etcli.common.errors import RunError
from etcli.common.workspace import Workspace
from etcli.recipe.completing import completed, completed_hints


def test_a_bare_command_gets_recipe_sets_workspace_and_what_its_verb_needs(tmp_path: Path) -> None:
    loaded = replace(samples.make_recipe(tmp_path), argument="a b.yaml", sets=("export.backend=portable",))
    workspace = Workspace(tmp_path, "tiny")
    after = f"--set export.backend=portable --workspace {tmp_path}`"
    text = completed(
        "Run `etcli export`, then `etcli deploy --verify`.", loaded, workspace, {"deploy": ("--serial", "A 1")}
    )
    jobs = completed("`etcli build --jobs 1`", loaded, workspace, {})
    assert jobs == f"`etcli build 'a b.yaml' --jobs 1 {after}"
    assert (
        text == f"Run `etcli export 'a b.yaml' {after}, then `etcli deploy 'a b.yaml' --verify --serial 'A 1' {after}."
    )


def test_what_is_no_bare_command_stays(tmp_path: Path) -> None:
    loaded, workspace = samples.make_recipe(tmp_path), Workspace(tmp_path, "tiny")
    text = "`etcli inspect FILE.pte --build DIR`, `etcli deploy mine.yaml`, `etcli device info`, etcli build"
    assert completed(text, loaded, workspace, {}) == text


def test_errors_keep_all_but_their_hints_and_options_may_come_late(tmp_path: Path) -> None:
    loaded, workspace = samples.make_recipe(tmp_path), Workspace(tmp_path, "tiny")
    options: dict[str, tuple[str, ...]] = {}
    raised = RunError("no", code="run.failed", hint="`etcli build`", file=tmp_path)

    def fail() -> None:
        with completed_hints(loaded, workspace, options):
            options["build"] = ("--target", "android")
            raise raised

    with pytest.raises(RunError) as caught:
        fail()
    (problem,) = caught.value.problems
    assert "--target android" in (problem.hint or "")
    assert (caught.value is raised, problem.code, problem.message, problem.file) == (True, "run.failed", "no", tmp_path)
