"""`etcli bench --compare --min-ratio`: what fails, what the spread of the runs explains, and what cannot be judged at all."""

from __future__ import annotations

import itertools
import json
import random

import pytest
from bench_reports import DEVICE, make_report, write_document
from click.testing import CliRunner

from etcli.cli.main import cli
from etcli.verbs.bench.comparing import compare
from etcli.verbs.bench.figures import figures_of
from etcli.verbs.bench.spread import ratio_interval

STEADY = (10.0, 10.1, 10.2, 10.1, 10.0)
NOISY = (9.0, 10.0, 11.0, 10.5, 9.5)


def gate(tmp_path, a, b, *words):
    first, second = write_document(tmp_path / "a.json", a), write_document(tmp_path / "b.json", b)
    done = CliRunner().invoke(cli, ["bench", "--compare", str(first), str(second), *words, "--json"])
    assert "Traceback" not in done.output
    return done


def outcome(tmp_path, a, b, *words):
    """The exit code, the codes of the errors, and `passed`."""
    from etcli.cli.failures import report

    done = gate(tmp_path, a, b, *words)
    if done.exception is None or isinstance(done.exception, SystemExit):
        return done.exit_code, [], json.loads(done.stdout)["result"]["passed"]
    result = getattr(done.exception, "etcli_result", None)
    code = report(done.exception, ["bench", "--json"])
    return code, [problem.code for problem in done.exception.problems], None if result is None else result.passed


def slower(rates, by):
    return tuple(rate * by for rate in rates)


def test_equal_reports_pass(tmp_path):
    assert outcome(tmp_path, make_report(STEADY), make_report(STEADY), "--min-ratio", "1") == (0, [], True)


def test_without_a_limit_nothing_is_judged(tmp_path):
    assert outcome(tmp_path, make_report(STEADY), make_report(slower(STEADY, 0.5))) == (0, [], None)


def test_a_loss_beyond_the_limit_fails_with_each_figure(tmp_path):
    code, codes, passed = outcome(
        tmp_path, make_report(STEADY), make_report(slower(STEADY, 0.8)), "--min-ratio", "0.95"
    )
    assert (code, passed) == (11, False)
    assert set(codes) == {"bench.worse"}
    assert len(codes) > 2, "decode, its latencies and its chunks"


def test_the_message_says_what_how_much_and_what_differs(tmp_path):
    worse = make_report(slower(STEADY, 0.8), bundle_sha256="cd" * 32)
    error = gate(tmp_path, make_report(STEADY), worse, "--min-ratio", "decode=0.95").exception
    (problem,) = error.problems
    assert "decode on phone-1: 10.10 tok/s before, 8.080 tok/s now, ratio 0.800" in problem.message
    assert "at least 0.95 is asked for" in problem.message
    assert f"bundle: {'ab' * 6} and {'cd' * 6}" in problem.hint


def test_a_loss_within_the_limit_passes(tmp_path):
    assert outcome(tmp_path, make_report(STEADY), make_report(slower(STEADY, 0.96)), "--min-ratio", "0.95")[0] == 0


def test_what_the_spread_explains_passes(tmp_path):
    assert outcome(tmp_path, make_report(NOISY), make_report(slower(NOISY, 0.94)), "--min-ratio", "0.95")[0] == 0


def test_a_gain_that_is_asked_for_has_to_be_there(tmp_path):
    faster = make_report(slower(STEADY, 1.3))
    assert outcome(tmp_path, make_report(STEADY), faster, "--min-ratio", "decode=1.2")[0] == 0
    assert outcome(tmp_path, make_report(NOISY), make_report(NOISY), "--min-ratio", "decode=1.2")[0] == 11


