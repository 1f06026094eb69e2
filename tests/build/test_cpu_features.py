"""CPU features: what compilers' options use, what a build may, and what a device has."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from operator_folders import write_operators

from etcli.build import inputs
from etcli.build.audit.cpu import cpu_use
from etcli.build.stage import BuildResult
from etcli.common.errors import BuildError, EtcliError, ExitCode, RunError
from etcli.device.cpu import check_cpu
from etcli.manifests.build import BuildManifest
from etcli.output.console import Console
from etcli.tables.cpu import instructions
from etcli.tables.operators import OperatorLibrary, read_operators
from etcli.tables.socs import load_socs
from etcli.tables.targets import load_targets

AARCH64 = load_targets()["linux-aarch64"]
HOST = load_targets()["host"]
Builder = Callable[..., BuildResult]


@pytest.mark.parametrize(
    ("flags", "used"),
    [
        ([], set()),
        (["-O2", "-march=armv8-a", "-mtune=cortex-a76"], set()),
        (["-march=armv8.2-a"], {"crc", "lse", "rdma"}),
        (["-march=armv8-a+dotprod"], {"dotprod"}),
        (["-march=armv8.2-a+dotprod", "-march=armv8-a"], set()),
        (["-march=armv8.2-a+dotprod+nodotprod+nolse"], {"crc", "rdma"}),
        (["-mcpu=cortex-a53"], {"crc"}),
        (["-march=native"], {"-march=native"}),
        (["-mcpu=cortex-z9"], {"-mcpu=cortex-z9"}),
        (["-march=armv8-a+new"], {"-march=armv8-a+new"}),
    ],
)
def test_what_options_use_on_arm(flags: list[str], used: set[str]) -> None:
    assert instructions("arm64-v8a").used(flags) == used


def test_what_options_use_on_x86() -> None:
    table = instructions("x86_64")
    assert table.used(["-mavx2", "-mfma", "-m64", "-mno-fma"]) == {"avx2"}
    assert {"avx512f", "avx2"} <= table.used(["-march=x86-64-v4"])
    assert table.used(["-march=x86-64", "-mtune=native"]) == set()


def test_the_table_says_what_the_compiler_does() -> None:
    """The cross compiler is the oracle of what an -march contains, as far as it has a macro for it."""
    macros = {
        "crc": "__ARM_FEATURE_CRC32",
        "lse": "__ARM_FEATURE_ATOMICS",
        "rdma": "__ARM_FEATURE_QRDMX",
        "dotprod": "__ARM_FEATURE_DOTPROD",
        "fp16": "__ARM_FEATURE_FP16_VECTOR_ARITHMETIC",
        "bf16": "__ARM_FEATURE_BF16_VECTOR_ARITHMETIC",
        "i8mm": "__ARM_FEATURE_MATMUL_INT8",
        "sve": "__ARM_FEATURE_SVE",
        "sve2": "__ARM_FEATURE_SVE2",
    }
    table = instructions("arm64-v8a")
    options = [f"-march={name}" for name in table.versions if name not in ("armv9.1-a", "armv9.2-a")]
    options += [
        "-march=armv8.2-a+dotprod+fp16",
        "-mcpu=cortex-a53",
        "-mcpu=cortex-a76",
        "-mcpu=cortex-x1",
        "-mcpu=cortex-a710",
    ]
    for option in options:
        argv = ["aarch64-linux-gnu-g++", "-dM", "-E", "-x", "c++", "/dev/null", option]
        said = subprocess.run(argv, capture_output=True, text=True)
        if "unrecognized" in said.stderr or "unknown value" in said.stderr:
            continue
        defined = {line.split()[1] for line in said.stdout.splitlines()}
        has = {name for name, macro in macros.items() if macro in defined}
        assert has == table.used([option]) & set(macros), option


def test_what_a_cpu_lists() -> None:
    table = instructions("arm64-v8a")
    text = "processor\t: 0\nFeatures\t: fp asimd crc32 asimddp\n\nprocessor\t: 1\nFeatures\t: fp asimd crc32\n"
    assert table.listed(text) == {"fp", "asimd", "crc32"}  # what every core has
    assert table.listed("flags\t\t: fpu sse2\n") is None
    assert table.listed("") is None


def commands(folder: Path, *entries: tuple[Path, str]) -> Path:
    listed = [
        {"directory": str(folder), "file": str(file), "command": f"g++ {flags} -c {file}"} for file, flags in entries
    ]
    (folder / "compile_commands.json").write_text(json.dumps(listed))
    return folder


@pytest.fixture
def library(tmp_path: Path) -> OperatorLibrary:
    more = "architectures:\n  aarch64: {fast.cpp: [-march=armv8.2-a+dotprod]}\n"
    folder = write_operators(tmp_path / "shout", more=more)
    (folder / "fast.cpp").write_text("")
    return read_operators(folder, own=True)


@pytest.mark.known_failure("cpu-above-the-device")
def test_only_files_that_are_chosen_from_may_go_above_the_floor(library: OperatorLibrary, tmp_path: Path) -> None:
    plain, fast = library.root / "twice.cpp", library.root / "fast.cpp"
    tree = commands(tmp_path, (plain, "-O3"), (fast, "-march=armv8.2-a+dotprod"))
    use = cpu_use(tree, AARCH64, (library,), ())
    assert use.problems == ()
    assert use.needed == ()
    assert use.dispatched == {"shout/fast.cpp": ("crc", "dotprod", "lse", "rdma")}
    tree = commands(tmp_path, (plain, "-march=armv8.2-a+dotprod"), (fast, "-march=armv8.2-a+dotprod+i8mm"))
    found = cpu_use(tree, AARCH64, (library,), ()).problems
    assert {problem.code for problem in found} == {"audit.cpu_features"}
    assert str(plain) in found[0].message
    assert "crc, dotprod, lse, rdma of the CPU, and the floor for linux-aarch64 is armv8-a" in found[0].message
    assert f"{fast} may use i8mm" in found[1].message


def test_sources_of_others_that_are_chosen_from(library: OperatorLibrary, tmp_path: Path) -> None:
    """abseil's, which upstream's runner has; whatever else has such flags is above the floor."""
    randen = Path("/executorch/extension/llm/tokenizers/third-party/abseil-cpp/absl/random/internal/randen_hwaes.cc")
    use = cpu_use(commands(tmp_path, (randen, "-march=armv8-a+crypto")), AARCH64, (library,), ())
    assert use.problems == ()
    assert use.dispatched == {"absl/random/internal/randen_hwaes.cc": ("crypto",)}
    [problem] = cpu_use(commands(tmp_path, (randen, "-march=armv8-a+crypto+sve")), AARCH64, (), ()).problems
    assert "may use sve of the CPU" in problem.message
    other = randen.with_name("randen_slow.cc")
    [problem] = cpu_use(commands(tmp_path, (other, "-march=armv8-a+crypto")), AARCH64, (), ()).problems
    assert "may use crypto of the CPU" in problem.message


def test_the_floor_is_that_of_the_recipes_chip(library: OperatorLibrary, tmp_path: Path) -> None:
    floor = [f"-march={load_socs()['mt6991'].march}"]
    tree = commands(tmp_path, (library.root / "twice.cpp", floor[0]), (library.root / "fast.cpp", floor[0]))
    use = cpu_use(tree, AARCH64, (library,), floor)
    assert use.problems == ()
    assert {"asimddp", "fphp", "asimdhp", "atomics"} <= set(use.needed)
    assert use.dispatched == {}
    tree = commands(tmp_path, (library.root / "twice.cpp", "-mcpu=native"))
    [problem] = cpu_use(tree, AARCH64, (library,), floor).problems
    assert "may use -mcpu=native" in problem.message


@pytest.mark.parametrize("text", [None, "[", '[{"file": "x"}]', "3"])
def test_commands_that_cannot_be_read(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "compile_commands.json").write_text(text)
    with pytest.raises(BuildError) as caught:
        cpu_use(tmp_path, AARCH64, (), ())
    assert caught.value.problems[0].code == "audit.compile_commands"


def test_a_build_records_what_it_uses(builder: Builder) -> None:
    manifest = builder().manifest
    assert manifest is not None
    assert manifest.cpu_features == ()
    assert manifest.dispatched == {"attention/special.cpp": ("avx2", "fma")}


@pytest.mark.known_failure("cpu-above-the-device")
def test_a_build_above_the_floor_ends_before_it_compiles(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    real = inputs.render_project

    def tuned(*arguments: object, **options: bool) -> dict[str, str]:
        files = dict(real(*arguments, **options))  # type: ignore[arg-type]
        files["CMakeLists.txt"] = files["CMakeLists.txt"].replace("-Wall -Wextra", "-Wall -Wextra -march=native")
        return files

    monkeypatch.setattr(inputs, "render_project", tuned)
    with pytest.raises(EtcliError) as caught:
        builder()
    [problem] = caught.value.problems
    assert (problem.code, problem.exit_code) == ("audit.cpu_features", ExitCode.BUILD)
    assert problem.file is not None
    assert problem.file.name == "CMakeLists.txt"
    assert "add_compile_options(" in problem.file.read_text().splitlines()[(problem.line or 0) - 1]
    assert not (problem.file.parent / "logs" / "build.log").exists()


class Phone:
    """A device that can show one file."""

    serial = "X"

    def __init__(self, cpuinfo: str) -> None:
        self.cpuinfo = cpuinfo

    def shell(self, argv: list[str]) -> SimpleNamespace:
        assert argv == ["cat", "/proc/cpuinfo"]
        return SimpleNamespace(stdout=self.cpuinfo)


def manifest(*features: str) -> BuildManifest:
    return BuildManifest.model_construct(target="android", cpu_features=features)


@pytest.mark.known_failure("cpu-above-the-device")
def test_run_refuses_a_cpu_below_the_floor() -> None:
    console = Console(verbosity=-1)
    with pytest.raises(RunError) as caught:
        check_cpu(
            manifest("asimddp", "fphp"),
            Phone("Features\t: fp asimd fphp\n"),  # type: ignore[arg-type]
            rebuild="etcli build",
            force=False,
            console=console,
        )
    [problem] = caught.value.problems
    assert problem.code == "run.cpu_features"
    assert "uses asimddp of the CPU, which X lacks" in problem.message
    assert "etcli build" in (problem.hint or "")


@pytest.mark.parametrize(
    ("features", "cpuinfo", "force", "warnings"),
    [
        (("asimddp",), "Features\t: fp asimd\n", True, 1),
        (("asimddp",), "Features\t: fp asimd asimddp\n", False, 0),
        (("asimddp",), "flags\t\t: fpu sse2\n", False, 0),  # an emulated device shows the machine that emulates it
        (("asimddp",), "", False, 0),
        ((), "Features\t: fp\n", False, 0),
    ],
)
def test_other_devices_are_taken(features: tuple[str, ...], cpuinfo: str, force: bool, warnings: int) -> None:
    console = Console(verbosity=-1)
    check_cpu(manifest(*features), Phone(cpuinfo), rebuild="", force=force, console=console)  # type: ignore[arg-type]
    assert len(console.warnings) == warnings
