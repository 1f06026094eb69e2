"""The checker that holds every bundle of the tests against the MediaTek runner's contract finds what breaks it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from shift_contract import check_method, method_of

from etcli.pte.facts import MethodFacts, ProgramFacts, ValueFacts

TOKENS, CACHE = 4, 16
CACHES = [(1, 2, CACHE, 8)] * 4


def tensor(*shape: int) -> ValueFacts:
    return ValueFacts("Tensor", "float32", shape, tuple(range(len(shape))))


def method(name: str = "a_4t16c_0") -> MethodFacts:
    caches = [tensor(*shape) for shape in CACHES]
    inputs = (tensor(1, TOKENS, 32), tensor(1, 1, TOKENS, CACHE + TOKENS), tensor(1, 2, TOKENS, 8), *caches)
    return MethodFacts(name, inputs, (tensor(1, TOKENS, 100), *caches), (), (), (), 1)


def program(*methods: MethodFacts) -> ProgramFacts:
    return ProgramFacts(
        **{field: () for field in ProgramFacts.__dataclass_fields__ if field != "methods"},
        methods=methods,  # type: ignore[arg-type]
    )


def test_a_method_of_the_contract_passes() -> None:
    found = method_of([program(method(), method("a_1t16c_0"))], TOKENS, CACHE)
    check_method(found, TOKENS, CACHE, CACHES)


@pytest.mark.parametrize("name", ["a_0", "a_4t16c_4t16c_0", "a_4t8c_0", "a_8t16c_0"])
def test_names(name: str) -> None:
    with pytest.raises(AssertionError):
        method_of([program(method(name))], TOKENS, CACHE)


def test_two_methods_of_one_size() -> None:
    with pytest.raises(AssertionError, match="2 methods"):
        method_of([program(method(), method("b_4t16c_0"))], TOKENS, CACHE)


@pytest.mark.parametrize(
    ("side", "index", "wrong"),
    [
        ("inputs", 0, tensor(1, 1, 32)),
        ("inputs", 1, tensor(1, 1, TOKENS, CACHE)),
        ("inputs", 1, replace(tensor(1, 1, TOKENS, CACHE + TOKENS), dtype="bool")),
        ("inputs", 2, tensor(1, TOKENS, 2, 8)),
        ("inputs", 3, tensor(1, 2, CACHE + TOKENS, 8)),
        ("inputs", 4, replace(tensor(*CACHES[0]), planned=True)),
        ("outputs", 0, tensor(1, 1, 100)),
        ("outputs", 1, tensor(1, 2, TOKENS, 8)),
        ("outputs", 1, replace(tensor(*CACHES[0]), dtype="float16")),
        ("outputs", 0, replace(tensor(1, TOKENS, 100), planned=True)),
        ("outputs", 0, replace(tensor(1, TOKENS, 100), dim_order=(0, 2, 1))),
        ("outputs", 0, replace(tensor(1, TOKENS, 100), dynamism="dynamic_bound")),
    ],
)
def test_tensors(side: str, index: int, wrong: ValueFacts) -> None:
    good = method()
    values = list(getattr(good, side))
    values[index] = wrong
    with pytest.raises(AssertionError):
        check_method(replace(good, **{side: tuple(values)}), TOKENS, CACHE, CACHES)


@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_counts(side: str) -> None:
    good = method()
    with pytest.raises(AssertionError):
        check_method(replace(good, **{side: getattr(good, side)[:-1]}), TOKENS, CACHE, CACHES)
