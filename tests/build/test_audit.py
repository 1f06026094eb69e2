"""The audit sees each fault that would keep a program from starting on its target, all at once."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from etcli.build.audit import Audit, audit
from etcli.build.components import Component
from etcli.common.assets import asset_dir
from etcli.tables.operators import ATTENTION, read_operators
from etcli.tables.targets import Target, load_targets

HOST = load_targets()["host"]
AARCH64 = load_targets()["linux-aarch64"]


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """A stage of one program and one library of its own, both sound."""
    folder = tmp_path / "stage"
    folder.mkdir()
    compiled(folder / "libours.so", "int ours() { return 0; }", "-shared", "-Wl,-soname,libours.so")
    compiled(folder / "main", "int ours(); int main() { return ours(); }", *against(folder), "-Wl,-rpath,$ORIGIN")
    for name in HOST.runtime_libraries:
        found = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        shutil.copy(Path(found.stdout.strip()).resolve(), folder / name)
    return folder


def compiled(path: Path, text: str, *flags: str, compiler: str = "g++") -> None:
    argv = [compiler, "-x", "c++", "-", "-x", "none", "-fPIC", "-Wl,--no-as-needed", "-o", path, *flags]
    subprocess.run(argv, input=text, text=True, check=True)


def against(folder: Path) -> tuple[str, ...]:
    return (f"-L{folder}", "-lours")


def audited(stage: Path, target: Target = HOST, *parts: Component) -> Audit:
    return audit(stage, target, ("main",), parts)


def codes(found: Audit) -> list[str]:
    return sorted(problem.code for problem in found.problems)


def test_a_sound_stage_has_no_problems(stage: Path) -> None:
    found = audited(stage)
    assert found.problems == ()
    assert found.reasons["main"] == "program"
    assert found.reasons["libours.so"] == "needed by main"
    assert found.facts["main"].interpreter == HOST.interpreter
    assert found.operators == ()


def test_another_machine_and_loader(stage: Path) -> None:
    found = audited(stage, AARCH64)
    wrong = [problem.message for problem in found.problems if problem.code == "audit.machine"]
    assert len(wrong) == len(found.facts)
    assert "audit.interpreter" in codes(found)
    assert any("EM_X86_64" in message and "EM_AARCH64" in message for message in wrong)


def test_a_library_that_is_nowhere(stage: Path) -> None:
    (stage / "libours.so").unlink()
    [problem] = audited(stage).problems
    assert problem.code == "audit.missing_library"
    assert "libours.so" in problem.message
    assert "needed by main" in problem.message


@pytest.mark.parametrize("path", ["/home/someone/lib", "$ORIGIN:/usr/local/lib", "lib"])
def test_a_run_path_of_this_machine(stage: Path, path: str) -> None:
    compiled(stage / "main", "int ours(); int main() { return ours(); }", *against(stage), f"-Wl,-rpath,{path}")
    [problem] = audited(stage).problems
    assert problem.code == "audit.run_path"
    assert path.split(":")[-1] in problem.message


def test_segments_aligned_to_less_than_a_page(stage: Path) -> None:
    compiled(
        stage / "libours.so",
        "int ours() { return 0; }",
        "-shared",
        "-Wl,-z,max-page-size=2048",
        "-Wl,-z,common-page-size=2048",
    )
    [problem] = audited(stage).problems
    assert problem.code == "audit.alignment"
    assert "2048" in problem.message


def test_a_library_that_no_program_loads(stage: Path) -> None:
    compiled(stage / "libalone.so", "int alone() { return 0; }", "-shared")
    [problem] = audited(stage).problems
    assert problem.code == "audit.never_loaded"
    assert "libalone.so" in problem.message


def test_a_library_under_another_name(stage: Path) -> None:
    compiled(stage / "libours.so", "int ours() { return 0; }", "-shared", "-Wl,-soname,libours.so.1")
    assert codes(audited(stage)) == ["audit.soname"]


def test_damaged_and_foreign_files(stage: Path) -> None:
    whole = (stage / "libours.so").read_bytes()
    (stage / "libours.so").write_bytes(whole[:100])
    (stage / "notes.txt").write_text("not a program")
    (stage / "main").unlink()
    found = audited(stage)
    assert {"elf.invalid", "audit.not_elf", "audit.missing_program"} <= set(codes(found))


def test_a_runtime_older_than_what_needs_it(stage: Path) -> None:
    """A libstdc++ that defines no symbol versions at all stands for one that lacks the newest."""
    program = "#include <string>\nint ours(); int main() { return ours() + std::stoi(std::string(40, '1')); }"
    compiled(stage / "main", program, *against(stage), "-Wl,-rpath,$ORIGIN")
    compiled(stage / "libstdc++.so.6", "int old() { return 0; }", "-shared", "-Wl,-soname,libstdc++.so.6")
    problems = audited(stage).problems
    assert any(problem.code == "audit.symbol_version" and "GLIBCXX_3.4" in problem.message for problem in problems)


def test_a_component_that_registers_nothing(stage: Path) -> None:
    part = Component("ours", backends=("OursBackend",), operators=True)
    found = audited(stage, HOST, part)
    assert codes(found) == ["audit.not_registered", "audit.not_registered"]


# What registers operators: a table of name, key and function, kept by someone who uses it. `used` keeps the linker from dropping it.
TABLE = """
struct Kernel {{ const char* name; const char* key; void (*function)(); }};
static void run() {{}}
extern const Kernel {used}[];
const Kernel {used}[] = {{ {rows} }};
"""


def table(used: str, *operators: str) -> str:
    rows = ", ".join(f'{{"{name}", nullptr, run}}' for name in operators)
    return TABLE.format(used=used, rows=rows)


RING = ("etcli::ring_attention.out", "etcli::last_row.out")
LIBRARY = read_operators(asset_dir("native") / ATTENTION)


def with_operators(stage: Path, in_main: tuple[str, ...], in_library: tuple[str, ...] = ()) -> Audit:
    compiled(
        stage / "libours.so",
        table("ours_table", *(in_library or ("ours::nothing.out",))) + "int ours() { return 0; }",
        "-shared",
        "-Wl,-soname,libours.so",
    )
    text = table("main_table", *(in_main or ("main::nothing.out",)))
    compiled(
        stage / "main", f"{text} int ours(); int main() {{ return ours(); }}", *against(stage), "-Wl,-rpath,$ORIGIN"
    )
    return audit(stage, HOST, ("main",), (), (LIBRARY,))


@pytest.mark.parametrize(("in_main", "in_library"), [(RING, ()), ((), RING), (RING[:1], RING[1:])])
def test_operators_of_our_own_may_stand_anywhere(
    stage: Path, in_main: tuple[str, ...], in_library: tuple[str, ...]
) -> None:
    found = with_operators(stage, in_main, in_library)
    assert found.problems == ()
    assert set(RING) <= set(found.operators)


def test_operators_that_the_linker_left_out(stage: Path) -> None:
    [problem] = with_operators(stage, (), RING[:1]).problems
    assert problem.code == "audit.not_registered"
    assert "etcli::last_row.out" in problem.message
    assert "etcli::ring_attention.out" not in problem.message
    assert "main" in problem.message


@pytest.mark.parametrize(
    ("in_main", "in_library", "by"),
    [
        (RING, RING[:1], "libours.so and by main"),
        ((), (*RING, RING[0]), "libours.so and by libours.so"),
    ],
)
def test_operators_that_are_registered_twice(
    stage: Path, in_main: tuple[str, ...], in_library: tuple[str, ...], by: str
) -> None:
    [problem] = with_operators(stage, in_main, in_library).problems
    assert problem.code == "audit.registered_twice"
    assert f"etcli::ring_attention.out registered by {by}" in problem.message
    assert "last_row" not in problem.message


def test_two_programs_may_each_have_an_operator(stage: Path) -> None:
    with_operators(stage, RING)
    shutil.copy(stage / "main", stage / "other")
    assert audit(stage, HOST, ("main", "other"), (), (LIBRARY,)).problems == ()
