"""Operators bound to PyTorch are compiled once against the PyTorch that is there, tried before they are loaded, and explained."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from etcli.common.errors import BuildError, ExitCode, ToolError
from etcli.ops.loading import is_in_torch, load_into_torch
from etcli.ops.own import load_own_torch
from etcli.ops.torch_library import torch_library, torch_operators
from etcli.tables.operators import OperatorLibrary, read_operators
from etcli.toolchain.elf import read_elf
from etcli.toolchain.pytorch import host_torch

DESCRIPTION = """\
name: test_small_ops
namespace: test_small_ops
operators: ["twice.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)"]
sources: [register.cpp]
torch: [binding.cpp]
"""
BINDING = """\
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

// Twice x, and 1000 times the number of the thread that computed it.
static at::Tensor twice(const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  const float* from = x.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  at::parallel_for(0, x.numel(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = 2 * from[i] + 1000 * at::get_thread_num();
  });
  return y;
}
TORCH_LIBRARY_IMPL(test_small_ops, CPU, m) { m.impl("twice", twice); }
"""
# PyTorch asks for C++20, whatever the sources are compiled for elsewhere.
OLDER = "flags: [-std=c++17]\n"
OPERATORS = ("test_small_ops::twice",)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ops"


def described(folder: Path, *, binding: str = BINDING, more: str = "") -> OperatorLibrary:
    """An operator folder with a binding to PyTorch."""
    folder.mkdir(exist_ok=True)
    (folder / "op.yaml").write_text(DESCRIPTION + more)
    # The binding is compiled without what registers with ExecuTorch.
    (folder / "register.cpp").write_text("#error not part of the binding\n")
    (folder / "binding.cpp").write_text(binding)
    return read_operators(folder)


def told(library: OperatorLibrary) -> ToolError:
    with pytest.raises(ToolError) as caught:
        torch_library(library)
    return caught.value


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[OperatorLibrary, Path]:
    """A binding of one operator, compiled."""
    folder = tmp_path_factory.mktemp("small")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ETCLI_CACHE_DIR", str(folder / "cache"))
        library = described(folder / "sources", more=OLDER)
        return library, torch_library(library)


def test_it_uses_the_libraries_that_the_process_has(small: tuple[OperatorLibrary, Path]) -> None:
    library, path = small
    assert path.name == "libtest_small_ops_torch.so"
    assert torch_operators(library) == OPERATORS
    facts = read_elf(path)
    assert {"libtorch_cpu.so", "libc10.so"} <= set(facts.needed)
    assert facts.run_path is None


@pytest.fixture
def loaded(small: tuple[OperatorLibrary, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The small library, loaded into this process."""
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(small[1].parents[2]))
    assert load_own_torch(small[0].root) == small[1]
    return small[1]


