"""`etcli bench --compare`: ratios whose sense is told, differences named, and documents that are none refused."""

from __future__ import annotations

import json

import pytest
from bench_reports import DEVICE, make_report, write_document
from click.testing import CliRunner

from etcli.cli.main import cli
from etcli.common.errors import UsageError
from etcli.verbs.bench import compare_files
from etcli.verbs.bench.comparing import compare


def by_name(pair):
    return {figure.name: figure for figure in pair.figures}


def test_a_ratio_above_one_is_better_for_rates_as_for_times():
    pair = compare(make_report((10.0, 11.0, 12.0)), make_report((20.0, 22.0, 24.0)))
    found = by_name(pair)
    assert (found["decode"].ratio, found["decode"].verdict) == (2.0, "better")
    assert found["token latency, median"].ratio == pytest.approx(2.0)
    assert found["token latency, median"].verdict == "better"
    back = by_name(compare(pair.b, pair.a))
    assert (back["decode"].ratio, back["decode"].verdict) == (0.5, "worse")


def test_overlapping_runs_decide_nothing():
    found = by_name(compare(make_report((10.0, 11.0, 12.0)), make_report((11.5, 12.0, 13.0))))
    assert found["decode"].verdict == "within the spread"
    assert found["load"].verdict == "within the spread"


def test_heat_is_not_compared_by_ratio():
    found = by_name(compare(make_report(), make_report()))
    assert not [name for name in found if "hottest" in name or "clock" in name]


def test_what_else_differs_is_said():
    other = make_report(threads=8, device=DEVICE.model_copy(update={"emulated": True}), bundle_sha256="cd" * 32)
    differences = compare(make_report(), other).differences
    assert "threads: 4 and 8" in differences
    assert "emulated: no and yes" in differences
    assert f"bundle: {'ab' * 6} and {'cd' * 6}" in differences
    assert compare(make_report(), make_report()).differences == ()


def test_devices_are_paired_by_serial(tmp_path):
    second = DEVICE.model_copy(update={"serial": "phone-2"})
    a = write_document(tmp_path / "a.json", make_report(), make_report(device=second))
    b = write_document(tmp_path / "b.json", make_report((5.0,), device=second), make_report((5.0,)))
    found = compare_files(a, b)
    assert [pair.a.device.serial for pair in found.pairs] == [pair.b.device.serial for pair in found.pairs]
    assert len(found.pairs) == 2


def test_documents_without_a_common_device(tmp_path):
    third = DEVICE.model_copy(update={"serial": "phone-3"})
    a = write_document(
        tmp_path / "a.json", make_report(), make_report(device=DEVICE.model_copy(update={"serial": "x"}))
    )
    b = write_document(tmp_path / "b.json", make_report(device=third))
    with pytest.raises(UsageError) as caught:
        compare_files(a, b)
    assert caught.value.problems[0].code == "bench.no_common_device"


@pytest.mark.parametrize(
    "content",
    [
        "",
        "no json",
        "[]",
        "[" * 5000,
        '{"command": "run", "ok": true, "result": {}}',
        '{"command": "bench", "ok": false, "result": null}',
        '{"command": "bench", "ok": true, "result": {"devices": []}}',
        '{"command": "bench", "ok": true, "result": {"name": "x"}}',
    ],
)
def test_a_file_that_is_no_benchmark_is_refused(tmp_path, content):
    bad = tmp_path / "bad.json"
    bad.write_text(content)
    with pytest.raises(UsageError) as caught:
        compare_files(write_document(tmp_path / "a.json", make_report()), bad)
    assert caught.value.problems[0].code in ("bench.document", "manifest.invalid")
    assert caught.value.problems[0].file == bad


@pytest.mark.parametrize("number", ["NaN", "1e999", "-1", '"fast"'])
def test_numbers_that_cannot_be_are_refused(tmp_path, number):
    document = json.loads(write_document(tmp_path / "a.json", make_report()).read_text())
    document["result"]["figures"][0]["median"] = "@"
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(document).replace('"@"', number))
    with pytest.raises(UsageError):
        compare_files(bad, bad)


def test_the_command_prints_one_document_and_needs_no_device(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_document(tmp_path / "a.json", make_report())
    write_document(tmp_path / "b.json", make_report((20.0,)))
    done = CliRunner().invoke(cli, ["bench", "--compare", "a.json", "b.json", "--html", "page.html", "--json"])
    assert done.exit_code == 0, done.output
    (pair,) = json.loads(done.stdout)["result"]["pairs"]
    assert next(row for row in pair["figures"] if row["name"] == "decode")["ratio"] == pytest.approx(20 / 11)
    assert "within the spread" in (tmp_path / "page.html").read_text()


def test_measuring_options_beside_compare_are_a_misunderstanding(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = str(write_document(tmp_path / "a.json", make_report()))
    done = CliRunner().invoke(cli, ["bench", "--compare", path, path, "--runs", "3"])
    assert done.exit_code == 2
    assert "--runs" in done.output
