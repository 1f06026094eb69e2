"""The target table: what every other room relies on, checked against tools of this machine where they are there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from etcli.common.assets import asset_dir
from etcli.common.errors import ExitCode, ToolError
from etcli.tables import reading
from etcli.tables.targets import Target, load_targets


def test_known_targets_and_order():
    assert list(load_targets()) == ["host", "linux-aarch64", "android"]


def test_table_cannot_be_changed():
    targets = load_targets()
    with pytest.raises(TypeError):
        targets["x"] = targets["host"]  # type: ignore[index]
    with pytest.raises(ValueError, match="frozen"):
        targets["host"].abi = "arm64-v8a"  # type: ignore[misc]


def test_loader_is_a_system_library_and_the_cxx_runtime_is_not():
    for target in load_targets().values():
        if target.system == "linux":
            assert target.is_system_library(Path(target.interpreter).name)
        assert not set(target.runtime_libraries) & set(target.system_libraries)


@pytest.mark.parametrize("name", ["host", "linux-aarch64"])
def test_the_compiler_makes_what_the_table_says(name, tmp_path):
    target = load_targets()[name]
    compiler = next((found for program in target.compiler.cxx if (found := shutil.which(program))), None)
    readelf = shutil.which("readelf")
    if compiler is None or readelf is None:
        pytest.skip(f"no compiler for {name} or no readelf here")
    source = tmp_path / "main.cpp"
    source.write_text(
        "#include <string>\nint main(int n, char** v) { return std::string(v[0]).size() == size_t(n); }\n"
    )
    program = tmp_path / "main"
    subprocess.run([compiler, *target.compile_flags, str(source), *target.link_flags, "-o", str(program)], check=True)
    shown = subprocess.run(
        [readelf, "-hldW", str(program)], check=True, capture_output=True, text=True, env={"LC_ALL": "C"}
    ).stdout
    assert {"EM_X86_64": "X86-64", "EM_AARCH64": "AArch64"}[target.machine] in shown
    assert f"[Requesting program interpreter: {target.interpreter}]" in shown
    loads = [line for line in shown.splitlines() if line.split()[:1] == ["LOAD"]]
    assert loads
    assert min(int(line.split()[-1], 16) for line in loads) >= target.min_load_alignment
    needed = [line.split("[")[1].rstrip("]") for line in shown.splitlines() if "(NEEDED)" in line]
    assert needed
    assert all(target.is_system_library(library) or library in target.runtime_libraries for library in needed)


@pytest.mark.parametrize("name", ["host", "linux-aarch64"])
def test_triple_is_the_compilers_own(name):
    target = load_targets()[name]
    compiler = next((found for program in target.compiler.cxx if (found := shutil.which(program))), None)
    if compiler is None:
        pytest.skip(f"no compiler for {name} here")
    triple = subprocess.run([compiler, "-dumpmachine"], check=True, capture_output=True, text=True).stdout.strip()
    assert triple.replace("-pc-", "-").replace("-unknown-", "-") == target.triple


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"machine": "EM_ARM"}, "machine"),
        ({"min_load_alignment": 5000}, "power of two"),
        ({"extra": 1}, "extra"),
        ({"executorch": {"auto": "wheel", "wheel_platform": None}}, "wheel_platform"),
    ],
)
def test_a_wrong_table_is_named(change, said, tmp_path, monkeypatch):
    values = yaml.safe_load((asset_dir("toolchains") / "targets.yaml").read_text())
    values["targets"][0] |= change
    (tmp_path / "targets.yaml").write_text(yaml.safe_dump(values))
    monkeypatch.setattr(reading, "asset_dir", lambda _name: tmp_path)
    load_targets.cache_clear()
    try:
        with pytest.raises(ToolError) as caught:
            load_targets()
    finally:
        load_targets.cache_clear()
    (problem,) = caught.value.problems
    assert problem.code == "tables.invalid"
    assert problem.exit_code == ExitCode.ENVIRONMENT
    assert said in problem.message


@pytest.mark.parametrize(
    ("content", "code"), [(None, "tables.missing"), (b"a: [", "tables.invalid"), (b"\xff", "tables.invalid")]
)
def test_an_unreadable_table_is_explained(content, code, tmp_path, monkeypatch):
    class Anything(reading.Table):
        a: int

    if content is not None:
        (tmp_path / "x.yaml").write_bytes(content)
    monkeypatch.setattr(reading, "asset_dir", lambda _name: tmp_path)
    with pytest.raises(ToolError) as caught:
        reading.read_table("x.yaml", Anything)
    assert caught.value.problems[0].code == code


def test_targets_have_titles():
    assert all(isinstance(target, Target) and target.title for target in load_targets().values())


def test_openmp_is_compiled_and_linked_statically_everywhere():
    for target in load_targets().values():
        for kind, facts in target.openmp.items():
            assert "-fopenmp" in facts.compile
            # an archive by its name is linked without -fopenmp, which would bring the shared one too
            assert ("-fopenmp" in facts.link) == (facts.archive is None), (target.name, kind)
            assert ("-static-openmp" in facts.link) == (facts.archive is None), (target.name, kind)
    assert set(load_targets()["android"].openmp) == {"clang"}


@pytest.mark.parametrize("name", ["host", "linux-aarch64"])
def test_the_openmp_archive_comes_with_the_compiler(name):
    target = load_targets()[name]
    compiler = shutil.which(target.compiler.cxx[0])
    if compiler is None:
        pytest.skip(f"{target.compiler.cxx[0]} is not installed")
    argv = [compiler, f"-print-file-name={target.openmp['gcc'].archive}"]
    found = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()
    assert Path(found).is_absolute()
    assert Path(found).is_file()