def test_a_figure_of_its_own_limit(tmp_path):
    worse = make_report(slower(STEADY, 0.8))
    assert outcome(tmp_path, make_report(STEADY), worse, "--min-ratio", "peak memory=1")[0] == 0
    assert outcome(tmp_path, make_report(STEADY), worse, "--min-ratio", "0.5", "--min-ratio", "decode=0.9")[:2] == (
        11,
        ["bench.worse"],
    )


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"device": DEVICE.model_copy(update={"model": "Other"})}, "device: Phone and Other"),
        ({"device": DEVICE.model_copy(update={"emulated": True})}, "emulated"),
        ({"name": "other"}, "recipe"),
        ({"prompt_tokens": 21}, "prompt tokens"),
        ({"new_tokens": 6}, "new tokens"),
        ({"simulated": True}, "simulated"),
        ({"runner": "mtk"}, "runner"),
    ],
)
def test_reports_of_other_things_are_not_judged_unless_asked_for(tmp_path, changes, word):
    other = make_report(STEADY, **changes)
    error = gate(tmp_path, make_report(STEADY), other, "--min-ratio", "1").exception
    assert [problem.code for problem in error.problems] == ["bench.unlike"]
    assert word in error.problems[0].message
    assert error.exit == 2
    assert outcome(tmp_path, make_report(STEADY), other, "--min-ratio", "1", "--unlike-ok")[0] == 0


def test_another_prompt_of_as_many_tokens_is_another_prompt(tmp_path):
    a, b = (make_report(STEADY, prompt_sha256=letter * 64) for letter in "ab")
    assert outcome(tmp_path, a, b, "--min-ratio", "1")[:2] == (2, ["bench.unlike"])
    assert outcome(tmp_path, a, make_report(STEADY), "--min-ratio", "1")[0] == 0, "an older report does not tell"


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_too_few_runs_are_not_judged(tmp_path, runs):
    few = make_report(STEADY[:runs])
    assert outcome(tmp_path, few, few, "--min-ratio", "1")[:2] == (2, ["bench.too_few_runs"])
    assert outcome(tmp_path, make_report(STEADY[:4]), make_report(STEADY[:4]), "--min-ratio", "1")[0] == 0


def test_a_figure_that_is_not_there_is_no_silent_pass(tmp_path):
    code, codes, _ = outcome(tmp_path, make_report(STEADY), make_report(STEADY), "--min-ratio", "speed=1")
    assert (code, codes) == (2, ["bench.unknown_figure"])


@pytest.mark.parametrize("lost_in_first", [False, True])
def test_a_figure_that_only_one_has_is_no_silent_pass(tmp_path, lost_in_first):
    whole = make_report(STEADY)
    runs = [run.model_copy(update={"decode_tokens_per_s": None, "chunk_s": ()}) for run in whole.each]
    part = make_report(STEADY, each=tuple(runs), figures=figures_of(runs))
    a, b = (part, whole) if lost_in_first else (whole, part)
    code, codes, _ = outcome(tmp_path, a, b, "--min-ratio", "0.95")
    assert (code, codes) == (2, ["bench.unknown_figure"]), "decode, and none for the chunks"
    assert outcome(tmp_path, a, b, "--min-ratio", "prefill=0.95")[0] == 0


def test_what_a_report_does_not_tell_is_no_difference():
    drawn = {"temperature": 0.7, "top_p": 0.9, "seed": 1}
    hashed = {"prompt_sha256": "cd" * 32}
    unnamed = DEVICE.model_copy(update={"soc": None})
    assert not compare(make_report(STEADY), make_report(STEADY, sampling=drawn, device=unnamed, **hashed)).unlike
    assert not compare(make_report(STEADY), make_report(STEADY, sampling=drawn, **hashed)).differences
    other = make_report(STEADY, sampling={**drawn, "seed": 2}, **hashed)
    told = compare(make_report(STEADY, sampling=drawn, **hashed), other).differences
    assert told == ("sampling: temperature 0.7, top-p 0.9, seed 1 and temperature 0.7, top-p 0.9, seed 2",)
    assert compare(make_report(STEADY, **hashed), other).differences[0].startswith("sampling: greedy and temperature")


def test_limits_in_the_environment_do_not_hinder_a_measurement(tmp_path, monkeypatch):
    words = ["bench", "--workspace", str(tmp_path), "--serial", "none"]
    typed = CliRunner().invoke(cli, [*words, "--min-ratio", "1"])
    assert "--min-ratio without --compare" in typed.output
    monkeypatch.setenv("ETCLI_BENCH_MIN_RATIO", "0.95")
    monkeypatch.setenv("ETCLI_BENCH_UNLIKE_OK", "1")
    done = CliRunner().invoke(cli, words)
    assert [problem.code for problem in done.exception.problems] == ["bundle.missing"]
    monkeypatch.delenv("ETCLI_BENCH_MIN_RATIO")
    path = write_document(tmp_path / "a.json", make_report(STEADY))
    assert CliRunner().invoke(cli, ["bench", "--compare", str(path), str(path)]).exit_code == 0
    typed = CliRunner().invoke(cli, ["bench", "--compare", str(path), str(path), "--unlike-ok"])
    assert "--unlike-ok without --min-ratio" in typed.output


