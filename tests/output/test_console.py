"""Where the console puts what it is given."""

import pytest

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
    assert "result" in err
    assert "careful" in err
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


def test_table_cells_are_not_markup(capsys):
    Console().table("Files", ["name", "size"], [["[red]x[/red]", "12"]])
    assert "[red]x[/red]" in capsys.readouterr().out
