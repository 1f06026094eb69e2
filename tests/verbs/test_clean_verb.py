"""`etcli clean`: this recipe's folder goes, nothing else."""

import samples

from etcli.common.workspace import Workspace
from etcli.output.console import Console
from etcli.verbs.clean import clean_workspace

QUIET = Console(verbosity=-1)


def test_only_this_recipes_folder_goes(tmp_path):
    root = tmp_path / ".etcli"
    mine, other = Workspace(root, "mine"), Workspace(root, "other")
    for workspace in (mine, other):
        workspace.bundle.mkdir(parents=True)
        (workspace.bundle / "manifest.json").write_text("{}")
    outside = tmp_path / "precious"
    outside.mkdir()
    (outside / "file").write_text("keep")
    (mine.home / "link").symlink_to(outside)
    cleaned = clean_workspace(mine, QUIET)
    assert (cleaned.files, cleaned.kept) == (1, ("link",))
    assert not mine.bundle.exists()
    assert (other.bundle / "manifest.json").exists()
    assert (outside / "file").exists()


def test_an_empty_workspace_goes_too_and_twice_is_fine(tmp_path):
    workspace = Workspace(tmp_path / ".etcli", "mine")
    workspace.home.mkdir(parents=True)
    assert clean_workspace(workspace, QUIET).files == 0
    assert not workspace.root.exists()
    assert clean_workspace(workspace, QUIET).files == 0


def test_all_that_the_stages_make_goes(tmp_path):
    loaded = samples.make_recipe(tmp_path)
    workspace = Workspace(tmp_path / ".etcli", "tiny")
    samples.make_bundle(loaded, workspace)
    samples.make_build(loaded, workspace)
    for path in (
        "bundle.recipe.yaml",
        ".bundle.recipe.yaml.x1.tmp",
        "export/.lock",
        "export/pieces/0123/tiny_0.pte",
        "build/.host.lock",
        "build/host.recipe.yaml",
        "build/host/cmake-build/CMakeCache.txt",
        "build/host/.stage.abc/stage/runner",
        "build/host/logs/build.log",
        "build/linux-aarch64/machine.cmake",
        "runs/20260102T030405.000006Z/record.json",
    ):
        (workspace.home / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace.home / path).write_text("made")
    assert clean_workspace(workspace, QUIET).kept == ()
    assert not workspace.root.exists()


def test_what_etcli_did_not_make_stays_and_is_named(tmp_path):
    workspace = Workspace(tmp_path / ".etcli", "tiny")
    samples.make_bundle(samples.make_recipe(tmp_path), workspace)
    theirs = (
        "build/host/CMakeUserPresets.json",
        "build/host/out/runner",
        "build/mine/CMakeLists.txt",
        "notes.txt",
        "runs/plot.py",
    )
    for path in (*theirs, "build/host/CMakePresets.json"):
        (workspace.home / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace.home / path).write_text("mine")
    assert clean_workspace(workspace, QUIET).kept == (
        "build/host/CMakeUserPresets.json",
        "build/host/out",
        "build/mine",
        "notes.txt",
        "runs/plot.py",
    )
    left = {path.relative_to(workspace.home).as_posix() for path in workspace.home.rglob("*") if path.is_file()}
    assert left == set(theirs)
