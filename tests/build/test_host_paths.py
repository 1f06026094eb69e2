"""Folders of this machine stay out of what is compiled, the user's own operators included; where they do not, the build fails at the line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from operator_folders import TWICE, write_operators

from etcli.build import inputs
from etcli.build.stage import BuildResult
from etcli.common.errors import EtcliError
from etcli.recipe.loaded import LoadedRecipe

Builder = Callable[..., BuildResult]
WHERE = "__attribute__((used)) static const char* const where = __FILE__;\n"


@pytest.mark.known_failure("android-host-path-in-binary")
def test_sources_are_named_without_their_folders(
    builder: Builder,
    native: Path,
    make_recipe: Callable[..., LoadedRecipe],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = native / "runner" / "shared.cpp"
    shared.write_text(WHERE + shared.read_text())
    folder = write_operators(tmp_path / "elsewhere" / "shout", source=WHERE + TWICE)
    recipe = make_recipe(build={"custom_ops": [str(folder)]})
    built = builder(recipe=recipe).folder / "stage" / "list_kernels"
    content = built.read_bytes()
    assert b"native/runner/shared.cpp\0" in content
    assert b"shout_ops/twice.cpp\0" in content
    assert str(tmp_path).encode() not in content

    real = inputs.render_project

    def unmapped(*arguments: object, **options: bool) -> dict[str, str]:
        files = dict(real(*arguments, **options))  # type: ignore[arg-type]
        files["CMakeLists.txt"] = files["CMakeLists.txt"].replace("-ffile-prefix-map=", "-DX=")
        return files

    monkeypatch.setattr(inputs, "render_project", unmapped)
    with pytest.raises(EtcliError) as caught:
        builder(recipe=recipe)
    assert {problem.code for problem in caught.value.problems} == {"audit.host_path"}
    told = " ".join(problem.message for problem in caught.value.problems)
    assert f"the native sources on this machine ({native})" in told
    assert f"the operator library shout_ops on this machine ({folder})" in told
