"""A command that is killed at any moment and repeated leaves what it would have left at once, byte for byte; and until then nothing that is half.

The moments are drawn from a seed. Few of them here, many under `./dev test --full`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import samples
from device_fixtures import MakeDevice, stock_adb
from killing import Command, kill_and_repeat

from etcli.common.workspace import Workspace
from etcli.device.adb import AdbDevice
from etcli.device.server import AdbServer
from etcli.manifests.deployment import DeploymentManifest

pytestmark = pytest.mark.early

EXPORT = "name: tiny\nmodel: {{source: {source}}}\nexport: {{backend: portable, chunks: 2, shapes: [4t16c, 1t16c]}}\n"
FEW = pytest.param(2, 7, id="few")
ONE = pytest.param(1, 7, id="one")
MANY = [pytest.param(12, seed, id=f"many-{seed}", marks=pytest.mark.full) for seed in (1, 2)]


def files(folder: Path, *left_out: str) -> dict[str, str]:
    """SHA-256 of every file below `folder`."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in left_out
    }


def empty(folder: Path) -> Callable[[], None]:
    return lambda: shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(("kills", "seed"), [ONE, *MANY])
def test_export(random_llama: Callable[..., Path], tmp_path: Path, kills: int, seed: int) -> None:
    source = random_llama(tokenizer=True, num_hidden_layers=2)
    (tmp_path / "etcli.yaml").write_text(EXPORT.format(source=source))
    # unverified: what is looked at here is files, and each export in a process of its own takes long enough
    command = Command(
        ["export", "--jobs", "1", "-q", "--no-verify"], tmp_path, {"ETCLI_CACHE_DIR": str(tmp_path / "cache")}
    )
    workspace = Workspace(tmp_path / ".etcli", "tiny")

    def bundle() -> dict[str, str]:
        return files(workspace.bundle, "export-report.json")

    def whole_or_absent(right: object) -> None:
        assert not workspace.bundle.exists() or bundle() == right

    kill_and_repeat(command, bundle, kills=kills, seed=seed, begin=empty(workspace.root), always=whole_or_absent)
    assert sorted(path.name for path in workspace.home.iterdir()) == [".lock", "bundle", "bundle.recipe.yaml", "export"]
    assert not list(workspace.export_work.glob("bundle-new-*"))


@pytest.mark.full
def test_an_old_bundle_is_whole_until_the_new_one_is(random_llama: Callable[..., Path], tmp_path: Path) -> None:
    source = random_llama(tokenizer=True, num_hidden_layers=2)
    (tmp_path / "etcli.yaml").write_text(EXPORT.format(source=source))
    environment = {"ETCLI_CACHE_DIR": str(tmp_path / "cache")}
    workspace = Workspace(tmp_path / ".etcli", "tiny")
    assert Command(["export", "-q"], tmp_path, environment).run()[0] == 0
    shutil.copytree(workspace.home, tmp_path / "before")
    old = files(workspace.bundle)

    def begin() -> None:
        shutil.rmtree(workspace.home)
        shutil.copytree(tmp_path / "before", workspace.home)

    def bundle() -> dict[str, str]:
        return files(workspace.bundle, "export-report.json")

    def one_of_both(right: object) -> None:
        # between two renames there is none for an instant: the old one then lies beside, and the next export brings it back
        if workspace.bundle.exists():
            assert files(workspace.bundle) == old or bundle() == right

    command = Command(["export", "--jobs", "1", "-q", "--set", "export.chunks=1"], tmp_path, environment)
    kill_and_repeat(command, bundle, kills=10, seed=5, begin=begin, always=one_of_both)


def project(folder: Path) -> dict[str, str]:
    """What a build that is configured consists of: its project, what it will compile, and the mark that it is whole.

    CMake writes other notes when it goes over a tree again (the names of debugging databases, which there are none of)."""
    rendered = {name: text for name, text in files(folder).items() if not name.startswith(("cmake-build/", "logs/"))}
    tree = folder / "cmake-build"
    return rendered | {name: (tree / name).read_text() for name in ("compile_commands.json", "etcli-configured.json")}


@pytest.mark.parametrize(("kills", "seed"), [FEW, *MANY])
def test_configuration(tmp_path: Path, kills: int, seed: int) -> None:
    (tmp_path / "etcli.yaml").write_text("name: tiny\nmodel: {source: model.gguf}\n")
    workspace = Workspace(tmp_path / ".etcli", "tiny")
    folder = workspace.build("host")
    command = Command(["build", "--target", "host", "--configure-only", "-q"], tmp_path)
    kill_and_repeat(command, lambda: project(folder), kills=kills, seed=seed, begin=empty(workspace.root))


