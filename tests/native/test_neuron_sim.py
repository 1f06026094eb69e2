"""The simulated NPU runtime: used by a strict client of the vendor's interface, here under sanitizers, on the other processor under emulation."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from aarch64_native import build_for_aarch64, emulated
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from simulated_networks import write_networks

ADAPTER, ALLOCATOR = "libneuronusdk_adapter.mtk.so", "libneuron_buffer_allocator.so"
RUNTIME = "libetcli_neuron_sim.so"  # what ADAPTER hands its calls on to
CASES = 33

# The functions that ExecuTorch's MediaTek backend calls, and no others.
ADAPTER_FUNCTIONS = [
    "NeuronModel_create",
    "NeuronModel_free",
    "NeuronModel_addOperand",
    "NeuronModel_getExtensionOperandType",
    "NeuronModel_getExtensionOperationType",
    "NeuronModel_setOperandValue",
    "NeuronModel_addOperation",
    "NeuronModel_identifyInputsAndOutputs",
    "NeuronModel_finish",
    "NeuronCompilation_createWithOptions",
    "NeuronCompilation_setPreference",
    "NeuronCompilation_setPriority",
    "NeuronCompilation_finish",
    "NeuronCompilation_free",
    "NeuronCompilation_getInputPaddedSize",
    "NeuronCompilation_getOutputPaddedSize",
    "NeuronExecution_create",
    "NeuronExecution_free",
    "NeuronExecution_setInput",
    "NeuronExecution_setOutput",
    "NeuronExecution_setInputFromMemory",
    "NeuronExecution_setOutputFromMemory",
    "NeuronExecution_compute",
    "NeuronMemory_createFromAHardwareBuffer",
    "NeuronMemory_free",
]
ALLOCATOR_FUNCTIONS = [
    "neuron_buffer_allocator_create",
    "neuron_buffer_allocate",
    "neuron_buffer_remove",
    "neuron_buffer_find",
    "neuron_buffer_clear",
]


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled networks that the client restores, and what PyTorch computes with them."""
    folder = tmp_path_factory.mktemp("simulated") / "networks"
    write_networks(folder)
    return folder


@pytest.fixture(scope="module")
def for_aarch64(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client and the simulated libraries for the other processor."""
    folder = tmp_path_factory.mktemp("neuron-sim-aarch64")
    build_for_aarch64(folder, [f"neuron_sim_{name}" for name in ("client", "together", "apart")])
    return folder / "neuron_sim"


def _variables(libraries: Path, networks: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(libraries), "ETCLI_SIMULATED_NETWORKS": str(networks)}


def _run(command: list[str | Path], variables: dict[str, str]) -> str:
    environment = {**os.environ, **variables}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout


def _check_cases(output: str, at_least: int = CASES) -> None:
    counts = re.search(r"test cases: *(\d+) \| *(\d+) passed", output)
    assert counts, output
    assert counts[1] == counts[2]
    assert int(counts[1]) >= at_least


def _check_together(output: str) -> None:
    lines = output.splitlines()
    assert len(lines) == 7
    assert all(line.startswith("ok: ") for line in lines)


def test_a_strict_client(native_build: Path, networks: Path) -> None:
    libraries = native_build / "neuron_sim"
    client = libraries / "tests" / "neuron_sim_client"
    _check_cases(_run([client, "--no-version"], _variables(libraries, networks)))


def test_one_process_with_our_runner(native_build: Path, networks: Path) -> None:
    libraries = native_build / "neuron_sim"
    _check_together(_run([libraries / "tests" / "neuron_sim_together"], _variables(libraries, networks)))


@pytest.mark.full
def test_a_strict_client_on_aarch64(for_aarch64: Path, networks: Path) -> None:
    client = for_aarch64 / "tests" / "neuron_sim_client"
    variables = _variables(for_aarch64, networks)
    _check_cases(_run(emulated(client, "--no-version", environment=variables), {}))


@pytest.mark.full
def test_one_process_with_our_runner_on_aarch64(for_aarch64: Path, networks: Path) -> None:
    program = for_aarch64 / "tests" / "neuron_sim_together"
    _check_together(_run(emulated(program, environment=_variables(for_aarch64, networks)), {}))


@pytest.mark.full
def test_a_process_that_shows_an_executorch_of_its_own(for_aarch64: Path, networks: Path) -> None:
    """As upstream's delegate does. Without sanitizers, under which libraries cannot see their own symbols first."""
    program = for_aarch64 / "tests" / "neuron_sim_apart"
    variables = _variables(for_aarch64, networks)
    _check_cases(_run(emulated(program, "--no-version", environment=variables), {}), at_least=8)


@pytest.mark.full
@pytest.mark.parametrize(
    ("library", "functions"),
    [(ADAPTER, ADAPTER_FUNCTIONS), (RUNTIME, ADAPTER_FUNCTIONS), (ALLOCATOR, ALLOCATOR_FUNCTIONS)],
)
def test_the_libraries_show_the_vendors_functions_and_nothing_else(
    library: str, functions: list[str], for_aarch64: Path
) -> None:
    with (for_aarch64 / library).open("rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".dynsym")
        assert isinstance(table, SymbolTableSection)
        # The table of another linker may begin with its sections, which have no names.
        shown = {symbol.name for symbol in table.iter_symbols() if symbol["st_shndx"] != "SHN_UNDEF"} - {""}
        assert shown == set(functions)
        dynamic = elf.get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)
        [soname] = [tag.soname for tag in dynamic.iter_tags("DT_SONAME")]
        assert soname == library
