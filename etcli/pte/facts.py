"""What a `.pte` file says of itself. Sizes are in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ValueFacts:
    """An input or output of a method. `kind` is `Tensor`, or another kind of value (`Int`, `Bool`, ...), then the rest is empty.

    `dtype` is torch's name (`float32`); `planned` tells that the program's own memory plan holds it, so the caller need not supply it.
    """

    kind: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    dim_order: tuple[int, ...] = ()
    dynamism: str = "static"
    planned: bool = False

    @property
    def contiguous(self) -> bool:
        """Whether the dimensions lie in their own order, the last one innermost."""
        return self.dim_order == tuple(range(len(self.shape)))


@dataclass(frozen=True)
class OperatorFacts:
    """An operator that the runtime must provide, as `aten::add.out`, and how many instructions call it."""

    name: str
    calls: int


@dataclass(frozen=True)
class DelegateFacts:
    """A piece of a method that a backend runs: the backend's id, the size of its blob, its calls and the keys of its compile options."""

    backend: str
    processed_size: int
    calls: int
    compile_specs: tuple[str, ...]


@dataclass(frozen=True)
class ArenaFacts:
    """A block of memory that the caller supplies, and how many tensors the memory plan has put into it.

    `tensor_bytes` is what they would take side by side, at their largest: what is beyond `size` is saved by tensors that follow one another
    in the same place.
    """

    size: int
    tensors: int
    tensor_bytes: int


@dataclass(frozen=True)
class MethodFacts:
    """An entry point. `planned_buffers` are the sizes of the arenas that the caller must supply, one a memory id from 1.

    `arenas` are those with what they hold, `constants` the tensors whose data is in the file, `values` all values that instructions use.
    """

    name: str
    inputs: tuple[ValueFacts, ...]
    outputs: tuple[ValueFacts, ...]
    operators: tuple[OperatorFacts, ...]
    delegates: tuple[DelegateFacts, ...]
    planned_buffers: tuple[int, ...]
    instructions: int
    arenas: tuple[ArenaFacts, ...] = ()
    constants: int = 0
    values: int = 0

    @property
    def operator_names(self) -> tuple[str, ...]:
        """Operators outside delegates, sorted."""
        return tuple(sorted({operator.name for operator in self.operators}))

    @property
    def backends(self) -> tuple[str, ...]:
        """Ids of the backends it needs, sorted."""
        return tuple(sorted({delegate.backend for delegate in self.delegates}))


@dataclass(frozen=True)
class SegmentFacts:
    """A piece of data after the program: its offset in the file and its size."""

    offset: int
    size: int


@dataclass(frozen=True)
class NamedDataFacts:
    """A named blob, as delegates share weights: its key, the segment that holds it, its size."""

    key: str
    segment: int
    size: int


@dataclass(frozen=True)
class ProgramFacts:
    """A whole file. `identifier` is the file format's (`ET12`), `version` the schema's, `program_size` that of the part without segments.

    `constants` are the tensors that kernels read, each with the padding that follows it; they lie in one of the segments.
    """

    path: Path
    size: int
    identifier: str
    version: int
    program_size: int
    methods: tuple[MethodFacts, ...]
    segments: tuple[SegmentFacts, ...]
    named_data: tuple[NamedDataFacts, ...]
    constants: tuple[SegmentFacts, ...] = ()

    def method(self, name: str) -> MethodFacts | None:
        """The method of that name."""
        return next((method for method in self.methods if method.name == name), None)

    @property
    def backends(self) -> tuple[str, ...]:
        """Ids of the backends that any method needs, sorted."""
        return tuple(sorted({backend for method in self.methods for backend in method.backends}))

    @property
    def operators(self) -> tuple[str, ...]:
        """Operators that any method needs outside delegates, sorted."""
        return tuple(sorted({name for method in self.methods for name in method.operator_names}))
