"""Operators that a program lacks or has twice, and OpenMP's runtime: what is told, with every provider by its name."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from operator_folders import write_operators

from etcli.build.audit import audit
from etcli.build.audit.operators import operator_problems
from etcli.build.audit.runtimes import openmp_problems
from etcli.tables.operators import OperatorLibrary, read_operators
from etcli.tables.targets import load_targets


def library(folder: Path, **fields: object) -> OperatorLibrary:
    return read_operators(write_operators(folder, **fields), own=True)  # type: ignore[arg-type]


@pytest.fixture
def shout(tmp_path: Path) -> OperatorLibrary:
    return library(tmp_path / "shout")


def archive(path: Path, *names: str) -> Path:
    """Stands for a static library with these texts in it."""
    path.write_bytes(b"".join(name.encode() + b"\0" for name in names))
    return path


def test_all_there_once(shout: OperatorLibrary) -> None:
    loaded = {"main": ("shout::twice.out",), "libexecutorch_kernels_optimized.so": ("aten::add.out",)}
    assert operator_problems("main", loaded, (shout,), {}) == []


@pytest.mark.known_failure("operators-dropped-by-linker", "operators-missing-at-start")
def test_what_the_linker_dropped(shout: OperatorLibrary, tmp_path: Path) -> None:
    made = archive(tmp_path / "libshout_ops.a", "shout::twice.out")
    [problem] = operator_problems("main", {"main": ()}, (shout,), {"shout_ops": made})
    assert problem.code == "audit.not_registered"
    assert f"shout::twice.out of shout_ops ({shout.root})" in problem.message
    assert "linked whole" in (problem.hint or "")


def test_a_source_that_registers_another_name(shout: OperatorLibrary, tmp_path: Path) -> None:
    made = archive(tmp_path / "libshout_ops.a", "shout::twice")
    loaded = {"main": ("shout::twice", "etcli::last_row.out")}
    [problem] = operator_problems("main", loaded, (shout,), {"shout_ops": made})
    assert f"register shout::twice: make them and {shout.root / 'op.yaml'} agree" in (problem.hint or "")


def test_a_source_that_is_not_listed(shout: OperatorLibrary, tmp_path: Path) -> None:
    made = archive(tmp_path / "libshout_ops.a", "something else")
    [problem] = operator_problems("main", {"main": ()}, (shout,), {"shout_ops": made})
    assert "None of its sources names it" in (problem.hint or "")
    assert 'EXECUTORCH_LIBRARY(shout, "twice.out", function)' in (problem.hint or "")


def test_a_library_and_executorch(shout: OperatorLibrary, tmp_path: Path) -> None:
    made = archive(tmp_path / "libshout_ops.a", "shout::twice.out", "aten::add.out")
    loaded = {"main": ("aten::add.out", "shout::twice.out"), "libexecutorch_kernels_optimized.so": ("aten::add.out",)}
    [problem] = operator_problems("main", loaded, (shout,), {"shout_ops": made})
    assert problem.code == "audit.registered_twice"
    by = f"aten::add.out registered by shout_ops ({shout.root}) and by libexecutorch_kernels_optimized.so"
    assert by in problem.message


def test_two_libraries_inside_one_program(shout: OperatorLibrary, tmp_path: Path) -> None:
    other = library(tmp_path / "loud", name="loud_ops", namespace="loud")
    archives = {
        "shout_ops": archive(tmp_path / "libshout_ops.a", "shout::twice.out", "third::x.out"),
        "loud_ops": archive(tmp_path / "libloud_ops.a", "loud::twice.out", "third::x.out"),
    }
    loaded = {"main": ("loud::twice.out", "shout::twice.out", "third::x.out", "third::x.out")}
    [problem] = operator_problems("main", loaded, (shout, other), archives)
    assert f"third::x.out registered by shout_ops ({shout.root}) and by loud_ops ({other.root})" in problem.message


def test_a_library_that_registers_its_operator_twice(shout: OperatorLibrary, tmp_path: Path) -> None:
    made = archive(tmp_path / "libshout_ops.a", "shout::twice.out")
    loaded = {"main": ("shout::twice.out", "shout::twice.out")}
    [problem] = operator_problems("main", loaded, (shout,), {"shout_ops": made})
    assert problem.message.count(f"shout_ops ({shout.root})") == 2


SQUARES = """
#include <cstdio>
#include <omp.h>
int main() {
  int count = 0;
  #pragma omp parallel num_threads(3) reduction(+ : count)
  count += 1;
  std::printf("%d\\n", count);
}
"""


def compiled(path: Path, target: str, *, static: bool) -> Path:
    """A program of three threads, linked as the table of targets says, or with the compiler's shared runtime."""
    row = load_targets()[target]
    facts = row.openmp["gcc"]
    compiler = row.compiler.cxx[0]
    assert facts.archive is not None
    found = subprocess.run([compiler, f"-print-file-name={facts.archive}"], capture_output=True, text=True, check=True)
    link = (found.stdout.strip(), *facts.link) if static else ("-fopenmp",)
    unit = path.with_suffix(".o")
    subprocess.run(
        [compiler, "-x", "c++", "-", "-fPIE", "-c", *facts.compile, "-o", unit], input=SQUARES, text=True, check=True
    )
    subprocess.run([compiler, "-pie", unit, "-o", path, *link], check=True)
    unit.unlink()
    return path


@pytest.mark.known_failure("openmp-library-not-found", "openmp-flags-incomplete")
@pytest.mark.parametrize("target", ["host", "linux-aarch64"])
def test_openmp_is_inside_or_told(tmp_path: Path, target: str) -> None:
    row = load_targets()[target]
    stage = tmp_path / "stage"
    stage.mkdir()
    program = compiled(stage / "main", target, static=True)
    assert [
        p.code for p in audit(stage, row, ("main",), ()).problems if "openmp" in p.code or "missing" in p.code
    ] == []
    if target == "host":
        assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "3\n"
    compiled(stage / "main", target, static=False)
    [problem] = [p for p in audit(stage, row, ("main",), ()).problems if "openmp" in p.code or "missing" in p.code]
    assert problem.code == "audit.openmp"
    assert "libgomp.so.1" in problem.message
    assert "build.openmp: static" in (problem.hint or "")


@pytest.mark.known_failure("openmp-flags-incomplete")
def test_two_openmp_runtimes_in_one_process(tmp_path: Path) -> None:
    inside = compiled(tmp_path / "main", "host", static=True)
    other = tmp_path / "libother.so"
    other.write_bytes(b"\x7fELF ... KMP_AFFINITY\0")
    plain = tmp_path / "libplain.so"
    plain.write_bytes(b"\x7fELF")
    assert openmp_problems("main", {"main": inside, "libplain.so": plain}) == []
    [problem] = openmp_problems("main", {"main": inside, "libother.so": other, "libplain.so": plain})
    assert problem.code == "audit.openmp"
    assert "2 OpenMP runtimes: inside main, libother.so" in problem.message
