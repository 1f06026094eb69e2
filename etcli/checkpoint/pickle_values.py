"""Pickles of tensors read as data: a stack machine over `pickletools.genops` that has nothing to call.

A pickle is a program that names any function of the machine and has it called. Here no name is ever looked up and nothing is imported or
called: the names that PyTorch writes for tensors become the plain values below, and a pickle with any other name is refused. Opcodes and
their meaning: `pickletools` of the standard library; the names: `torch/_weights_only_unpickler.py`, which allows the same ones.
"""

from __future__ import annotations

import io
import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from etcli.checkpoint.pickle_names import INERT, TYPES

MAX_BYTES = 64 << 20
"""Far above the pickle of any network (an 8B model's has 40 KB): tensors are outside of it."""
_MAX_STEPS = 400_000
_MAX_DIMENSIONS = 16
_MAX_LINE = 1024


class PickleError(ValueError):
    """The pickle is damaged, or larger or of other opcodes than what PyTorch writes."""


class UnsafePickle(PickleError):
    """The pickle names things that are no part of a tensor; `names` are all of them."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(", ".join(names))
        self.names = names


@dataclass(frozen=True)
class Global:
    """A name of the pickle, never looked up."""

    name: str


@dataclass(frozen=True)
class Inert:
    """An object that plays no part in reading tensors, such as a device or a NumPy scalar: only what made it is kept."""

    name: str


@dataclass(frozen=True)
class Storage:
    """A run of elements outside of the pickle: `numel` elements of `dtype` under `key`, of which this is a view from `start` on."""

    key: str
    dtype: str
    numel: int
    start: int = 0


@dataclass(frozen=True)
class PickledTensor:
    """A tensor as a view of a storage. `offset` and `strides` count elements."""

    storage: Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Pickled:
    """A pickle's value and every storage that it refers to, by key."""

    value: Any
    storages: dict[str, Storage]


class PickleBytes(io.BytesIO):
    """Bytes with pickles in them, without lines that never end (numbers as text take quadratic time to read)."""

    def readline(self, size: int | None = -1, /) -> bytes:
        """A line of at most 1024 bytes."""
        return super().readline(_MAX_LINE if size is None or size < 0 else min(size, _MAX_LINE))


def read_pickle(data: PickleBytes) -> Pickled:
    """The pickle that starts at the position of `data`, which is then behind it.

    Raises:
        UnsafePickle: it names something that is no part of a tensor.
        PickleError: it is damaged, or nothing that PyTorch writes.
    """
    machine = _Machine()
    try:
        for steps, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if steps >= _MAX_STEPS:
                raise PickleError(f"it has more than {_MAX_STEPS} steps")
            machine.step(opcode.name, argument)
    except PickleError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, MemoryError) as error:
        raise PickleError(f"{type(error).__name__}: {str(error)[:80]}") from None
    if machine.unsafe:
        raise UnsafePickle(tuple(machine.unsafe))
    return Pickled(machine.result, machine.storages)


