"""What to type after a stage."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
import samples
from click.testing import CliRunner

from etcli.cli.main import cli
from etcli.common.workspace import Workspace
from etcli.output.console import Console
from etcli.recipe.loader import load
from etcli.verbs.following import after_build, after_export


@pytest.fixture
def work(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "w", "smollm2-135m")


def manifest_in(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "manifest.json").touch()


def test_the_build_follows_the_export_and_the_deployment_both(work: Workspace) -> None:
    loaded = load("smollm2-135m", ["export.chunks=2"])
    rest = f"smollm2-135m --set export.chunks=2 --workspace {work.root}"
    assert after_export(loaded, work) == f"etcli build {rest}"
    samples.make_build(loaded, work)
    assert after_export(loaded, work) == f"etcli deploy smollm2-135m --device virtual:x86_64 {rest.split(' ', 1)[1]}"


def test_of_several_builds_the_newest_that_fits_is_deployed(work: Workspace) -> None:
    loaded = load("smollm2-135m")
    ways = {"android": "", "host": " --device virtual:x86_64", "linux-aarch64": " --device virtual:aarch64"}
    for age, (target, device) in enumerate(ways.items()):
        samples.make_build(loaded, work, target=target)
        os.utime(work.build(target) / "manifest.json", (1000 + age, 1000 + age))
        assert after_export(loaded, work) == f"etcli deploy smollm2-135m{device} --workspace {work.root}"
    samples.make_build(loaded, work, target="linux-aarch64", recipe_sha256="0" * 64)
    assert after_export(loaded, work) == f"etcli deploy smollm2-135m --device virtual:x86_64 --workspace {work.root}"
    (work.build("host") / "manifest.json").write_text("{")
    assert after_export(loaded, work) == f"etcli deploy smollm2-135m --workspace {work.root}"
    samples.make_build(loaded, work, target="android", recipe_sha256="0" * 64)
    assert after_export(loaded, work) == f"etcli build smollm2-135m --workspace {work.root}"


def test_a_recipe_that_was_not_typed_need_not_be(work: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ETCLI_RECIPE", raising=False)
    monkeypatch.chdir(work.root.parent)
    (work.root.parent / "etcli.yaml").write_text("name: mine\nextends: smollm2-135m\n")
    mine = Workspace(work.root.parent / ".etcli", "mine")
    assert after_export(load(None), mine) == "etcli build"
    assert after_export(load("etcli.yaml"), mine) == "etcli build etcli.yaml"


@pytest.mark.parametrize(
    ("target", "serial", "virtual", "device"),
    [
        ("android", None, None, ""),
        ("android", "ABC", None, " --serial ABC"),
        ("host", None, None, " --device virtual:x86_64"),
        ("linux-aarch64", None, None, " --device virtual:aarch64"),
        ("linux-aarch64", "127.0.0.1:5", None, " --serial 127.0.0.1:5"),
        ("linux-aarch64", None, "virtual", " --device virtual"),
    ],
)
def test_the_deployment_is_to_the_device_that_the_build_is_for(
    work: Workspace, target: str, serial: str | None, virtual: str | None, device: str
) -> None:
    loaded = load("smollm2-135m")
    rest = f"--workspace {work.root}"
    assert after_build(loaded, work, target, serial=serial, virtual=virtual) == f"etcli export smollm2-135m {rest}"
    manifest_in(work.bundle)
    line = after_build(loaded, work, target, serial=serial, virtual=virtual)
    assert line == f"etcli deploy smollm2-135m{device} {rest}"
    assert parsed(line.split()[1:]).name == "deploy"


def parsed(words: list[str]) -> click.Command:
    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None
    command.make_context(words[0], words[1:])
    return command


@pytest.mark.parametrize(("flags", "shown"), [((), True), (("-q",), False), (("--json",), False)])
def test_export_alone_ends_with_it_for_people(
    flags: tuple[str, ...], shown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = SimpleNamespace(manifest=object(), dry_run=False)
    monkeypatch.setattr("etcli.export.stage.export", lambda *_: result)
    monkeypatch.setattr("etcli.cli.show.exported", lambda *_: None)
    monkeypatch.setattr("etcli.cli.invocation.document", lambda *_, **__: "{}")
    done = CliRunner().invoke(cli, ["export", "smollm2-135m", "--workspace", str(tmp_path), *flags])
    assert done.exit_code == 0, done.output
    assert (f"next: etcli build smollm2-135m --workspace {tmp_path}\n" in done.stderr) == shown


def test_smokes_table_tells_the_roles_that_exports_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from etcli.cli.show.exports import bundle_table
    from etcli.export.result import exported_files

    loaded = samples.make_recipe(tmp_path)
    manifest = samples.make_bundle(loaded, Workspace(tmp_path / "work", loaded.recipe.name))
    bundle_table(Console(), "bundle", exported_files(manifest))
    lines = capsys.readouterr().out.splitlines()
    assert [cell.strip() for cell in lines[1].replace("┃", "│").split("│")] == ["file", "size", "sha256", "role"]
    (line,) = [line for line in lines if "embedding_float32.bin" in line]
    assert line.rstrip().endswith("embedding")