def test_its_threads_are_those_of_pytorch(loaded: Path) -> None:
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            result = torch.ops.test_small_ops.twice(torch.ones(8)).tolist()
            assert result == [2.0 + 1000 * (i * threads // 8) for i in range(8)]
    finally:
        torch.set_num_threads(before)


def test_loading_twice_is_once_and_another_of_the_same_name_is_refused(loaded: Path, tmp_path: Path) -> None:
    assert is_in_torch(OPERATORS)
    assert not is_in_torch([*OPERATORS, "test_small_ops::other"])
    load_into_torch(loaded, OPERATORS)
    copy = tmp_path / "libcopy.so"
    copy.write_bytes(loaded.read_bytes())
    with pytest.raises(ToolError, match="registered in this process") as caught:
        load_into_torch(copy, OPERATORS)
    assert caught.value.problems[0].code == "operators.twice"
    assert str(loaded) in caught.value.problems[0].message


def test_a_damaged_library_is_no_crash(loaded: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "libdamaged.so"
    damaged.write_bytes(loaded.read_bytes()[:5000])
    for path in (damaged, tmp_path / "absent.so"):
        with pytest.raises(ToolError) as caught:
            load_into_torch(path, ("test_small_ops::other",))
        assert caught.value.problems[0].code.startswith("elf.")


@pytest.fixture
def compiled(small: tuple[OperatorLibrary, Path], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the folders that are compiled into while a test runs, beside the cache that holds the small library; nothing is compiled."""
    from etcli.ops import building

    folders: list[str] = []
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(small[1].parents[2]))
    monkeypatch.setattr(building, "_compile", lambda _build, folder, _console: folders.append(folder.name))
    return folders


def test_it_is_compiled_once_and_again_when_cut_short(small: tuple[OperatorLibrary, Path], compiled: list[str]) -> None:
    library, path = small
    assert torch_library(library) == path
    assert compiled == []
    content = path.read_bytes()
    path.rename(path.with_suffix(".whole"))
    for rest in (content[: len(content) // 2], b""):
        path.write_bytes(rest)
        torch_library(library)
        assert compiled.pop() == path.parent.name
        path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    assert torch_library(library) == path
    assert compiled == []


def test_what_determines_it(
    small: tuple[OperatorLibrary, Path], compiled: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from etcli.ops import torch_library as module

    torch_library(described(tmp_path / "same", more=OLDER))
    assert compiled == []  # wherever the folder stands
    torch_library(described(tmp_path / "other", binding=BINDING + "// changed\n"))
    torch_library(described(tmp_path / "other", more="definitions: [SOMETHING]\n"))
    torch_library(described(tmp_path / "other", more="flags: [-O2]\n"))
    package = host_torch()
    for changed in ({"version": "2.99.0"}, {"commit": "0" * 40}, {"openmp": None}):
        monkeypatch.setattr(module, "host_torch", lambda changed=changed: dataclasses.replace(package, **changed))
        torch_library(small[0])
    assert len(set(compiled)) == 6


def test_without_a_compiler(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = described(tmp_path / "small")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    error = told(library)
    assert error.exit == ExitCode.ENVIRONMENT
    assert "no C++ compiler" in str(error)
    assert "apt-get install -y g++" in (error.problems[0].hint or "")
    assert not cache.exists()


def test_without_pytorch(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    real = importlib.metadata.version

    def version(name: str) -> str:
        if name == "torch":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    [problem] = told(described(tmp_path / "small")).problems
    assert problem.code == "torch.missing"
    assert "-m pip install torch" in (problem.hint or "")


def test_a_folder_without_a_binding(tmp_path: Path) -> None:
    library = described(tmp_path / "small")
    (library.root / "op.yaml").write_text(DESCRIPTION.replace("torch: [binding.cpp]\n", ""))
    with pytest.raises(BuildError, match="no binding to PyTorch") as caught:
        torch_library(read_operators(library.root))
    assert caught.value.problems[0].code == "operators.no_torch"
    assert "torch:" in (caught.value.problems[0].hint or "")


@pytest.mark.parametrize(
    ("binding", "said"),
    [
        (BINDING + "void nowhere(); void use() { nowhere(); }\n", "undefined reference to"),
        (BINDING.replace('m.impl("twice"', 'm.impl("thrice"'), "no CPU kernel for test_small_ops::twice"),
        # What does not fit the schemas of op.yaml ends the process that loads it: not this one.
        (
            BINDING.replace("const at::Tensor& x)", "const at::Tensor& x, int64_t)"),
            "the process that loads it ends: killed by SIGABRT: what():",
        ),
        (
            BINDING + 'TORCH_LIBRARY_FRAGMENT(test_small_ops, m) { m.def("twice(Tensor x) -> Tensor"); }\n',
            "multiple times",
        ),
    ],
)
def test_a_binding_that_is_wrong_is_told_and_leaves_nothing(
    cache: Path, tmp_path: Path, binding: str, said: str
) -> None:
    error = told(described(tmp_path / "small", binding=binding))
    assert said in str(error)
    assert error.problems[0].hint
    assert not [entry for entry in cache.iterdir() if entry.is_dir()]


def test_what_does_not_compile_is_told_with_its_first_error_and_torch_is_not_imported(
    cache: Path, tmp_path: Path
) -> None:
    folder = described(tmp_path / "small").root
    code = (
        "import sys; from pathlib import Path; from etcli.ops.torch_library import torch_library;"
        "from etcli.tables.operators import read_operators;"
        "from etcli.common.errors import ToolError\n"
        "try: torch_library(read_operators(Path(sys.argv[1])))\n"
        "except ToolError as error: print(error.problems[0].code, error.problems[0].message, sep='\\n')\n"
        "print({'torch', 'executorch'} & set(sys.modules))"
    )
    (folder / "binding.cpp").write_text("#error no such thing\n")
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    code, *message, imported = done.stdout.splitlines()
    assert code == "operators.compile"
    assert "no such thing" in "".join(message)
    assert imported == "set()"
