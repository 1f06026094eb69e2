"""The wheel is the whole product: installed alone, away from the checkout, it lists recipes and renders and configures a build."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
ASSETS = ("templates", "toolchains", "recipes", "native")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made from the source distribution as an index would serve it."""
    folder = tmp_path_factory.mktemp("dist")
    argv = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, REPOSITORY]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [found] = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment that holds the wheel, and sees what it depends on where the tests have it.

    A path in a `.pth` file is only appended to `sys.path`: the editable installation's own `.pth` over there is not read.
    """
    folder = tmp_path_factory.mktemp("elsewhere") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    argv = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(argv, check=True)
    purelib = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    here = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    (Path(purelib.stdout.strip()) / "dependencies.pth").write_text("".join(f"{path}\n" for path in here))
    return folder


def run(environment: Path, program: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ETCLI_"))}
    path = os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)))
    argv = [environment / "bin" / program, *arguments]
    return subprocess.run(argv, capture_output=True, text=True, cwd=cwd, env={**kept, "PATH": path}, timeout=300)


def test_the_wheel_carries_every_asset_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for asset in ASSETS:
        there = {
            f"etcli/_assets/{asset}/{path.relative_to(REPOSITORY / asset).as_posix()}"
            for path in (REPOSITORY / asset).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert there, asset
        assert there <= names, sorted(there - names)
    assert "etcli/py.typed" in names
    assert all(name.startswith(("etcli/", "etcli-")) for name in names)
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_the_installed_package_is_the_wheels(environment: Path, tmp_path: Path) -> None:
    code = "import etcli, pathlib; from etcli.common.assets import asset_dir as a; print(etcli.__file__, a('native'), sep='\\n')"
    done = run(environment, "python", "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        assert Path(line).is_relative_to(environment)


def test_the_recipes_are_listed(environment: Path, tmp_path: Path) -> None:
    done = run(environment, "etcli", "recipe", "list", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    recipes = json.loads(done.stdout)["result"]["recipes"]
    assert "smollm2-135m" in {recipe["name"] for recipe in recipes}
    assert all(Path(recipe["path"]).is_relative_to(environment) for recipe in recipes)


def test_a_build_is_rendered_and_configured(environment: Path, tmp_path: Path) -> None:
    done = run(environment, "etcli", "build", "--target", "host", "--configure-only", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["ok"] is True
    folder = tmp_path / ".etcli" / "smollm2-135m" / "build" / "host"
    assert str(environment) in (folder / "machine.cmake").read_text()
    # nothing is taken from the checkout, although the tools' own environment may stand inside it
    assert not any(str(REPOSITORY / asset) in (folder / "machine.cmake").read_text() for asset in (*ASSETS, "etcli"))
    commands = json.loads((folder / "cmake-build" / "compile_commands.json").read_text())
    assert all(
        Path(command["file"]).is_relative_to(environment) and Path(command["file"]).is_file() for command in commands
    )
    assert len(commands) > 2