def test_a_device_that_is_missing_is_no_silent_pass(tmp_path):
    second = make_report(STEADY, device=DEVICE.model_copy(update={"serial": "phone-2"}))
    third = make_report(STEADY, device=DEVICE.model_copy(update={"serial": "phone-3"}))
    a = write_document(tmp_path / "two.json", make_report(STEADY), second)
    b = write_document(tmp_path / "other.json", make_report(STEADY), third)
    done = CliRunner().invoke(cli, ["bench", "--compare", str(a), str(b), "--min-ratio", "1"])
    assert [problem.code for problem in done.exception.problems] == ["bench.device_missing"] * 2
    told = CliRunner().invoke(cli, ["bench", "--compare", str(a), str(b), "--json"])
    assert [warning["code"] for warning in json.loads(told.stdout)["warnings"]] == ["bench.device_missing"]


def test_a_benchmark_that_ended_early_is_not_judged(tmp_path):
    whole = write_document(tmp_path / "whole.json", make_report(STEADY))
    cut = tmp_path / "cut.json"
    cut.write_text(json.dumps({**json.loads(whole.read_text()), "ok": False, "exit": 130}))
    done = CliRunner().invoke(cli, ["bench", "--compare", str(whole), str(cut), "--min-ratio", "1"])
    assert [problem.code for problem in done.exception.problems] == ["bench.ended_early"]


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "x", "decode=", "=1", "decode=fast"])
def test_limits_that_are_none(tmp_path, value):
    assert gate(tmp_path, make_report(STEADY), make_report(STEADY), "--min-ratio", value).exit_code == 2


def test_a_limit_goes_with_a_comparison():
    done = CliRunner().invoke(cli, ["bench", "--min-ratio", "1"])
    assert done.exit_code == 2
    assert "--compare" in done.output


def two_sided_p(a, b):
    """The exact Mann-Whitney test by listing every order that could have been."""
    both, count = [*a, *b], len(a)

    def below(chosen):
        rest = [both[index] for index in range(len(both)) if index not in chosen]
        return sum(x < y for x in (both[index] for index in chosen) for y in rest)

    seen = below(range(count))
    extreme = min(seen, len(a) * len(b) - seen)
    orders = [below(set(chosen)) for chosen in itertools.combinations(range(len(both)), count)]
    return min(1.0, 2 * sum(found <= extreme for found in orders) / len(orders))


def test_an_interval_without_one_is_a_mann_whitney_test_below_five_percent():
    draw = random.Random(3)  # noqa: S311
    verdicts = set()
    for _ in range(150):
        a = [draw.uniform(1, 2) for _ in range(draw.randint(2, 6))]
        b = [draw.uniform(1, 2) * draw.choice((1, 1.4)) for _ in range(draw.randint(2, 6))]
        interval = ratio_interval(a, b)
        apart = not interval.low <= 1 <= interval.high
        if interval.sure:
            assert apart == (two_sided_p(a, b) <= 0.05)
        verdicts.add((interval.sure, apart))
    assert verdicts >= {(True, True), (True, False), (False, False)}


def test_intervals_of_many_runs_hold_the_truth_and_get_narrow():
    draw = random.Random(5)  # noqa: S311
    held = 0
    for _ in range(200):
        a, b = ([scale * draw.uniform(0.9, 1.1) for _ in range(40)] for scale in (1.0, 0.97))
        interval = ratio_interval(a, b)
        held += interval.low <= 0.97 <= interval.high
        assert interval.high - interval.low < 0.08
    assert 180 <= held <= 200


def test_numbers_that_no_device_gives_do_no_harm():
    assert ratio_interval([0.0] * 5, [1.0] * 5) is None
    assert ratio_interval([], []) is None
    assert ratio_interval([1.0] * 3000, [2.0] * 3000).low == 2.0
