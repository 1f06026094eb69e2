"""`op.yaml`, the description of an operator library: its grammar, and everything that is wrong with one, each at its line."""

from __future__ import annotations

import difflib
import re
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

import pydantic
import yaml

from etcli.common.errors import EtcliError, Problem
from etcli.tables.taken_names import taken_names

DESCRIPTION = "op.yaml"

_MAX_BYTES = 64 * 1024
_MAX_NODES = 5000
_MAX_PROBLEMS = 20
_FAMILIES = ("x86_64", "aarch64")  # as compilers' triples begin
_SUFFIXES = (".cpp", ".cc", ".cxx")
_WORD = r"[A-Za-z_][A-Za-z0-9_]*"
_SOURCE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*")
_SCHEMA = re.compile(rf"{_WORD}(\.{_WORD})?\([^\n]*\) -> [^\n]+")
_DEFINITION = re.compile(rf"{_WORD}(=[A-Za-z0-9_.+-]*)?")
_FLAG = re.compile(r"-(O[0-3sz]|Ofast|std=(c|gnu)\+\+[0-9a-z]+|[DfmW][A-Za-z0-9_][A-Za-z0-9_.=+-]*)")
# Words of CMake's and Ninja's own, which no target can be called.
_TARGETS = re.compile(
    "all|clean|codegen|edit_cache|help|install|package|package_source|preinstall|rebuild_cache|test|"
    "ALL_BUILD|INSTALL|PACKAGE|RUN_TESTS|ZERO_CHECK"
)
_MAX_WORD = 100  # a file is called after it

_TYPES = {
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping of keys",
}


def _word(text: str) -> str:
    if not re.fullmatch(_WORD, text):
        raise ValueError(f"{text!r} is not a name: letters, digits and '_', no digit first")
    if len(text) > _MAX_WORD:
        raise ValueError(f"{text[:20]}... has more than {_MAX_WORD} characters")
    if _TARGETS.fullmatch(text):
        raise ValueError(f"{text!r} is a word of CMake's own")
    return text


def _family(text: str) -> str:
    if text not in _FAMILIES:
        raise ValueError(f"{text!r} is not one of {' and '.join(_FAMILIES)}")
    return text


def _source(text: str) -> str:
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{text!r} leads out of the folder of {DESCRIPTION}; sources stand in it or below it")
    if path.suffix not in _SUFFIXES:
        raise ValueError(f"{text!r} is no C++ source: {', '.join(_SUFFIXES)}; headers are found by themselves")
    if not _SOURCE.fullmatch(text):
        raise ValueError(f"{text!r} has characters other than letters, digits, '_', '-', '+', '.' and '/'")
    return text


def _flag(text: str) -> str:
    if re.fullmatch(r"-m(arch|cpu|tune)=native.*", text):
        raise ValueError(
            f"{text} makes programs for the CPU of this machine alone; name what the source needs, as -mavx2"
        )
    if text.startswith("-fopenmp"):
        raise ValueError(f"{text} is not a flag of one source: write openmp: true, and build.openmp in the recipe")
    if re.match(r"-f(plugin|pass-plugin|sanitize|profile|lto|(no-)?(pi[ce]|PI[CE]))", text):
        raise ValueError(f"{text} is a matter of the whole build, not of one library")
    if not _FLAG.fullmatch(text):
        raise ValueError(f"{text!r} is not a flag that a library may set: -O.., -f.., -D.., -W.., -std=.., -m..")
    return text


def _common_flag(text: str) -> str:
    if _flag(text).startswith("-m"):
        raise ValueError(
            f"{text} is of one processor family: write it under architectures, beside the source that needs it"
        )
    return text


