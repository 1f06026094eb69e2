"""Reading `.pte` files: what ExecuTorch itself wrote is read back right, what is damaged is refused clearly."""

from __future__ import annotations

import contextlib
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etcli.common.errors import ExportError, Problem, UsageError
from etcli.pte.read import read_program

WRITE = """
import sys
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes import MemoryPlanningPass

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 32)

    def forward(self, x, ids):
        return torch.sin(self.linear(x)), ids + 1

programs = {
    name: torch.export.export(Net().eval(), (torch.randn(1, rows, 64), torch.zeros(rows, dtype=torch.int64)))
    for name, rows in (("four", 4), ("one", 1))
}
for path, partitioners, planned in (("xnnpack.pte", [XnnpackPartitioner()], False), ("portable.pte", [], True)):
    plan = MemoryPlanningPass(alloc_graph_input=planned, alloc_graph_output=planned)
    lowered = to_edge_transform_and_lower(programs, partitioner=partitioners)
    with open(sys.argv[1] + "/" + path, "wb") as file:
        lowered.to_executorch(ExecutorchBackendConfig(memory_planning_pass=plan)).write_to_file(file)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pte")
    subprocess.run([sys.executable, "-W", "ignore", "-c", WRITE, str(path)], check=True, capture_output=True)
    return path


def test_methods_and_tensors(folder: Path) -> None:
    facts = read_program(folder / "xnnpack.pte")
    assert facts.identifier == "ET12"
    assert {method.name for method in facts.methods} == {"one", "four"}
    method = facts.method("four")
    assert method is not None
    assert [(value.dtype, value.shape) for value in method.inputs] == [("float32", (1, 4, 64)), ("int64", (4,))]
    assert [(value.dtype, value.shape) for value in method.outputs] == [("float32", (1, 4, 32)), ("int64", (4,))]
    assert all(value.contiguous and value.dynamism == "static" for value in (*method.inputs, *method.outputs))
    assert facts.method("two") is None


def test_planned_or_left_to_the_caller(folder: Path) -> None:
    for name, planned in (("xnnpack.pte", False), ("portable.pte", True)):
        for method in read_program(folder / name).methods:
            assert {value.planned for value in (*method.inputs, *method.outputs)} == {planned}
            assert (method.planned_buffers[0] > 0) == planned


@pytest.mark.known_failure("neuron-split-unseen")
def test_operators_and_delegates(folder: Path) -> None:
    delegated = read_program(folder / "xnnpack.pte")
    assert delegated.backends == ("XnnpackBackend",)
    for method in delegated.methods:
        assert [(delegate.backend, delegate.calls) for delegate in method.delegates] == [("XnnpackBackend", 1)]
        assert method.delegates[0].processed_size > 0
        assert "aten::add.out" in method.operator_names  # of integers: XNNPACK has none
    portable = read_program(folder / "portable.pte")
    assert portable.backends == ()
    assert {"aten::sin.out", "aten::add.out"} <= set(portable.operators)


def test_constants_of_kernels_have_their_places(folder: Path) -> None:
    """The portable program's weight, by the bytes that ExecuTorch's own deserialiser gives."""
    from executorch.exir._serialize._program import deserialize_pte_binary

    path = folder / "portable.pte"
    content, facts = path.read_bytes(), read_program(path)
    buffers = [buffer.storage for buffer in deserialize_pte_binary(content).program.constant_buffer]
    found = [content[place.offset : place.offset + place.size] for place in facts.constants]
    assert found == buffers[1:]
    assert 64 * 32 * 4 in {place.size for place in facts.constants}
    assert read_program(folder / "xnnpack.pte").constants != facts.constants


def test_shared_weights_are_named_once(folder: Path) -> None:
    facts = read_program(folder / "xnnpack.pte")
    assert max(entry.size for entry in facts.named_data) == 64 * 32 * 4
    assert len({entry.key for entry in facts.named_data}) == len(facts.named_data)
    assert all(segment.offset + segment.size <= facts.size for segment in facts.segments)


def test_agrees_with_the_runtime(folder: Path) -> None:
    """ExecuTorch's own runtime tells the same about inputs and outputs."""
    script = (
        "import sys; from executorch.runtime import Runtime\n"
        "program = Runtime.get().load_program(sys.argv[1])\n"
        "for name in sorted(program.method_names):\n"
        "    meta = program.metadata(name)\n"
        "    print(name, [tuple(meta.input_tensor_meta(i).sizes()) for i in range(meta.num_inputs())],"
        " [tuple(meta.output_tensor_meta(i).sizes()) for i in range(meta.num_outputs())])\n"
    )
    path = folder / "xnnpack.pte"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(path)], check=True, capture_output=True, text=True
    )
    ours = [
        f"{method.name} {[value.shape for value in method.inputs]} {[value.shape for value in method.outputs]}"
        for method in sorted(read_program(path).methods, key=lambda method: method.name)
    ]
    assert [line for line in done.stdout.splitlines() if line.startswith(("one", "four"))] == sorted(ours)


