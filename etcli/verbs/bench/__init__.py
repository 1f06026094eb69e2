"""How fast and how large a deployed model is: measured, compared with an earlier report, drawn as a page."""

from etcli.verbs.bench.comparing import ComparedPair, Comparison, compare_files
from etcli.verbs.bench.judging import judge
from etcli.verbs.bench.measuring import BenchOptions, bench
from etcli.verbs.bench.page import prepare_page, write_page

__all__ = [
    "BenchOptions",
    "ComparedPair",
    "Comparison",
    "bench",
    "compare_files",
    "judge",
    "prepare_page",
    "write_page",
]
