"""How `etcli inspect` prints a program: neighbours of one shape in one row, long lists cut, what a runner lacks marked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etcli.cli.show.programs import program
from etcli.output.console import Console
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
from etcli.verbs.provision import Provision

CACHE = ValueFacts("Tensor", "float32", (1, 3, 512, 64), (0, 1, 2, 3))


@pytest.fixture
def facts(tmp_path) -> ProgramFacts:
    method = MethodFacts(
        name="forward",
        inputs=(ValueFacts("Tensor", "int64", (2,), (0,)), *[CACHE] * 12),
        outputs=(CACHE, ValueFacts("Tensor", "float32", (1, 9), (0, 1), planned=True)),
        operators=(OperatorFacts("aten::add.out", 2), OperatorFacts("mine::op.out", 1)),
        delegates=(DelegateFacts("XnnpackBackend", 52_200, 1, ("options",)),),
        planned_buffers=(1300,),
        instructions=4,
        arenas=(ArenaFacts(1300, 5, 4000),),
        constants=3,
        values=30,
    )
    segments = tuple(SegmentFacts(100 * index, 100) for index in range(30))
    return ProgramFacts(
        path=tmp_path / "x.pte",
        size=3000,
        identifier="ET12",
        version=0,
        program_size=100,
        methods=(method,),
        segments=segments,
        named_data=(NamedDataFacts("first", 0, 50), NamedDataFacts("second", 0, 50)),
        constants=(SegmentFacts(100, 50), SegmentFacts(150, 50)),
    )


def test_what_people_read(facts, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    program(
        Console(), facts, Provision("etcli's runner", ("mine::op.out",), {"XnnpackBackend": "export.backend: xnnpack"})
    )
    out, err = capsys.readouterr()
    lines = [" ".join(line.replace("│", " ").split()) for line in out.splitlines()]
    assert "inputs 1-12 float32 1 x 3 x 512 x 64 by the caller" in lines
    assert "output 1 float32 1 x 9 planned" in lines
    assert "aten::add.out 2 yes" in lines
    assert "mine::op.out 1 NOT PROVIDED" in lines
    assert "XnnpackBackend 52.2 kB 1 options with export.backend: xnnpack" in lines
    assert "memory plan: 1.3 kB for 5 tensors of 4.0 kB together" in lines
    assert "0 0 100 B first, second" in lines
    assert "1 100 100 B 2 constants" in lines
    assert "and 18 more (-v)" in lines
    assert "second 0 50 B" in lines
    assert "etcli's runner does not provide mine::op.out" in err


def test_verbose_shows_every_row(facts, capsys):
    program(Console(verbosity=1), facts, None)
    out, err = capsys.readouterr()
    assert "more (-v)" not in out
    assert "29" in out
    assert "ExecuTorch is not installed" in err


def test_a_segment_is_a_delegates_only_where_there_is_a_delegate(facts, capsys):
    method = replace(facts.methods[0], delegates=())
    segments = (SegmentFacts(100, 0), SegmentFacts(100, 100), SegmentFacts(500, 100))
    program(Console(), replace(facts, methods=(method,), segments=segments, named_data=()), None)
    lines = [" ".join(line.replace("│", " ").split()) for line in capsys.readouterr().out.splitlines()]
    assert {"0 100 0 B nothing", "1 100 100 B 2 constants", "2 500 100 B -"} <= set(lines)
