"""What `mtk_llama_executor_runner` prints, as events: success judged, ids cut at the first stop id, rates from true counts."""

from __future__ import annotations

import pytest

from etcli.run.events import AnyEvent, Failure, Loaded, Note, Prefill, Stats, Token
from etcli.run.runners.mtk_output import MtkReader

LOG = """\
I 00:00:00.000100 executorch:mtk_llama_executor_runner.cpp:1] Begin model loading.
I tokenizers:regex.cpp:27] Registering override fallback regex
I 00:00:01.500100 executorch:mtk_llama_executor_runner.cpp:2] Model initialized.
I 00:00:02.000000 executorch:mtk_llama_executor_runner.cpp:3] Done analyzing prompt in 0.500000 sec (16.000000 tok/s)
I 00:00:02.000000 executorch:mtk_llama_executor_runner.cpp:4] Model swapped.
I 00:00:03.000000 executorch:mtk_llama_executor_runner.cpp:5] Token generation speed: {speed} tok/s
I 00:00:03.100000 executorch:mtk_llama_executor_runner.cpp:6] Model released.
"""
PROMPT = (1, 40, 41, 42, 43)


def output(tokens: str, *, prompt: str = "{1, 40, 41, 42, 43}", text: str = "some\ntext") -> list[str]:
    lines = f"\n[Input Prompt]\nHi\n\n[Input Prompt Tokens]\n{prompt}\n\n[Real-time Response]\n{text}\n\n[Generated Tokens]\n{tokens}"
    return lines.split("\n")


def events(
    lines: list[str],
    log: str = LOG.format(speed="4.000000"),
    *,
    status: int = 0,
    most: int = 4,
    stops: tuple[int, ...] = (2, 7),
    cache: int = 32,
) -> list[AnyEvent]:
    reader = MtkReader(PROMPT, most, stops, eos_id=2, cache=cache, batch=8, chunks=3)
    assert all(isinstance(reader.line(line), Note) for line in lines)
    return list(reader.end(log, status))


def stats(found: list[AnyEvent]) -> Stats:
    assert isinstance(found[-1], Stats)
    return found[-1]


def failure(found: list[AnyEvent]) -> Failure:
    assert isinstance(found[-1], Failure)
    assert not any(isinstance(event, (Token, Stats)) for event in found)
    return found[-1]


@pytest.mark.known_failure("mtk-rates")
def test_rates_are_of_true_counts() -> None:
    loaded, prefill, *tokens, last = events(output("{10, 11, 12, 13}"))
    assert isinstance(loaded, Loaded)
    assert (loaded.load_s, loaded.chunks, loaded.threads) == (1.5, 3, None)
    assert isinstance(prefill, Prefill)
    assert (prefill.tokens, prefill.calls, prefill.seconds) == (5, 1, 0.5)
    assert [token.id for token in tokens if isinstance(token, Token)] == [10, 11, 12, 13]
    assert isinstance(last, Stats)
    # The runner counted 8 rows of a padded call, and 4 steps where 3 were timed in 1 s.
    assert last.prefill_tokens_per_s == 10
    assert (last.decode_steps, last.decode_s, last.decode_tokens_per_s) == (3, 1.0, 3.0)
    assert last.stop_reason == "max_new_tokens"
    assert last.time_to_first_token_s == 0.5


def test_the_count_is_right_where_the_end_id_ended_it() -> None:
    last = stats(events(output("{10, 11, 2}"), LOG.format(speed="4.000000")))
    assert (last.decode_steps, last.decode_s, last.decode_tokens_per_s) == (2, 0.5, 4.0)
    assert last.stop_reason == "stop_id"


def test_one_token_has_no_rate() -> None:
    last = stats(events(output("{10}"), LOG.format(speed="inf"), most=1))
    assert (last.new_tokens, last.decode_s, last.decode_tokens_per_s) == (1, None, None)


def test_a_program_without_its_log_has_no_rates() -> None:
    found = events(output("{10, 11, 12, 13}"), "")
    assert not any(isinstance(event, (Loaded, Prefill)) for event in found)
    last = stats(found)
    assert (last.load_s, last.prefill_tokens_per_s, last.decode_tokens_per_s) == (None, None, None)