def test_no_torch(folder: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from etcli.pte.read import read_program\n"
        "read_program(Path(sys.argv[1])); assert not {'torch', 'executorch.exir', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, str(folder / "xnnpack.pte")], check=True)


def test_every_truncation_is_refused(folder: Path, tmp_path: Path) -> None:
    whole = (folder / "xnnpack.pte").read_bytes()
    program = read_program(folder / "xnnpack.pte").program_size
    cut = tmp_path / "cut.pte"
    for length in [*range(0, program, 97), *range(program, len(whole), 1021), len(whole) - 1]:
        cut.write_bytes(whole[:length])
        with pytest.raises(UsageError) as caught:
            read_program(cut)
        assert caught.value.problems[0].code == "pte.invalid"


def test_damage_never_ends_in_another_exception(folder: Path, tmp_path: Path) -> None:
    whole = bytearray((folder / "portable.pte").read_bytes())
    program = read_program(folder / "portable.pte").program_size
    damaged = tmp_path / "damaged.pte"
    refused = 0
    for position in range(8, program - 4):
        for value in (0, 0x7FFFFFFF, 0xFFFFFFF0) if position % 4 == 0 else (0xFFFFFFFF,):
            copy = bytearray(whole)
            copy[position : position + 4] = struct.pack("<I", value)
            damaged.write_bytes(copy)
            try:
                read_program(damaged)
            except UsageError:
                refused += 1
    assert refused > 100


def test_vectors_that_share_children_end(tmp_path: Path) -> None:
    """A 400 kB file that asks for the same 50000-element vector 50000 times."""
    count = 50_000
    program = struct.pack("<HHHH", 8, 12, 4, 8)  # vtable: version, execution_plan
    root = 16 + len(program)
    data = bytearray(struct.pack("<I4s8x", root, b"ET12") + program)
    data += struct.pack("<iII", len(program), 0, 4)  # root: back to vtable, version, vector right behind
    plans = len(data)
    data += struct.pack("<I", count) + bytes(4 * count)
    vtable = len(data)
    data += struct.pack("<16H", 4 + 2 * 14, 8, *([0] * 6), 4, *([0] * 7))  # only field 6, operators
    plan = len(data)
    data += struct.pack("<iI", plan - vtable, 4)
    operators = len(data)
    data += struct.pack("<I", count) + bytes(4 * count)
    empty_vtable = len(data)
    data += struct.pack("<HH", 4, 4)
    empty = len(data)
    data += struct.pack("<i", empty - empty_vtable)
    for index in range(count):
        place = plans + 4 + 4 * index
        struct.pack_into("<I", data, place, plan - place)
        place = operators + 4 + 4 * index
        struct.pack_into("<I", data, place, empty - place)
    path = tmp_path / "bomb.pte"
    path.write_bytes(data)
    with pytest.raises(UsageError, match="far too often"):
        read_program(path)


@pytest.mark.parametrize("content", [b"", b"\0" * 64, b"\x7fELF" + b"\0" * 60, b"PK\x03\x04" * 20])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.pte"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="not a whole ExecuTorch program"):
        read_program(path)


def test_missing_file_with_the_callers_error(tmp_path: Path) -> None:
    with pytest.raises(ExportError) as caught:
        read_program(tmp_path / "none.pte", error=ExportError)
    assert caught.value.problems[0].code == "pte.missing"
    with pytest.raises(UsageError):
        read_program(tmp_path)


def test_the_memory_plan_is_what_the_runtime_allocates(folder: Path) -> None:
    method = read_program(folder / "portable.pte").method("four")
    assert method is not None
    (arena,) = method.arenas
    assert arena.size == method.planned_buffers[0]
    # inputs and outputs are planned here: x, ids, linear's result (and what comes before it), its sine, ids + 1
    assert arena.tensors >= 5
    assert arena.tensor_bytes >= 4 * 64 * 4 + 4 * 8 + 2 * (4 * 32 * 4) + 4 * 8
    assert method.constants >= 2  # weight and bias
    assert method.values > arena.tensors + method.constants
    delegated = read_program(folder / "xnnpack.pte").method("four")
    assert delegated is not None
    assert delegated.constants == 1  # the 1 of ids + 1; the delegate has weight and bias


EDITS = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.one_of(st.binary(min_size=1, max_size=8), st.sampled_from([bytes(4), b"\xff" * 4, b"\4\0\0\0"])),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(["xnnpack.pte", "portable.pte"]), edits=EDITS, length=st.floats(0.2, 1))
def test_whatever_was_changed_it_is_read_or_refused(
    name: str, edits: list[tuple[float, bytes]], length: float, folder: Path, tmp_path: Path
) -> None:
    whole = (folder / name).read_bytes()
    data = bytearray(whole)
    program = read_program(folder / name).program_size
    for place, content in edits:
        start = 8 + int(place * (program - 16))
        data[start : start + len(content)] = content
    del data[max(8, int(length * len(data))) :]
    path = tmp_path / "changed.pte"
    path.write_bytes(data)
    refused: tuple[Problem, ...] = ()
    try:
        facts = read_program(path)
    except UsageError as error:
        refused = error.problems
    if refused:
        assert [problem.code for problem in refused] == ["pte.invalid"]
        assert len(refused[0].message) < 400
        return
    # what is said of a file that passes can be relied upon by whoever reads on
    assert facts.program_size <= len(data)
    for segment in (*facts.segments, *facts.constants):
        assert 0 <= segment.offset <= segment.offset + segment.size <= len(data)
    for method in facts.methods:
        for delegate in method.delegates:
            assert 0 <= delegate.processed_size <= len(data)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(head=st.sampled_from([b"", b"\x08\0\0\0ET12", b"\x20\0\0\0ET12eh00\x18\0\0\0"]), rest=st.binary(max_size=120))
def test_any_bytes_are_refused_or_read(head: bytes, rest: bytes, tmp_path: Path) -> None:
    path = tmp_path / "any.pte"
    path.write_bytes(head + rest)
    with contextlib.suppress(UsageError):
        read_program(path)
