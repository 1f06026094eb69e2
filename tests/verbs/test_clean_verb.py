"""`etcli clean`: this recipe's folder goes, nothing else."""

from etcli.common.workspace import Workspace
from etcli.verbs.clean import clean_workspace


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
    assert clean_workspace(mine).files == 2
    assert not mine.home.exists()
    assert (other.bundle / "manifest.json").exists()
    assert (outside / "file").exists()


def test_an_empty_workspace_goes_too_and_twice_is_fine(tmp_path):
    workspace = Workspace(tmp_path / ".etcli", "mine")
    workspace.home.mkdir(parents=True)
    assert clean_workspace(workspace).files == 0
    assert not workspace.root.exists()
    assert clean_workspace(workspace).files == 0
