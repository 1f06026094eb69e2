"""The library is compiled once for any number of users, again when what it is made from changes, and its absence is explained."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from etcli.common.errors import ExitCode, ToolError
from etcli.ops.library import attention_library, built_library
from etcli.ops.loading import load_into_executorch
from etcli.tables.operators import OperatorLibrary, read_operators
from etcli.toolchain.elf import read_elf
from etcli.toolchain.registrations import read_registrations

TWO = ("etcli::last_row.out", "etcli::ring_attention.out")
DESCRIPTION = 'name: small\nnamespace: small\noperators: ["one.out(Tensor x) -> Tensor"]\nsources: [one.cpp]\n'
ONE = """\
#include <executorch/runtime/kernel/operator_registry.h>
using namespace executorch::runtime;
static void run(KernelRuntimeContext&, Span<EValue*>) {}
static const Kernel kernels[] = {Kernel("small::one.out", run)};
[[maybe_unused]] static const Error registered = register_kernels({kernels, 1});
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ops"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The folder of a library of one operator."""
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "op.yaml").write_text(DESCRIPTION)
    (folder / "one.cpp").write_text(ONE)
    return folder


def described(folder: Path) -> OperatorLibrary:
    return read_operators(folder)


def test_the_attention_library() -> None:
    path = attention_library()
    assert path.name == "libetcli_attention.so"
    assert read_registrations(path).operators == TWO
    facts = read_elf(path)
    # It takes the ExecuTorch that the process has, whichever that is, and so holds no path of this machine.
    assert {"libexecutorch.so", "libexecutorch_threadpool.so"} <= set(facts.needed)
    assert facts.run_path is None


def test_it_is_compiled_once_and_again_after_a_change(cache: Path, small: Path) -> None:
    path = built_library(described(small))
    stamp = path.stat().st_mtime_ns
    assert path.is_relative_to(cache)
    assert built_library(described(small)) == path
    assert path.stat().st_mtime_ns == stamp
    (small / "one.cpp").write_text(ONE + "// changed\n")
    other = built_library(described(small))
    assert other != path
    assert path.is_file()
    # Nothing but finished libraries and locks is left.
    assert sorted(entry.name for entry in cache.iterdir() if entry.suffix != ".lock") == sorted(
        [path.parent.name, other.parent.name]
    )


def test_a_library_that_was_cut_short_is_compiled_anew(cache: Path, small: Path) -> None:
    path = built_library(described(small))
    content = path.read_bytes()
    for rest in (content[: len(content) // 2], b""):
        path.write_bytes(rest)
        assert built_library(described(small)) == path
        assert read_registrations(path).operators == ("small::one.out",)


def test_flags_are_part_of_what_it_is(cache: Path, small: Path) -> None:
    plain = built_library(described(small))
    (small / "op.yaml").write_text(DESCRIPTION + "definitions: [SOMETHING]\n")
    assert built_library(described(small)) != plain


def test_two_at_once_compile_it_once(cache: Path, small: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: built_library(described(small)), range(2)))
    assert paths[0] == paths[1]
    assert [entry for entry in cache.iterdir() if entry.suffix != ".lock"] == [paths[0].parent]


def test_the_environment_does_not_get_in(cache: Path, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CXXFLAGS", "LDFLAGS"):
        monkeypatch.setenv(name, "-no-such-flag")
    monkeypatch.setenv("DESTDIR", str(cache / "elsewhere"))
    assert read_registrations(built_library(described(small))).operators == ("small::one.out",)


def test_without_a_compiler_it_says_how_to_do_without(
    cache: Path, small: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ToolError, match=r"no C\+\+ compiler") as caught:
        built_library(described(small))
    assert caught.value.exit == ExitCode.ENVIRONMENT
    hint = caught.value.problems[0].hint or ""
    assert "apt-get install -y g++" in hint
    assert "--no-verify" in hint
    assert "export.cache" not in hint
    with pytest.raises(ToolError) as attention:
        attention_library()
    assert "export.cache: shift" in (attention.value.problems[0].hint or "")
    assert not cache.exists()


def test_what_does_not_compile_is_told_with_its_first_error(cache: Path, small: Path) -> None:
    (small / "one.cpp").write_text(ONE.replace("Kernel(", "Colonel("))
    with pytest.raises(ToolError, match="Colonel") as caught:
        built_library(described(small))
    [problem] = caught.value.problems
    assert problem.code == "operators.compile"
    assert problem.file is not None
    assert "Colonel" in problem.file.read_text()
    assert "--no-verify" in (problem.hint or "")
    assert not [entry for entry in cache.iterdir() if entry.is_dir()]
    (small / "one.cpp").write_text(ONE)
    assert built_library(described(small)).is_file()


def test_a_description_that_promises_more_than_there_is(cache: Path, small: Path) -> None:
    (small / "one.cpp").write_text(ONE.replace("one.out", "another.out"))
    with pytest.raises(ToolError, match=r"small::another\.out") as caught:
        built_library(described(small))
    assert caught.value.problems[0].code == "operators.registrations"


def test_a_symbol_that_is_nowhere_is_found_when_it_is_linked(cache: Path, small: Path) -> None:
    (small / "one.cpp").write_text(ONE + "void nowhere(); void use() { nowhere(); }\n")
    with pytest.raises(ToolError, match="undefined reference to"):
        built_library(described(small))


def test_a_cache_that_cannot_be_written(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ETCLI_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(ToolError, match="cannot keep") as caught:
        built_library(described(small))
    assert caught.value.problems[0].code == "operators.cache"


def test_loading_twice_is_once_and_a_copy_is_refused(loaded_library: Path, tmp_path: Path) -> None:
    from executorch.extension.pybindings.portable_lib import _get_operator_names

    load_into_executorch(loaded_library)
    assert sorted(name for name in _get_operator_names() if name.startswith("etcli::")) == list(TWO)
    copy = Path(shutil.copy(loaded_library, tmp_path))
    with pytest.raises(ToolError, match="registered in this process") as caught:
        load_into_executorch(copy)
    assert caught.value.problems[0].code == "operators.twice"
    assert str(loaded_library) in caught.value.problems[0].message


def test_a_damaged_library_is_no_crash(loaded_library: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "libdamaged.so"
    damaged.write_bytes(loaded_library.read_bytes()[:5000])
    for path in (damaged, tmp_path / "absent.so"):
        with pytest.raises(ToolError):
            load_into_executorch(path)


@pytest.mark.known_failure("operators-not-for-python")
def test_a_library_for_another_runtime_is_told(tmp_path: Path) -> None:
    path = tmp_path / "libother.so"
    argv = ["g++", "-x", "c++", "-", "-shared", "-fPIC", "-o", path]
    subprocess.run(argv, input="void lacking(); struct S { S() { lacking(); } } s;", text=True, check=True)
    with pytest.raises(ToolError, match="lacking") as caught:
        load_into_executorch(path)
    assert caught.value.problems[0].code == "operators.unreadable"


def test_building_it_imports_neither_torch_nor_executorch() -> None:
    code = "import sys; from etcli.ops.library import attention_library; attention_library(); print({'torch', 'executorch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
