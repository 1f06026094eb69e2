"""Reads a `.pte` file into `ProgramFacts`: only its program part is looked at, whatever its segments weigh."""

from __future__ import annotations

import math
import mmap
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from etcli.common.errors import EtcliError, UsageError
from etcli.pte import schema
from etcli.pte.facts import (
    ArenaFacts,
    DelegateFacts,
    MethodFacts,
    NamedDataFacts,
    OperatorFacts,
    ProgramFacts,
    SegmentFacts,
    ValueFacts,
)
from etcli.pte.flatbuffer import Buffer, Malformed, Table

HEADER_MAGIC = b"eh00"
_HEADER_OFFSET = 8
_HEADER_MINIMUM = 24
_TENSOR = schema.KINDS.index("Tensor")


def read_program(path: Path, *, error: type[EtcliError] = UsageError) -> ProgramFacts:
    """What `path` holds. The file is untrusted: it is memory-mapped, and every offset in it is checked.

    Raises:
        EtcliError: of the class `error`: code `pte.missing` where there is no such file, `pte.invalid` where it is no whole program.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size < 8:
                raise Malformed(f"it has {size} bytes")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
                return _read(path, view)
    except Malformed as problem:
        raise error(
            f"{path.name} is not a whole ExecuTorch program: {problem}",
            code="pte.invalid",
            hint="It is truncated, damaged, or no .pte file. Export it, or copy it, again.",
            file=path,
        ) from None
    except OSError as problem:
        raise error(
            f"cannot read {path}: {problem.strerror or problem}",
            code="pte.missing",
            hint="Give the path of a .pte file.",
            file=path,
        ) from None


@dataclass(frozen=True)
class _Header:
    """Where the program ends and its segments begin, both from the start of the file."""

    program_size: int
    segment_base: int


def _read(path: Path, view: memoryview) -> ProgramFacts:
    identifier = bytes(view[4:8])
    if not (identifier.startswith(b"ET") and identifier.isalnum()):
        raise Malformed(f"bytes 4 to 8 are {identifier!r}, where a program has ET12")
    header = _header(view)
    with view[: header.program_size] as part:
        root = Buffer(part).root()
        segments = tuple(_segments(root, header, len(view)))
        return ProgramFacts(
            path=path,
            size=len(view),
            identifier=identifier.decode(),
            version=root.number(schema.Program.VERSION, "I"),
            program_size=header.program_size,
            methods=tuple(_method(root, plan, segments) for plan in root.tables(schema.Program.EXECUTION_PLAN)),
            segments=segments,
            named_data=tuple(_named(entry, segments) for entry in root.tables(schema.Program.NAMED_DATA)),
            constants=_constants(root.table(schema.Program.CONSTANT_SEGMENT), segments),
        )


def _header(view: memoryview) -> _Header:
    """The extended header, as `exir/_serialize/_program.py` writes it; a file without one is all program."""
    raw = bytes(view[_HEADER_OFFSET : _HEADER_OFFSET + _HEADER_MINIMUM])
    if raw[:4] != HEADER_MAGIC or len(raw) < _HEADER_MINIMUM:
        return _Header(len(view), 0)
    length = int.from_bytes(raw[4:8], "little")
    program, base = int.from_bytes(raw[8:16], "little"), int.from_bytes(raw[16:24], "little")
    if length < _HEADER_MINIMUM or program < _HEADER_OFFSET + length or (base and base < program):
        raise Malformed("its header contradicts itself")
    if max(program, base) > len(view):
        raise Malformed(f"its header speaks of {max(program, base)} bytes, the file has {len(view)}")
    return _Header(program, base)


def _segments(root: Table, header: _Header, size: int) -> list[SegmentFacts]:
    found = []
    for index, entry in enumerate(root.tables(schema.Program.SEGMENTS)):
        segment = SegmentFacts(header.segment_base + entry.number(0, "Q"), entry.number(1, "Q"))
        if segment.offset + segment.size > size:
            raise Malformed(f"segment {index} ends at byte {segment.offset + segment.size}, the file has {size}")
        found.append(segment)
    return found


def _segment(segments: tuple[SegmentFacts, ...], index: int) -> SegmentFacts:
    if index >= len(segments):
        raise Malformed(f"it refers to segment {index} of {len(segments)}")
    return segments[index]


def _named(entry: Table, segments: tuple[SegmentFacts, ...]) -> NamedDataFacts:
    index = entry.number(1, "I")
    return NamedDataFacts(entry.text(0), index, _segment(segments, index).size)


def _constants(entry: Table | None, segments: tuple[SegmentFacts, ...]) -> tuple[SegmentFacts, ...]:
    """The constant tensors' places in the file; the first of the listed offsets stands for no constant."""
    starts = () if entry is None else entry.numbers(1, "Q")
    if entry is None or len(starts) < 2:
        return ()
    segment = _segment(segments, entry.number(0, "I"))
    ends = (*starts[1:], segment.size)
    if any(start > end for start, end in zip(starts, ends, strict=True)):
        raise Malformed("its constants lie outside their segment")
    return tuple(
        SegmentFacts(segment.offset + start, end - start) for start, end in zip(starts[1:], ends[1:], strict=True)
    )


