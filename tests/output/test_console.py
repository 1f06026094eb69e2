"""Where the console puts what it is given."""

import io
import re

import pytest
import rich.progress

from etcli.output.console import Console


def test_people_get_stdout_and_notes_go_to_stderr(capsys):
    console = Console()
    console.print("result [bold]as it is[/bold]")
    console.note("a remark")
    console.write("tok")
    out, err = capsys.readouterr()
    assert out == "result [bold]as it is[/bold]\ntok"
    assert err == "a remark\n"


def test_json_keeps_stdout_free(capsys):
    console = Console(json=True)
    console.print("result")
    console.write("tok")
    console.table("t", ["a"], [["1"]])
    console.warn("careful", code="x.y")
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "tokwarning: careful\n"  # results are in the document
    assert [warning.code for warning in console.warnings] == ["x.y"]


def test_quiet_drops_notes_but_not_results(capsys):
    console = Console(verbosity=-1)
    console.note("a remark")
    with console.step("step"):
        console.print("result")
    out, err = capsys.readouterr()
    assert (out, err) == ("result\n", "")


@pytest.mark.parametrize(
    ("text", "shown"), [("\x1b[2J", "\\x1b[2J"), ("é\n\t", "é\n\t"), ("\r", "\\r"), ("\x9b", "\\x9b")]
)
def test_a_model_cannot_drive_the_terminal(capsys, text, shown):
    Console().write(text)
    assert capsys.readouterr().out == shown


def test_names_out_of_files_cannot_drive_the_terminal(capsys):
    console = Console(verbosity=1)
    console.print("\x1b[2Jprint")
    console.note("\x1b[2Jnote")
    console.detail("\x1b[2Jdetail")
    console.warn("\x1b[2Jwarn", code="x.y")
    console.table("\x1b[2Jtitle", ["name"], [["\x1b[2Jcell"]])
    with console.step("\x1b[2Jstep"):
        pass
    said = "".join(capsys.readouterr())
    assert "\x1b[2J" not in said
    for word in ("print", "note", "detail", "warn", "title", "cell", "step"):
        assert f"\\x1b[2J{word}" in said


def test_table_cells_are_not_markup(capsys):
    Console().table("Files", ["name", "size"], [["[red]x[/red]", "12"]])
    assert "[red]x[/red]" in capsys.readouterr().out


def table(columns, monkeypatch, capsys):
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    else:
        monkeypatch.delenv("COLUMNS", raising=False)
    long = "/a/path/" + "x" * 300
    Console().table("a title that is longer than its table", ["n", "path"], [["1", long]])
    return long, capsys.readouterr().out.splitlines()


def test_a_row_in_a_pipe_is_one_line(monkeypatch, capsys):
    long, lines = table(None, monkeypatch, capsys)
    assert lines[0] == "a title that is longer than its table"
    assert any(long in line for line in lines)
    assert len(lines) == 4


def test_columns_is_honoured_in_a_pipe(monkeypatch, capsys):
    _, lines = table("60", monkeypatch, capsys)
    assert max(map(len, lines)) <= 60


@pytest.mark.parametrize("variable", ["NO_COLOR", "CI"])
def test_no_colour_means_no_escape_code_at_all(monkeypatch, capsys, variable):
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes the output for a terminal
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("CI", raising=False)
    Console().print("bold", style="bold")
    assert "\x1b[" in capsys.readouterr().out
    monkeypatch.setenv(variable, "1")
    console = Console()
    console.print("bold", style="bold")
    console.note("dim")
    console.table("t", ["a"], [["1"]])
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err


def test_the_time_of_a_step_names_it(capsys):
    with Console(verbosity=1).step("compile"):
        pass
    assert "    compile: 0.0 s\n" in capsys.readouterr().err


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until a test moves it: `clock[0] += seconds`."""
    now = [1000.0]
    monkeypatch.setattr("etcli.output.console.time.monotonic", lambda: now[0])
    return now


def test_short_work_is_one_line_in_a_log(capsys, clock):
    with Console().progress("verify", 8) as advance:
        for _ in range(8):
            clock[0] += 1
            advance(1)
    assert capsys.readouterr().err == "    verify: 8/8 in 8.0 s\n"


def test_nothing_is_foretold_while_nothing_goes(capsys, clock):
    with Console().progress("pack", 80e6, bytes_=True) as advance:
        advance(900)
        clock[0] += 36
        advance(0)
        assert capsys.readouterr().err == "    pack: 0.0/80.0 MB after 36 s, 0.0 MB/s\n"


def test_long_work_writes_a_line_at_each_quarter(capsys, clock):
    with Console().progress("pack", 80e6, bytes_=True) as advance:
        for _ in range(80):
            clock[0] += 0.5
            advance(1e6)
    assert capsys.readouterr().err.splitlines() == [
        "    pack: 20.0/80.0 MB after 10 s, 2.0 MB/s, 30 s left",
        "    pack: 40.0/80.0 MB after 20 s, 2.0 MB/s, 20 s left",
        "    pack: 60.0/80.0 MB after 30 s, 2.0 MB/s, 10 s left",
        "    pack: 80.0 MB in 40.0 s, 2.0 MB/s",
    ]


def test_work_that_does_not_move_still_gives_signs_of_life(capsys, clock):
    with Console().progress("chunks", 4) as advance:
        for _ in range(70):
            clock[0] += 1
            advance(0)
        said = capsys.readouterr().err.splitlines()
    assert said == ["    chunks: 0/4 after 30 s", "    chunks: 0/4 after 60 s"]


def test_work_of_no_size_and_quiet_logs(capsys, clock):
    with Console(verbosity=-1).progress("nothing", 0) as advance:
        clock[0] += 99
        advance(0)
    assert capsys.readouterr().err == ""


def test_a_log_says_what_is_under_way(capsys, clock):
    with Console().progress("chunks", 4) as advance:
        advance.doing("chunk 0: lowering")
        clock[0] += 31
        advance(0)
    assert capsys.readouterr().err.splitlines()[0] == "    chunks: 0/4 after 31 s, now chunk 0: lowering"


@pytest.mark.parametrize(("seconds", "rate"), [(0.04, ""), (0.5, ", 200.0 MB/s")])
def test_no_rate_is_told_of_next_to_no_time(capsys, clock, seconds, rate):
    with Console().progress("hashing", 100e6, bytes_=True) as advance:
        clock[0] += seconds
        advance(100e6)
    assert capsys.readouterr().err == f"    hashing: 100.0 MB in {seconds:.1f} s{rate}\n"


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self):
        return True


def terminal(monkeypatch, columns):
    """Makes stderr a terminal of so many columns; gives it. In a fixture, pytest would take it back before the test."""
    monkeypatch.setenv("COLUMNS", str(columns))
    for name in ("NO_COLOR", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    return screen


def plain(screen):
    """What has been written, without escape codes, line by line."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue()).replace("\r", "\n").splitlines()


