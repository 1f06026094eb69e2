"""`etcli doctor --deep`: what only loading tells, with the loader's own words; without it nothing is loaded."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from etcli.common.errors import ToolError
from etcli.common.workspace import cache_dir
from etcli.output.console import Console
from etcli.recipe.loader import load
from etcli.verbs import deep_needs as module
from etcli.verbs.deep_needs import deep_needs
from etcli.verbs.doctor import doctor

QUIET = Console(verbosity=-1)


def library(folder: Path, source: str, *flags: str) -> Path:
    """A shared library of this machine."""
    (folder / "x.c").write_text(source)
    path = folder / "libx.so"
    subprocess.run(["cc", "-shared", "-fPIC", *flags, "-o", str(path), str(folder / "x.c")], check=True)
    return path


def test_a_library_that_does_not_load_is_told_in_the_loaders_words(tmp_path):
    path = library(tmp_path, "int of_nowhere(void); int f(void) { return of_nowhere(); }", "-Wl,-z,now")
    with pytest.raises(ToolError) as caught:
        module._own(path)
    (problem,) = caught.value.problems
    assert problem.code == "load.refused"
    assert "undefined symbol: of_nowhere" in problem.message
    assert "another release" in problem.hint


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("libcudart.so.12: cannot open shared object file: No such file or directory", "force-reinstall"),
        ("/lib/libc.so.6: version `GLIBC_2.38' not found", "newer system"),
        ("ModuleNotFoundError: No module named 'torchao'", "Install the package"),
        ("Illegal instruction", "by hand"),
    ],
)
def test_the_usual_messages_have_their_remedy(words, remedy):
    assert remedy in module._remedy(words)


def test_a_module_tells_its_version_and_one_that_fails_its_last_words(tmp_path, monkeypatch):
    (tmp_path / "good.py").write_text("print('noise')\n__version__ = '7.1'\n")
    (tmp_path / "bad.py").write_text("raise ImportError('its library is of another torch')\n")
    (tmp_path / "ends.py").write_text("import os; os.abort()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert module._load("good", module._IMPORT, "good", "") == ("7.1", "")
    for name, words in (("bad", "its library is of another torch"), ("ends", "SIGABRT")):
        with pytest.raises(ToolError) as caught:
            module._load(name, module._IMPORT, name, "")
        assert words in caught.value.problems[0].message


def names_of(recipe: str, monkeypatch: pytest.MonkeyPatch, *sets: str) -> list[str]:
    """The looks at `recipe`, none of them taken."""
    monkeypatch.setattr(module, "_load", lambda what, *_: (what, ""))
    for maker in ("attention_library", "aqlm_library"):
        monkeypatch.setattr(module, maker, lambda _: Path("libx.so"))
    return [need.name for need in deep_needs(load(recipe, sets=sets), QUIET) if "for PyTorch" not in need.name]


def test_what_is_loaded_follows_from_the_recipe(monkeypatch):
    default = names_of("smollm2-135m", monkeypatch)
    assert default[:2] == ["import torch", "import executorch.exir"]
    assert "import executorch.backends.xnnpack.partition.xnnpack_partitioner" in default
    assert default[-2:] == ["ExecuTorch's Python runtime", "operators etcli_attention"]
    assert "import torchao" not in default
    assert "import torchao" in names_of("smollm2-135m-8da4w", monkeypatch)
    assert "operators etcli_aqlm_ops" in names_of("smollm2-135m-aqlm", monkeypatch)
    assert "operators etcli_attention" not in names_of("smollm2-135m", monkeypatch, "export.cache=shift")


def test_executorchs_own_export_libraries_are_at_most_a_warning(monkeypatch):
    def refuses(what, *_):
        raise ToolError(f"{what} cannot be loaded: undefined symbol: x", code="load.refused", hint="h")

    monkeypatch.setattr(module, "_load", refuses)
    found = list(module._shipped_with_executorch())
    assert {need.name for need in found} >= {"operators for PyTorch libcustom_ops_aot_lib.so"}
    assert {need.status for need in found} == {"warning"}


def test_without_deep_no_process_of_python_is_started(monkeypatch):
    def never(*_, **__):
        raise AssertionError("loaded")

    monkeypatch.setattr(module, "tried_apart", never)
    assert doctor(load("smollm2-135m"), "host", None, QUIET).needs


@pytest.mark.full
def test_all_of_the_default_recipe_loads():
    found = deep_needs(load("smollm2-135m-8da4w"), QUIET)
    assert [need for need in found if need.status == "missing"] == []
    assert all(need.version for need in found)
    assert cache_dir().is_dir()
