"""The loop whose cycles the benchmark of AQLM kernels reckons is found in assembly as both compilers write it."""

from __future__ import annotations

from pathlib import Path

import pytest
from neon_estimate import cycles_a_look_up, inner_loops, look_ups, total_cycles, widest_loop

GCC = """\
\t.arch armv8-a
one:
.LFB1:
\t.cfi_startproc
.L2:
\tmov\tx9, 0
.L3:
\tldr\tx3, [x1, x9]
\tubfx x4, x3, 0, #8
\tldr s0, [x0, x4, lsl #2]
\tldr\ts1, [x0, w5, uxtw 2]
\tldr\ts2, [x7, 8]
\tldr\tq3, [x7, x9]
\tadd\tx9, x9, 8
\tcmp\tx9, x6
\tbne\t.L3
\tcbnz\tx2, .L2
\tret
\t.size\tone, .-one
"""

CLANG = """\
one:                                    // @one
.LBB0_1:                                // =>This Inner Loop Header: Depth=1
\tldr\tx3, [x1], #8
\t//APP
\tubfx x4, x3, #0, #8
\tldr s0, [x0, x4, lsl #2]
\tubfx x5, x3, #56, #8
\t//NO_APP
\tsubs\tx6, x6, #1
\tb.ne\t.LBB0_1
.LBB0_2:
\tldr\ts0, [x0, x4, lsl #2]
\tadd\tx4, x4, #1
\tb.lt\t.LBB0_2                         // a tail
\tb\t.LBB0_3
.LBB0_3:
\tret
"""


def test_loops_hold_no_other_loop() -> None:
    (loop,) = inner_loops(GCC)
    assert loop[0].split() == ["ldr", "x3,", "[x1,", "x9]"]
    assert loop[-1].split() == ["bne", ".L3"]


def test_comments_are_no_instructions_and_branches_forward_no_loops() -> None:
    loops = list(inner_loops(CLANG))
    assert [len(loop) for loop in loops] == [6, 3]
    assert not any("APP" in line for loop in loops for line in loop)


def test_loads_from_tables_are_counted_and_no_others() -> None:
    (loop,) = inner_loops(GCC)
    assert look_ups(loop) == 2


def test_of_equal_loops_the_one_with_eight_codes_a_word_is_taken() -> None:
    assert len(widest_loop(CLANG)) == 6


def test_assembly_without_look_ups_is_refused() -> None:
    with pytest.raises(ValueError, match="no loop"):
        widest_loop("one:\n.L1:\n\tadd\tx1, x1, 1\n\tb\t.L1\n")


def test_cycles_are_read_from_the_report() -> None:
    assert total_cycles("Iterations:        200\nInstructions:      19800\nTotal Cycles:      2551\n") == 2551
    with pytest.raises(ValueError, match="not a report"):
        total_cycles("error: unknown target")


def test_the_kernel_has_the_loop(tmp_path: Path) -> None:
    """A stand-in for llvm-mca keeps what it is given: 32 look-ups, as the kernel's four outputs and eight tables make."""
    program = tmp_path / "llvm-mca"
    program.write_text(f"#!/bin/sh\ncat > {tmp_path}/loop.s\necho 'Total Cycles:      6400'\n")
    program.chmod(0o755)
    assert cycles_a_look_up(program) == 1.0
    loop = (tmp_path / "loop.s").read_text()
    assert loop.count("lsl #2]") == 32
    assert loop.count("saba") + loop.count("sabd") == 16