@pytest.mark.full
@pytest.mark.timeout(2400)
def test_build(tmp_path: Path) -> None:
    (tmp_path / "etcli.yaml").write_text("name: tiny\nmodel: {source: model.gguf}\n")
    workspace = Workspace(tmp_path / ".etcli", "tiny")
    folder = workspace.build("host")

    def built() -> dict[str, str]:
        return {**files(folder / "stage"), "manifest": (folder / "manifest.json").read_text()}

    def whole_where_it_says_so(right: object) -> None:
        assert not (folder / "manifest.json").exists() or built() == right

    command = Command(["build", "--target", "host", "-q"], tmp_path)
    kill_and_repeat(command, built, kills=8, seed=3, begin=empty(workspace.root), always=whole_where_it_says_so)
    assert not list(folder.glob(".stage.*"))


FOLDER = "/data/local/tmp/etcli/killed"


class OnDevice:
    """A recipe with a bundle and a build, and a device to put them on."""

    def __init__(self, home: Path, server: AdbServer, device: AdbDevice) -> None:
        self.home, self.server, self.device = home, server, device
        (home / "etcli.yaml").write_text(
            "name: killed\nmodel: {source: model.gguf}\nrun: {prompt: Hello world, chat: false, max_new_tokens: 4}\n"
        )
        loaded = samples.make_recipe(
            home, name="killed", run={"prompt": "Hello world", "chat": False, "max_new_tokens": 4}
        )
        workspace = Workspace(home / ".etcli", "killed")
        samples.make_bundle(loaded, workspace, weights=os.urandom(300_000))
        samples.make_build(loaded, workspace, runner=samples.script(samples.answer_lines([5, 6, samples.STOP_ID])))

    def etcli(self, *words: str) -> Command:
        return Command([*words, "--serial", self.device.serial, "--json"], self.home)

    def shell(self, *words: str) -> str:
        command = [stock_adb(), "-P", str(self.server.port), "-s", self.device.serial, "shell", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    def clear(self) -> None:
        self.shell(f"rm -rf {FOLDER}")

    def deployed(self) -> list[object]:
        """Every file with its hash; of the manifest, what it says, but for inodes and times: of these only whether they are there."""
        lines = self.shell(f"cd {FOLDER} && find . -type f -exec sha256sum {{}} +").splitlines()
        told: list[object] = sorted(line for line in lines if not line.endswith(f"/{DeploymentManifest.FILE}"))
        if self.declared():
            manifest = json.loads(self.shell(f"cat {FOLDER}/{DeploymentManifest.FILE}"))
            told.append({**manifest, "files": [{**file, "stamp": bool(file["stamp"])} for file in manifest["files"]]})
        return told

    def declared(self) -> bool:
        return "yes" in self.shell(f"test -e {FOLDER}/{DeploymentManifest.FILE} && echo yes || echo no")


@pytest.fixture
def on_device(tmp_path: Path, adb_server: AdbServer, virtual_device: MakeDevice) -> OnDevice:
    return OnDevice(tmp_path, adb_server, virtual_device("x86_64"))


@pytest.mark.parametrize(("kills", "seed"), [FEW, *MANY])
def test_deploy(on_device: OnDevice, kills: int, seed: int) -> None:
    def whole_where_it_says_so(right: object) -> None:
        pending = "pending" in on_device.shell(f"ls -a {FOLDER} 2>/dev/null || true")
        assert pending or not on_device.declared() or on_device.deployed() == right

    kill_and_repeat(
        on_device.etcli("deploy"),
        on_device.deployed,
        kills=kills,
        seed=seed,
        begin=on_device.clear,
        always=whole_where_it_says_so,
    )


@pytest.mark.parametrize(("kills", "seed"), [FEW, *MANY])
def test_run(on_device: OnDevice, kills: int, seed: int) -> None:
    on_device.clear()
    assert on_device.etcli("deploy").run()[0] == 0
    runs = on_device.home / ".etcli" / "killed" / "runs"

    def told() -> list[object]:
        """What the last run of all gave."""
        newest = max(runs.iterdir())
        record = json.loads((newest / "record.json").read_text())
        return [
            record["tokens"],
            record["text"],
            record["stop_reason"],
            (newest / "events.jsonl").read_text(),
            on_device.deployed(),
        ]

    kill_and_repeat(on_device.etcli("run"), told, kills=kills, seed=seed, begin=empty(runs))
    for folder in runs.iterdir():  # of those that were killed: nothing, or all
        record = folder / "record.json"
        assert not record.exists() or json.loads(record.read_text())["tokens"] == [5, 6, samples.STOP_ID]
    assert "etcli_llama_runner" not in on_device.shell("ps -A -o args 2>/dev/null || true")
