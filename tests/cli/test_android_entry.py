"""`etcli` and Android: what lacks is one list, and the flags reach what they are for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from ndk_tree import make_ndk


def etcli(folder: Path, *words: str, **env: str) -> tuple[int, dict[str, object]]:
    argv = [sys.executable, "-m", "etcli", *words, "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=folder, env={**os.environ, **env}, check=False)
    return done.returncode, json.loads(done.stdout)


def codes(document: dict[str, object]) -> dict[str, str]:
    errors = document["errors"]
    assert isinstance(errors, list)
    return {error["code"]: error["message"] for error in errors}


def test_a_build_without_ndk_and_executorch_is_exit_3_with_all_that_lacks(tmp_path: Path) -> None:
    code, document = etcli(tmp_path, "build", "--target", "android")
    assert code == 3
    assert set(codes(document)) == {"ndk.missing", "executorch.not_provided"}
    assert not (tmp_path / ".etcli").exists()


def test_the_flag_goes_before_the_environment(tmp_path: Path) -> None:
    make_ndk(tmp_path / "old", "21.4.7075529")
    make_ndk(tmp_path / "new")
    for words in (("build",), ("doctor",)):
        code, document = etcli(
            tmp_path, *words, "--target", "android", "--ndk", "old", ANDROID_NDK=str(tmp_path / "new")
        )
        assert code == 3
        assert f"--ndk: NDK {tmp_path / 'old'} is r21e" in codes(document)["ndk.too_old"]


def test_the_flags_variable(tmp_path: Path) -> None:
    make_ndk(tmp_path / "old", "21.4.7075529")
    _, document = etcli(tmp_path, "build", "--target", "android", ETCLI_BUILD_NDK=str(tmp_path / "old"))
    assert "ndk.too_old" in codes(document)


def test_a_recipe_that_contradicts_itself_is_exit_2_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "etcli.yaml").write_text("extends: smollm2-135m\nname: a\nbuild:\n  target: android\n  api_level: 24\n")
    code, document = etcli(tmp_path, "validate")
    assert code == 2
    [error] = document["errors"]  # type: ignore[misc]
    assert (error["code"], error["line"]) == ("recipe.conflict", 5)
    assert "the lowest that runners are built for" in error["message"]
