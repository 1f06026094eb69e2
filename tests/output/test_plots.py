"""Charts as geometry: round ticks around the values, and marks whose texts do not cover one another."""

from __future__ import annotations

import pytest

from etcli.output.plots import LEFT, RIGHT, WIDTH, Line, Mark, bars, line_chart, nice_ticks


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 6, (0, 1, 2, 3, 4, 5, 6)),
        (0, 0.003, (0, 0.0005, 0.001, 0.0015, 0.002, 0.0025, 0.003)),
        (0, 730, (0, 200, 400, 600, 800)),
        (1, 5, (1, 2, 3, 4, 5)),
    ],
)
def test_ticks_are_round_and_enclose_the_values(low, high, ticks):
    assert nice_ticks(low, high) == pytest.approx(ticks)


@pytest.mark.parametrize("high", [1e-9, 0.1, 1, 7, 99, 12345.678, 3e12])
def test_ticks_of_any_size_are_few(high):
    ticks = nice_ticks(0, high)
    assert ticks[0] <= 0
    assert ticks[-1] >= high * (1 - 1e-9)
    assert 3 <= len(ticks) <= 9


def test_the_lowest_and_highest_x_are_the_edges():
    chart = line_chart("t", "x", "y", [Line(((5.0, 1.0), (9.0, 2.0)), "a")])
    first, last = (float(point.split(",")[0]) for point in chart.lines[0].points.split())
    assert (first, last) == (LEFT, WIDTH - RIGHT)


def test_a_single_point_is_a_dot_and_equal_values_divide_by_nothing():
    chart = line_chart("t", "x", "y", [Line(((3.0, 0.0),), "a")])
    assert chart.lines[0].lonely is not None


def test_no_points_no_chart():
    assert line_chart("t", "x", "y", [Line((), "a")]) is None


def test_marks_that_stand_close_have_rows_of_their_own():
    marks = [Mark(1.0, "loaded"), Mark(1.05, "first token"), Mark(9.0, "loaded again"), Mark(10.0, "end")]
    chart = line_chart("t", "x", "y", [Line(((0.0, 1.0), (10.0, 1.0)), "a")], marks)
    assert [mark.row for mark in chart.marks][:2] == [0, 1]
    assert chart.marks[-1].ends


def test_bars_are_parts_of_the_longest():
    assert [bar.part for bar in bars([("a", 2.0, 0), ("b", 8.0, 0)], "ms")] == [0.25, 1.0]
    assert bars([], "ms") == ()