def test_a_bar_foretells_nothing_before_a_piece_is_done(monkeypatch):
    screen = terminal(monkeypatch, 80)
    times = iter(range(0, 10_000, 20))
    real = rich.progress.Progress
    monkeypatch.setattr(
        "rich.progress.Progress", lambda *a, **k: real(*a, auto_refresh=False, get_time=lambda: next(times), **k)
    )
    with Console().progress("programs", 8) as advance:
        advance.doing("chunk [0]: lowering")
        advance(0.8)
        advance._bar.refresh()
        before = plain(screen)
        advance(1.2)
        advance._bar.refresh()
    (line,) = [line for line in before if " 0/8 " in line][-1:]
    assert "chunk [0]: lowering" in line
    assert len(re.findall(r"\d+:\d\d:\d\d", line)) == 1, "the time that has gone, and none that is left"
    (line,) = [line for line in plain(screen) if " 2/8 " in line][-1:]
    gone, left = (
        sum(int(part) * 60**place for place, part in enumerate(reversed(time.split(":"))))
        for time in re.findall(r"\d+:\d\d:\d\d", line)
    )
    # the clock goes on while the line is drawn: 6 pieces left take three times what 2 have
    assert 3 * gone <= left <= 3 * (gone + 100)


def test_waiting_is_wrapped_on_a_narrow_terminal(monkeypatch):
    screen = terminal(monkeypatch, 40)
    words = "loaded in 12.3 s; prefill of 37 tokens (emulated: about a minute)"
    with Console().waiting(words):
        pass
    assert words in " ".join(" ".join(plain(screen)).split())
    assert max(map(len, plain(screen))) <= 40


def test_waiting_in_a_log_is_a_line_for_each_news(capsys):
    with Console().waiting("loading") as tell:
        tell("loaded")
        tell(None)
    assert capsys.readouterr().err == "    loaded\n"


def test_waiting_on_a_terminal_is_gone_when_it_ends(monkeypatch):
    screen = terminal(monkeypatch, 80)
    with Console().waiting("loading [x]") as tell:
        tell("prefill [y]")
        tell(None)
        shown = screen.getvalue()
        tell(None)
    assert "prefill [y]" in shown
    assert shown.endswith("\x1b[2K")  # the line was erased
    assert screen.getvalue() == shown


def test_names_of_a_row_are_never_broken(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    Console().table("t", ["a", "b", "c"], [["serial-of-15-ch", "name-of-14-ch", "word " * 20]], names=2)
    out = capsys.readouterr().out
    assert "serial-of-15-ch" in out
    assert "name-of-14-ch" in out
    assert max(map(len, out.splitlines())) <= 60


def test_the_same_warning_a_second_time_says_nothing_new(capsys):
    console = Console()
    for message in ("it is old", "it is old", "it is new"):
        console.warn(message, code="x.old")
    assert capsys.readouterr().err.count("it is old") == 1
    assert [warning.message for warning in console.warnings] == ["it is old", "it is new"]


def test_what_is_said_can_be_kept_shown_or_not(capsys):
    console = Console(verbosity=-1)
    console.note("before")
    with console.recorded() as said:
        with console.step("a step"):
            console.note("a note")
            console.detail("a detail")
            console.write("to")
            console.write("kens")
        with console.recorded() as inner:
            console.warn("careful", code="x.y")
    console.note("after")
    text = "".join(said)
    assert text.startswith("==> a step\na note\na detail\ntokens")
    assert text.endswith("warning: careful\n")
    assert inner == ["warning: careful\n"]
    out, err = capsys.readouterr()
    assert (out, err) == ("tokens", "warning: careful\n")