def _schema(text: str) -> str:
    if "::" in text.partition("(")[0]:
        raise ValueError(f"{text!r}: leave the namespace out, it has a key of its own")
    if not _SCHEMA.fullmatch(text):
        raise ValueError(f"{text!r} is not a schema, as: twice.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
    return text


def _definition(text: str) -> str:
    if not _DEFINITION.fullmatch(text):
        raise ValueError(f"{text!r} is not NAME or NAME=VALUE")
    return text


Name = Annotated[str, pydantic.AfterValidator(_word)]
Source = Annotated[str, pydantic.AfterValidator(_source)]
Flag = Annotated[str, pydantic.AfterValidator(_flag)]
CommonFlag = Annotated[str, pydantic.AfterValidator(_common_flag)]
Schema = Annotated[str, pydantic.AfterValidator(_schema)]
Definition = Annotated[str, pydantic.AfterValidator(_definition)]
Family = Annotated[str, pydantic.AfterValidator(_family)]
ApiLevel = Annotated[int, pydantic.Field(ge=21, le=99)]
Component = Literal["runtime", "threadpool", "kernels_optimized", "kernels_quantized"]


class Description(pydantic.BaseModel):
    """The keys of `op.yaml`; `OperatorLibrary` in `tables/operators.py` says what they mean."""

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Name
    namespace: Name
    operators: tuple[Schema, ...] = pydantic.Field(min_length=1, strict=False)
    sources: tuple[Source, ...] = pydantic.Field(min_length=1, strict=False)
    flags: tuple[CommonFlag, ...] = pydantic.Field(default=(), strict=False)
    architectures: dict[Family, dict[Source, Annotated[tuple[Flag, ...], pydantic.Field(strict=False)]]] = {}
    definitions: tuple[Definition, ...] = pydantic.Field(default=(), strict=False)
    components: tuple[Component, ...] = pydantic.Field(default=("runtime",), strict=False)
    torch: tuple[Source, ...] = pydantic.Field(default=(), strict=False)
    openmp: bool = False
    api_level: ApiLevel | None = None


class _Places:
    """Where each value of the document stands: words to (line, column), both from 1."""

    def __init__(self) -> None:
        self.places: dict[tuple[str | int, ...], tuple[int, int]] = {}
        self.problems: list[tuple[str, tuple[int, int]]] = []
        self.nodes = 0

    def value(self, node: Any, words: tuple[str | int, ...], loader: Any) -> Any:
        mark = node.start_mark
        self.nodes += 1
        if self.nodes > _MAX_NODES:
            raise yaml.MarkedYAMLError(problem="there is far too much of it", problem_mark=mark)
        self.places.setdefault(words, (mark.line + 1, mark.column + 1))
        if isinstance(node, yaml.MappingNode):
            members: dict[Any, Any] = {}
            for key_node, value_node in node.value:
                key = str(getattr(key_node, "value", "?"))
                place = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
                if not isinstance(key_node, yaml.ScalarNode):
                    self.problems.append(("a key is a word", place))
                    continue
                if key in members:
                    self.problems.append((f"the key {key!r} is written twice", place))
                    continue
                self.places[(*words, key)] = place
                members[key] = self.value(value_node, (*words, key), loader)
            return members
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*words, index), loader) for index, item in enumerate(node.value)]
        try:
            return loader.construct_object(node)
        except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError):
            # an explicit tag over another kind of text
            raise yaml.MarkedYAMLError(problem="this value cannot be read", problem_mark=mark) from None

    def find(self, words: tuple[Any, ...]) -> tuple[int, int] | tuple[None, None]:
        """The place of the value, or of the nearest that is written around it."""
        while words:
            if words in self.places:
                return self.places[words]
            words = words[:-1]
        return self.places.get((), (None, None))


def read_description(
    root: Path, *, error: type[EtcliError], hint: str, head: str = "", own: bool = False
) -> Description:
    """The description in the folder `root`, which is data: nothing in it is run, and its sources stand inside the folder.

    `head` begins each message, `hint` is what to do about a fault that has no better advice; `own` is whether the folder is the user's.

    Raises:
        EtcliError: of class `error`: every fault of it, with line and column: code `operators.invalid`; or, in a folder of the user's,
            `operators.name`, `operators.namespace`, `operators.twice`: a name that is taken.
    """
    path = root / DESCRIPTION
    found: list[Problem] = []

    def add(
        message: str,
        place: tuple[int | None, int | None] = (None, None),
        advice: str | None = None,
        code: str = "operators.invalid",
    ) -> None:
        line, column = place
        found.append(
            error.problem(
                head + message,
                code=code,
                hint=advice or hint,
                file=path,
                line=line,
                column=column,
            )
        )

    places = _Places()
    read: Description | None = None
    try:
        read = _parsed(path, places, add)
    except OSError as problem:
        add(problem.strerror or str(problem))
    except (UnicodeDecodeError, RecursionError):
        add("it is not a YAML file of UTF-8 text")
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        place = (mark.line + 1, mark.column + 1) if mark is not None else (None, None)
        add(str(getattr(problem, "problem", None) or problem), place)
    if read is not None:
        for words, name in _listed(read):
            why = _absence(root, name)
            if why is not None:
                add(f"{'.'.join(map(str, words))}: {why}", places.find(words))
        for taken in taken_names(read.name, read.namespace, read.operators) if own else ():
            add(taken.message, places.find(taken.words), taken.hint, taken.code)
    if found:
        found.sort(key=lambda problem: (problem.line is None, problem.line or 0, problem.column or 0))
        raise error.many(found[:_MAX_PROBLEMS])
    assert read is not None  # noqa: S101 - without problems there is a description
    return read


