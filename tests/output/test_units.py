"""Quantities as people read them."""

import pytest

from etcli.output.units import counted, estimate_text, figure_text, seconds_text, value_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (13271.4, "13,271"),
        (1234567.0, "1,234,567"),
        (42.314, "42.31"),
        (1.0, "1.000"),
        (0.0042131, "0.004213"),
        (0.00001, "0.00001000"),
    ],
)
def test_a_figure_has_no_exponent(value, text):
    assert figure_text(value) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 chunks"), (1, "1 chunk"), (2, "2 chunks"), (1234, "1,234 chunks")])
def test_one_is_no_plural(count, text):
    assert counted(count, "chunk") == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "none"), (True, "yes"), (False, "no"), ((), "none"), ((1, 2), "1, 2"), (1e-05, "1e-05")]
)
def test_values_are_words_not_python(value, text):
    assert value_text(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0.00 s"),
        (0.00106, "1.1 ms"),
        (0.0279, "27.9 ms"),
        (0.25, "0.25 s"),
        (12.34, "12.3 s"),
        (185, "3 min 05 s"),
    ],
)
def test_a_time_is_never_rounded_to_nothing(seconds, text):
    assert seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "5 s"),
        (13, "15 s"),
        (27.4, "25 s"),
        (27.6, "30 s"),
        (89.9, "90 s"),
        (109.8, "2 min"),
        (3599, "60 min"),
        (6600, "1 h 50 min"),
        (7199, "2 h"),
        (20000, "5 h 30 min"),
        (23000, "6 h"),
    ],
)
def test_an_estimate_has_no_digits_that_nobody_knows(seconds, text):
    assert estimate_text(seconds) == text