def _method(root: Table, plan: Table, segments: tuple[SegmentFacts, ...]) -> MethodFacts:
    kernels: Counter[int] = Counter()
    delegated: Counter[int] = Counter()
    instructions = 0
    for chain in plan.tables(schema.Plan.CHAINS):
        for instruction in chain.tables(2):
            instructions += 1
            kind, call = instruction.number(0, "B"), instruction.table(1)
            if call is not None and kind == schema.KERNEL_CALL:
                kernels[call.number(0, "i")] += 1
            elif call is not None and kind == schema.DELEGATE_CALL:
                delegated[call.number(0, "i")] += 1
    # entry 0 stands for constants and is not allocated
    planned_buffers = plan.numbers(schema.Plan.NON_CONST_BUFFER_SIZES, "q")[1:]
    memory = _memory(plan, planned_buffers)
    return MethodFacts(
        name=plan.text(schema.Plan.NAME),
        inputs=tuple(_value(plan, index) for index in plan.numbers(schema.Plan.INPUTS, "i")),
        outputs=tuple(_value(plan, index) for index in plan.numbers(schema.Plan.OUTPUTS, "i")),
        operators=tuple(
            OperatorFacts(_operator(entry), kernels[index])
            for index, entry in enumerate(plan.tables(schema.Plan.OPERATORS))
        ),
        delegates=tuple(
            _delegate(root, entry, segments, delegated[index])
            for index, entry in enumerate(plan.tables(schema.Plan.DELEGATES))
        ),
        planned_buffers=planned_buffers,
        instructions=instructions,
        arenas=memory.arenas,
        constants=memory.constants,
        values=memory.values,
    )


@dataclass(frozen=True)
class _Memory:
    """Where a method's tensors lie."""

    arenas: tuple[ArenaFacts, ...]
    constants: int
    values: int


def _memory(plan: Table, sizes: tuple[int, ...]) -> _Memory:
    count: Counter[int] = Counter()
    bytes_in: Counter[int] = Counter()
    constants = values = 0
    for holder in plan.tables(schema.Plan.VALUES):
        values += 1
        tensor = holder.table(schema.EValue.VALUE) if holder.number(schema.EValue.KIND, "B") == _TENSOR else None
        if tensor is None:
            continue
        allocated = tensor.table(schema.Tensor.ALLOCATION_INFO)
        if allocated is None:
            constants += tensor.number(schema.Tensor.DATA_BUFFER, "I") > 0
            continue
        place = allocated.number(0, "I")
        dtype = schema.SCALAR_TYPES.get(tensor.number(schema.Tensor.SCALAR_TYPE, "b"), "")
        count[place] += 1
        bytes_in[place] += math.prod(tensor.numbers(schema.Tensor.SIZES, "i")) * schema.ITEM_BYTES.get(dtype, 1)
    arenas = tuple(ArenaFacts(size, count[place], bytes_in[place]) for place, size in enumerate(sizes, 1))
    return _Memory(arenas, constants, values)


def _operator(entry: Table) -> str:
    name, overload = entry.text(0), entry.text(1)
    return f"{name}.{overload}" if overload else name


def _delegate(root: Table, entry: Table, segments: tuple[SegmentFacts, ...], calls: int) -> DelegateFacts:
    size = 0
    processed = entry.table(schema.Delegate.PROCESSED)
    if processed is not None:
        location, index = processed.number(0, "b"), processed.number(1, "I")
        if location == schema.SEGMENT:
            size = _segment(segments, index).size
        elif location == schema.INLINE:
            size = root.nth(schema.Program.BACKEND_DELEGATE_DATA, index).length(0)
    specs = tuple(spec.text(0) for spec in entry.tables(schema.Delegate.COMPILE_SPECS))
    return DelegateFacts(entry.text(schema.Delegate.ID), size, calls, specs)


def _value(plan: Table, index: int) -> ValueFacts:
    holder = plan.nth(schema.Plan.VALUES, index)
    kind, value = holder.number(schema.EValue.KIND, "B"), holder.table(schema.EValue.VALUE)
    name = schema.KINDS[kind] if kind < len(schema.KINDS) else f"kind {kind}"
    if name != "Tensor" or value is None:
        return ValueFacts(name)
    scalar = value.number(schema.Tensor.SCALAR_TYPE, "b")
    dynamism = value.number(schema.Tensor.SHAPE_DYNAMISM, "b")
    shape = value.numbers(schema.Tensor.SIZES, "i")
    return ValueFacts(
        kind=name,
        dtype=schema.SCALAR_TYPES.get(scalar, f"type {scalar}"),
        shape=shape,
        dim_order=value.numbers(schema.Tensor.DIM_ORDER, "B") or tuple(range(len(shape))),
        dynamism=schema.DYNAMISM[dynamism] if 0 <= dynamism < len(schema.DYNAMISM) else f"dynamism {dynamism}",
        planned=value.has(schema.Tensor.ALLOCATION_INFO),
    )