@dataclass
class _Machine:
    stack: list[Any] = field(default_factory=list)
    marks: list[list[Any]] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)
    unsafe: dict[str, None] = field(default_factory=dict)
    storages: dict[str, Storage] = field(default_factory=dict)
    result: Any = None
    copied: int = 0

    def step(self, opcode: str, argument: Any) -> None:
        push, pop = self.stack.append, self.stack.pop
        if opcode in _CONSTANTS:
            push(_CONSTANTS[opcode]())
        elif opcode in _LITERALS:
            push(argument)
        elif opcode in ("PROTO", "FRAME"):
            pass
        elif opcode == "STOP":
            self.result = pop()
        elif opcode == "MARK":
            self.marks.append(self.stack)
            self.stack = []
        elif opcode in ("TUPLE", "LIST", "FROZENSET"):
            items = self._to_mark()
            self.stack.append(items if opcode == "LIST" else tuple(items) if opcode == "TUPLE" else Inert("frozenset"))
        elif opcode in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(opcode[-1])
            items = [pop() for _ in range(count)]
            push(tuple(reversed(items)))
        elif opcode in ("APPEND", "APPENDS"):
            added = [pop()] if opcode == "APPEND" else self._to_mark()
            _of(list, self.stack[-1]).extend(added)
        elif opcode in ("SETITEM", "SETITEMS", "DICT"):
            self._set_items(opcode)
        elif opcode in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = self.stack[-1]
        elif opcode == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif opcode in ("BINGET", "LONG_BINGET"):
            push(self.memo[argument])
        elif opcode == "GLOBAL":
            push(self._name(*argument.split(" ", 1)))
        elif opcode == "STACK_GLOBAL":
            name, module = pop(), pop()
            push(self._name(_of(str, module), _of(str, name)))
        elif opcode in ("REDUCE", "NEWOBJ"):
            arguments, function = pop(), pop()
            push(self._made(_of(Global, function).name, _of(tuple, arguments)))
        elif opcode == "BUILD":
            pop()  # attributes of an object, such as a state dict's `_metadata`
        elif opcode == "ADDITEMS":
            self._to_mark()
        elif opcode == "BINPERSID":
            push(self._storage(pop()))
        else:
            raise PickleError(f"it has the opcode {opcode}, which PyTorch does not write")

    def _storage(self, identity: Any) -> Storage:
        storage = _storage(identity)
        known = self.storages.setdefault(storage.key, storage)
        if (known.dtype, known.numel) != (storage.dtype, storage.numel):
            raise PickleError(f"the storage {storage.key[:100]} is of two kinds")
        return storage

    def _to_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.marks.pop()
        return items

    def _set_items(self, opcode: str) -> None:
        items = list(reversed([self.stack.pop(), self.stack.pop()])) if opcode == "SETITEM" else self._to_mark()
        if opcode == "DICT":
            self.stack.append({})
        target = self.stack[-1]
        if isinstance(target, Inert):
            return
        _of(dict, target).update(_pairs(list(zip(items[::2], items[1::2], strict=True))))

    def _name(self, module: str, name: str) -> Global:
        # Python 2 wrote other names for the same modules.
        full = f"{ {'__builtin__': 'builtins'}.get(module, module) }.{name}"
        if not (full in _MAKERS or full in TYPES or full in INERT):
            self.unsafe[full[:100]] = None
        return Global(full)

    def _made(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if name == "collections.OrderedDict" and arguments:
            # The one maker that copies; a short pickle could have a long list copied over and over.
            self.copied += len(_of(list, arguments[0]))
            if self.copied > _MAX_STEPS:
                raise PickleError("its dictionaries are copied over and over")
        if name == "torch._tensor._rebuild_from_type_v2":
            function, _, inner, _ = arguments
            return self._made(_of(Global, function).name, _of(tuple, inner))
        maker = _MAKERS.get(name)
        return Inert(name) if maker is None else maker(*arguments)


def _of(kind: type[Any], value: Any) -> Any:
    if type(value) is not kind:
        raise PickleError(f"a {type(value).__name__} stands where a {kind.__name__} should")
    return value


def _pairs(items: Any) -> dict[Any, Any]:
    pairs: dict[Any, Any] = {}
    for key, value in items:
        # Plain keys alone: hashing tuples of tuples of tuples can be made to take forever.
        if type(key) not in (str, bytes, int, float, bool, type(None)):
            raise PickleError(f"a dictionary has a {type(key).__name__} as key")
        pairs[key.decode("latin-1") if type(key) is bytes else key] = value
    return pairs


def _numbers(values: Any) -> tuple[int, ...]:
    if type(values) not in (tuple, list) or len(values) > _MAX_DIMENSIONS:
        raise PickleError("a shape is no short list of numbers")
    if any(type(value) is not int or not 0 <= value < 1 << 62 for value in values):
        raise PickleError("a shape has something else than whole numbers")
    return tuple(values)


def _storage(identity: Any) -> Storage:
    words = [item.decode("latin-1") if type(item) is bytes else item for item in _of(tuple, identity)]
    if len(words) not in (5, 6) or words[0] != "storage":
        raise PickleError(f"it refers to something outside of it that is no storage ({str(words[0])[:40]!r})")
    _, kind, key, _, numel, *view = words
    name = str(_of(Global, kind).name)
    dtype = TYPES.get(name)
    if dtype is None:
        raise PickleError(f"a storage is of the type {name}")
    start = 0
    if view and view[0] is not None:  # a window of another storage, as PyTorch before 0.4 wrote it
        _, start, _ = _of(tuple, view[0])
    start, numel = _numbers((start, numel))
    return Storage(_of(str, key), dtype, numel, start)


def _tensor(
    storage: Any, offset: Any, size: Any, stride: Any, _grad: Any = False, _hooks: Any = None, flags: Any = None
) -> PickledTensor:
    if flags:
        # a view that is to be negated or conjugated when it is read, which no weight is
        raise PickleError(f"a tensor is of a kind that no weight is ({', '.join(map(str, _of(dict, flags)))[:80]})")
    (start,) = _numbers((offset,))
    shape, strides = _numbers(size), _numbers(stride)
    if len(shape) != len(strides):
        raise PickleError("a tensor has more dimensions than strides, or fewer")
    return PickledTensor(_of(Storage, storage), storage.dtype, start, shape, strides)


def _tensor_v3(
    storage: Any, offset: Any, size: Any, stride: Any, _grad: Any, _hooks: Any, dtype: Any, *_: Any
) -> PickledTensor:
    plain, name = _tensor(storage, offset, size, stride), str(_of(Global, dtype).name)
    kind = TYPES.get(name)
    if kind is None:
        raise PickleError(f"a tensor is of the type {name}")
    return PickledTensor(plain.storage, kind, plain.offset, plain.shape, plain.strides)


_MAKERS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": lambda items=(): _pairs(items),
    "torch.Size": _numbers,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
    "torch._utils._rebuild_parameter_with_state": lambda tensor, *_: tensor,
    "torch._tensor._rebuild_from_type_v2": lambda *_: None,  # made in `_made`, from what it wraps
}
"""What the arguments of a name become."""

_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_SET": lambda: Inert("set"),
}
_LITERALS = frozenset(
    (
        *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
        *("SHORT_BINSTRING", "BINSTRING", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
        *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    )
)
