"""`etcli inspect`: told by content, nothing of it run."""

import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import samples

from etcli.cli import show
from etcli.common.errors import EtcliError, UsageError
from etcli.common.workspace import Workspace
from etcli.output.console import Console
from etcli.verbs.inspect import inspect


def test_a_bundle(tmp_path):
    workspace = Workspace(tmp_path, "tiny")
    manifest = samples.make_bundle(samples.make_recipe(tmp_path), workspace)
    found = inspect(workspace.bundle)
    assert (found.kind, found.bundle) == ("bundle", manifest)


def test_a_workspace_folder_names_what_is_in_it(tmp_path):
    workspace, loaded = Workspace(tmp_path, "tiny"), samples.make_recipe(tmp_path)
    samples.make_bundle(loaded, workspace)
    samples.make_build(loaded, workspace)
    for folder in (workspace.home, workspace.root, workspace.builds):
        with pytest.raises(UsageError) as caught:
            inspect(folder)
        (problem,) = caught.value.problems
        assert problem.code == "inspect.workspace"
        bundle = [] if folder == workspace.builds else [f"etcli inspect {workspace.bundle}"]
        assert problem.hint.splitlines() == [*bundle, f"etcli inspect {workspace.build('host')}"]


def test_an_elf_file_whatever_its_name(tmp_path):
    path = tmp_path / "model.pte"
    shutil.copy(Path(sys.executable).resolve(), path)
    found = inspect(path)
    assert found.kind == "elf"
    assert found.elf.machine == "EM_X86_64"


def test_an_elf_file_says_what_it_registers(capsys):
    package = Path(importlib.util.find_spec("executorch").submodule_search_locations[0])
    found = inspect(package / "lib" / "libexecutorch_backend_xnnpack.so")
    assert found.registered.backends == ("XnnpackBackend",)
    found = inspect(package / "lib" / "libexecutorch_kernels_optimized.so")
    assert "aten::add.out" in found.registered.operators
    show.inspected(Console(), found)
    printed = capsys.readouterr().out
    assert re.search(r"registers operators .* of aten", printed)
    assert "registers backends" in printed


def test_a_checkpoint_folder(random_llama):
    found = inspect(random_llama(tokenizer=True))
    assert found.kind == "checkpoint"
    # counted by hand: embedding and head 320 x 64; a layer of q, k, v, o, gate, up, down and two norms; the last norm
    layer = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 64 * 96 + 2 * 64
    assert found.checkpoint.parameters == 2 * 320 * 64 + 2 * layer + 64
    assert found.checkpoint.dtypes == {"F32": found.checkpoint.tensors}


@pytest.mark.parametrize("place", ["bundle", "build/x", "other/bundle"])
def test_a_checkpoint_folder_may_hold_a_stages_output(random_llama, tmp_path, place):
    folder = tmp_path / "model"
    shutil.copytree(random_llama(tokenizer=True), folder)
    (folder / place).mkdir(parents=True)
    (folder / place / "manifest.json").write_text("{}")
    assert inspect(folder).kind == "checkpoint"


def test_what_is_no_file_is_never_opened(tmp_path):
    pipe = tmp_path / "model.pte"
    os.mkfifo(pipe)
    for path, code in (
        (pipe, "inspect.unknown"),
        (Path("/dev/zero"), "inspect.unknown"),
        (tmp_path / ("a" * 300), "inspect.unreadable"),
    ):
        with pytest.raises(UsageError) as caught:
            inspect(path)
        assert caught.value.problems[0].code == code
        assert caught.value.problems[0].hint


def test_the_default_gguf(default_model):
    found = inspect(default_model)
    assert found.checkpoint.format == "gguf"
    assert found.checkpoint.dtypes == {"Q4_1": 210, "F32": 61, "Q8_0": 1}
    assert round(found.checkpoint.parameters / 1e6, 1) == 134.5


@pytest.mark.parametrize(
    ("content", "code"), [(None, "inspect.missing"), (b"hello", "inspect.unknown"), (b"", "inspect.unknown")]
)
def test_what_etcli_does_not_know(tmp_path, content, code):
    path = tmp_path / "thing.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(EtcliError) as caught:
        inspect(path)
    assert caught.value.problems[0].code == code
    assert caught.value.exit == 2


def test_a_damaged_program_is_one_clear_error(tmp_path):
    path = tmp_path / "x.pte"
    path.write_bytes(b"\x20\x00\x00\x00ET12" + b"\xff" * 100)
    with pytest.raises(EtcliError) as caught:
        inspect(path)
    assert len(caught.value.problems) == 1


def test_a_build(tmp_path):
    workspace = Workspace(tmp_path, "tiny")
    manifest = samples.make_build(samples.make_recipe(tmp_path), workspace)
    found = inspect(workspace.build("host"))
    assert (found.kind, found.build) == ("build", manifest)


@pytest.mark.parametrize("content", ["{}", "[]", "no json", '{"schema_version": 1, "name": "x"}', '{"a": 1}'])
def test_a_manifest_of_something_else(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(UsageError) as caught:
        inspect(tmp_path)
    assert caught.value.problems[0].code == "inspect.manifest"


def test_a_broken_bundle_is_said_to_be_one(tmp_path):
    (tmp_path / "manifest.json").write_text('{"schema_version": 1, "chunks": []}')
    with pytest.raises(UsageError) as caught:
        inspect(tmp_path)
    assert caught.value.problems[0].code == "manifest.invalid"


def test_the_current_folder_is_called_by_its_name(tmp_path, monkeypatch):
    outer = tmp_path / "outer"
    (outer / "inner").mkdir(parents=True)
    (outer / "inner" / "config.json").write_text("{}")
    monkeypatch.chdir(outer)
    with pytest.raises(EtcliError) as caught:
        inspect(Path())
    assert str(caught.value).startswith("outer is not a checkpoint folder itself")
