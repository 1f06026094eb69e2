"""The page of `etcli bench --html`: well-formed, whole without a network, everything in it escaped."""

from __future__ import annotations

import html.parser
import os
import re

import pytest
from bench_reports import DEVICE, make_report

from etcli.common.errors import UsageError
from etcli.verbs.bench.comparing import compare
from etcli.verbs.bench.page import page, prepare_page, write_page

_VOID = {"meta", "br"}
EVIL = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>"


class Parsed(html.parser.HTMLParser):
    """Elements with their attributes, and the text; unbalanced tags are kept as faults."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.faults: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        self.faults += self._open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"/{tag}")

    def handle_data(self, data):
        self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def test_it_is_well_formed_and_fetches_nothing():
    text = page([make_report()])
    found = Parsed(text)
    assert found.faults == []
    assert not {tag for tag, _ in found.elements} & {"script", "link", "img", "iframe", "object", "embed", "base"}
    assert not [
        name
        for _, attributes in found.elements
        for name in attributes
        if name in ("src", "href") or name.startswith("on")
    ]
    assert not re.search(r"url\(|@import|https?://", text)


def test_it_plots_each_run_their_median_and_the_memory():
    report = make_report((10.0, 20.0, 40.0))
    found = Parsed(page([report]))
    lines = [attributes["points"].split() for attributes in found.all("polyline")]
    # three runs and their median, four steps each; then memory, rates, heat
    assert [len(line) for line in lines] == [4, 4, 4, 4, 12, 3, 6]
    # the vertical axis runs downwards: a run of half the rate has steps twice as high above the chart's lower edge
    bottom = 300 - 44
    heights = [bottom - float(line[0].split(",")[1]) for line in lines[:3]]
    assert heights[0] == pytest.approx(2 * heights[1], abs=0.3)
    assert lines[3] == lines[1]  # the median of three is the middle one
    assert "first token" in found.text
    assert "chunk 1" in found.text


def test_all_that_others_wrote_is_escaped():
    device = DEVICE.model_copy(update={"serial": EVIL, "model": EVIL, "soc": EVIL, "os": EVIL, "abi": EVIL})
    report = make_report(device=device, measured_at=EVIL, etcli=EVIL, runner=EVIL, target=EVIL)
    figures = tuple(
        figure.model_copy(update={"name": f"chunk {EVIL}, a token", "unit": EVIL}) for figure in report.figures
    )
    report = report.model_copy(update={"figures": figures})
    found = Parsed(page([report, report], [compare(report, report)]))
    assert found.faults == []
    assert not found.all("script")
    assert not found.all("img")
    assert not [name for _, attributes in found.elements for name in attributes if name.startswith("on")]
    assert EVIL in found.text


def test_figures_that_say_nothing_of_a_phone_say_so():
    report = make_report(device=DEVICE.model_copy(update={"emulated": True}), simulated=True, quality="demonstration")
    text = Parsed(page([report])).text
    assert "emulated device" in text
    assert "simulated NPU" in text
    assert "demonstration" in text
    assert "emulated" not in Parsed(page([make_report()])).text


def test_a_runner_that_tells_little_leaves_those_plots_out():
    report = make_report((10.0,))
    bare = report.each[0].model_copy(update={"token_s": (), "chunk_s": (), "prefill_chunk_s": ()})
    bare = bare.model_copy(update={"before": type(bare.before)(), "after": type(bare.after)()})
    report = report.model_copy(update={"each": (bare,), "memory": type(report.memory)(), "figures": report.figures[:5]})
    assert Parsed(page([report])).all("svg") == []


def test_a_long_run_makes_no_large_page(tmp_path):
    report = make_report((10.0,))
    run = report.each[0].model_copy(update={"token_s": tuple(index / 10 for index in range(100_000))})
    report = report.model_copy(update={"each": (run,) * 20, "runs": 20})
    write_page(tmp_path / "sub" / "page.html", [report])
    assert (tmp_path / "sub" / "page.html").stat().st_size < 2_000_000


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path, monkeypatch):
    prepare_page(tmp_path / "new" / "page.html")
    assert (tmp_path / "new").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        prepare_page(tmp_path / "file" / "page.html")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(UsageError) as caught:
        prepare_page(tmp_path / "page.html")
    assert caught.value.problems[0].code == "bench.page"