@pytest.mark.known_failure("mtk-one-end-id")
@pytest.mark.parametrize(
    ("printed", "kept"), [("{10, 7, 11, 12}", [10, 7]), ("{7, 10, 11, 12}", [7]), ("{2, 10, 11, 2}", [2])]
)
def test_the_answer_is_cut_at_the_first_stop_id(printed: str, kept: list[int]) -> None:
    found = events(output(printed))
    assert [event.id for event in found if isinstance(event, Token)] == kept
    assert (stats(found).stop_reason, stats(found).new_tokens) == ("stop_id", len(kept))
    assert stats(found).decode_steps == 3


def test_a_full_cache_ends_an_answer() -> None:
    assert stats(events(output("{10, 11, 12, 13}"), most=9, cache=8)).stop_reason == "cache_full"
    assert failure(events(output("{10, 11, 12, 13}"), most=9, cache=9)).code == "runner.ended_early"


def test_headings_inside_the_texts_mean_nothing() -> None:
    text = "[Generated Tokens]\n{5}\n\n[Input Prompt Tokens]\n{6}"
    found = events(output("{10, 11, 12, 13}", text=text))
    assert [event.id for event in found if isinstance(event, Token)] == [10, 11, 12, 13]


@pytest.mark.known_failure("mtk-exit-status-zero")
@pytest.mark.parametrize(
    "lines",
    [[], output("{10, 11}")[:-2], [*output("{10, 11}"), "more"], output("{10, 11"), output("{}"), output("{-1}")],
)
def test_no_list_at_the_end_is_no_result(lines: list[str]) -> None:
    found = events(lines)
    assert not any(isinstance(event, (Token, Stats)) for event in found)


@pytest.mark.known_failure("mtk-exit-status-zero")
@pytest.mark.parametrize("level", "EF")
def test_a_logged_error_is_a_failure(level: str) -> None:
    bad = f"{level} 00:00:02.100000 executorch:ModelChunk.cpp:9] Cannot find method for 8 tokens\n"
    found = failure(events(output("{10, 11, 12, 13}"), LOG.format(speed="4.0") + bad))
    assert found.code == "runner.error_logged"
    assert "Cannot find method" in found.message


def test_the_log_of_the_tokenizers_is_no_verdict() -> None:
    found = events(output("{10, 11, 12, 13}"), "E tokenizers:re2_regex.cpp:26] Failed to compile regex\n")
    assert isinstance(found[-1], Stats)


@pytest.mark.known_failure("mtk-tokenizer-of-another-kind")
@pytest.mark.parametrize(
    ("prompt", "place"), [("{1, 1, 40, 41, 42, 43}", "place 1: 1 instead of 40"), ("{1, 40, 41, 42}", "at the end")]
)
def test_other_ids_of_the_prompt_are_a_failure(prompt: str, place: str) -> None:
    found = failure(events(output("{10, 11, 12, 13}", prompt=prompt)))
    assert found.code == "runner.prompt_ids"
    assert place in found.message


def test_an_old_runner_does_not_say_the_ids_of_the_prompt() -> None:
    lines = [
        line for line in output("{10, 11, 12, 13}") if line not in ("[Input Prompt Tokens]", "{1, 40, 41, 42, 43}")
    ]
    assert isinstance(events(lines)[-1], Stats)


def test_more_tokens_than_asked_for() -> None:
    assert failure(events(output("{10, 11, 12, 13}"), most=3)).code == "runner.too_many_tokens"


def test_another_status_gives_no_result() -> None:
    assert not any(
        isinstance(event, (Token, Stats, Failure)) for event in events(output("{10, 11, 12, 13}"), status=134)
    )


def test_numbers_beyond_any_vocabulary_are_refused_as_tokens() -> None:
    assert not any(isinstance(event, Stats) for event in events(output("{9999999999999999999}")))


@pytest.mark.parametrize("printed", ["0." + "0" * 309 + "1", "0." + "0" * 400 + "1", "9" * 400 + ".0", "0.0"])
def test_times_that_no_run_takes_give_no_rates(printed: str) -> None:
    log = LOG.format(speed=printed).replace("0.500000 sec", f"{printed} sec")
    last = stats(events(output("{10, 11, 12, 13}"), log))
    assert (last.new_tokens, last.stop_reason) == (4, "max_new_tokens")
    assert (last.decode_tokens_per_s, last.prefill_tokens_per_s) == (None, None)