def key_line(path: Path, key: str) -> int | None:
    """The line, from 1, that a key of a readable description stands at."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if re.match(rf"[\"']?{key}[\"']?\s*:", line):
            return number
    return None


def _parsed(path: Path, places: _Places, add: Any) -> Description | None:
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        add(f"it is larger than {_MAX_BYTES // 1024} KiB, which no description is")
        return None
    loader = yaml.SafeLoader(content.decode("utf-8-sig"))
    try:
        node = loader.get_single_node()
        document = places.value(node, (), loader) if node is not None else None
    finally:
        loader.dispose()
    for message, place in places.problems:
        add(message, place)
    if document is None:
        add("it is empty", advice=_NEEDED)
        return None
    try:
        return Description.model_validate(document)
    except pydantic.ValidationError as error:
        details = error.errors(include_url=False)
        for detail in details:
            if detail["type"] == "too_short" and sum(other["loc"][:1] == detail["loc"] for other in details) > 1:
                continue  # too short for the entries that are wrong
            words = tuple(word for word in detail["loc"] if word != "[key]")
            message, advice = _explained(words, detail)
            # what is missing stands nowhere
            add(message, (None, None) if detail["type"] == "missing" else places.find(words), advice)
    return None


_NEEDED = "Write at least name, namespace, operators and sources; docs/custom-operators.md has an example."


def _explained(words: tuple[Any, ...], detail: Any) -> tuple[str, str | None]:
    """What is wrong at `words`, and what to do where that is known better than the usual."""
    key, kind = ".".join(map(str, words)), detail["type"]
    known = list(Description.model_fields)
    if kind == "missing":
        return f"the key {key} is missing", _NEEDED
    if kind == "extra_forbidden":
        close = difflib.get_close_matches(str(words[-1])[:100], known, n=1)
        return f"unknown key {str(words[-1])[:80]!r}", (
            f"Did you mean {close[0]!r}?" if close else f"Known keys: {', '.join(known)}."
        )
    if kind in _TYPES:
        advice = f"Write {words[-1]}: [...]." if kind == "tuple_type" and isinstance(words[-1], str) else None
        if kind == "string_type":
            advice = "Put it into quotes."
        return f"{key or 'it'} must be {_TYPES[kind]}", advice
    if kind == "too_short":
        return f"{key} is empty", "List at least one."
    if kind == "value_error":
        return f"{key}: {detail['ctx']['error']}", None
    if kind == "literal_error":
        return f"{key}: there is no {str(detail['input'])[:80]!r}; it is one of {detail['ctx']['expected']}", None
    return f"{key}: {detail['msg']}", None


def listed_sources(read: Description) -> tuple[str, ...]:
    """Every source that the description names, in whatever list."""
    return tuple(dict.fromkeys(name for _, name in _listed(read)))


def _listed(read: Description) -> list[tuple[tuple[str | int, ...], str]]:
    listed: list[tuple[tuple[str | int, ...], str]] = [(("sources", i), name) for i, name in enumerate(read.sources)]
    for family, extra in read.architectures.items():
        listed += [(("architectures", family, name), name) for name in extra]
    return listed + [(("torch", i), name) for i, name in enumerate(read.torch)]


def _absence(root: Path, name: str) -> str | None:
    """Why the source cannot be taken, or None."""
    path = root / name
    if path.exists() and not path.is_file():
        return f"{name} is no file"
    if not path.is_file():
        names = (
            [file.name for file in path.parent.glob("*") if file.suffix in _SUFFIXES] if path.parent.is_dir() else []
        )
        close = difflib.get_close_matches(path.name, names, n=1)
        return f"there is no {name}" + (f" (there is {close[0]})" if close else "")
    if not path.resolve().is_relative_to(root.resolve()):
        return f"{name} is a link that leads out of the folder"
    return None
