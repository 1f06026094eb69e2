"""The compiled AQLM operators in ExecuTorch's Python runtime, against a dense product in float64."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from operator_programs import AqlmBetweenLinears, AqlmProduct, RingAttention, lowered, lowered_with_xnnpack

from etcli.common.errors import ToolError
from etcli.export.runtime import run_method
from etcli.ops.loading import load_into_executorch
from etcli.pte.read import read_program
from etcli.toolchain.elf import read_elf
from etcli.toolchain.registrations import read_registrations

TWO = ("aqlm::code1x8_lut_matmat.out", "aqlm::code2x8_lut_matmat.out")


def run(path: Path, program: bytes, x: torch.Tensor) -> torch.Tensor:
    path.write_bytes(program)
    [result] = run_method(path, "forward", [x])
    return result


def assert_exact(found: torch.Tensor, want: torch.Tensor) -> None:
    """Within 5e-6 of the largest number, and of the norm."""
    assert found.shape == want.shape
    difference = found.double() - want
    assert difference.abs().max() <= 5e-6 * want.abs().max()
    assert difference.norm() <= 5e-6 * want.norm()


def test_the_library(loaded_aqlm: Path) -> None:
    assert loaded_aqlm.name == "libetcli_aqlm_ops.so"
    assert read_registrations(loaded_aqlm).operators == TWO
    facts = read_elf(loaded_aqlm)
    assert "libexecutorch.so" in facts.needed
    assert not [name for name in facts.needed if "torch_cpu" in name or "omp" in name]
    assert facts.run_path is None


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("codebooks", [1, 2])
@pytest.mark.parametrize(
    ("tokens", "groups", "outputs"),
    [((1,), 1, 1), ((1, 1), 9, 37), ((1, 5), 40, 131), ((1, 33), 72, 65), ((1, 19), 7, 512)],
)
def test_a_program_computes_what_float64_does(
    loaded_aqlm: Path, tmp_path: Path, codebooks: int, bias: bool, tokens: tuple[int, ...], groups: int, outputs: int
) -> None:
    product = AqlmProduct(codebooks, groups, outputs, bias=bias, seed=outputs)
    x = torch.randn(*tokens, groups * 8, generator=torch.Generator().manual_seed(1))
    assert_exact(run(tmp_path / "product.pte", lowered(product, (x,)), x), product.exact(x))


@pytest.mark.parametrize("codebooks", [1, 2])
def test_outliers_do_not_cost_the_others_their_precision(loaded_aqlm: Path, tmp_path: Path, codebooks: int) -> None:
    product = AqlmProduct(codebooks, 96, 200, bias=True)
    x = torch.randn(1, 3, 96 * 8, generator=torch.Generator().manual_seed(1))
    x[..., ::97] *= 1000  # as activations of large models have them in a few channels
    program = lowered(product, (x,))
    assert_exact(run(tmp_path / "product.pte", program, x), product.exact(x))


@pytest.mark.parametrize("codebooks", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
def test_between_what_xnnpack_computes(loaded_aqlm: Path, tmp_path: Path, codebooks: int, bias: bool) -> None:
    module = AqlmBetweenLinears(AqlmProduct(codebooks, 11, 45, bias=bias)).eval()
    x = torch.randn(1, 6, 24, generator=torch.Generator().manual_seed(1))
    path = tmp_path / "between.pte"
    with torch.no_grad():
        found = run(path, lowered_with_xnnpack(module, (x,)), x)
        want = module.after(torch.nn.functional.silu(module.product.exact(module.before(x)).float()))
    torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-4)
    [method] = read_program(path).methods
    # The product stays an operator, and both sides of it are the delegate's.
    assert list(method.operator_names) == [f"aqlm::code{codebooks}x8_lut_matmat.out"]
    assert [delegate.backend for delegate in method.delegates] == ["XnnpackBackend", "XnnpackBackend"]


def test_beside_the_attention_operators(loaded_aqlm: Path, loaded_library: Path, tmp_path: Path) -> None:
    for path in (loaded_aqlm, loaded_library, loaded_aqlm):
        load_into_executorch(path)
    product = AqlmProduct(2, 4, 6, bias=False)
    x = torch.randn(1, 2, 32)
    assert_exact(run(tmp_path / "product.pte", lowered(product, (x,)), x), product.exact(x))
    cache = torch.zeros(1, 1, 4, 8)
    inputs = (*(torch.randn(1, 1, 8) for _ in range(3)), cache, cache, torch.ones(1, 2, 1, 8), torch.tensor([0, 1]))
    (tmp_path / "ring.pte").write_bytes(lowered(RingAttention(), inputs))
    found = run_method(tmp_path / "ring.pte", "forward", inputs)
    torch.testing.assert_close(found[0], inputs[2])  # one token attends to itself


def test_a_copy_is_refused_before_it_ends_the_process(loaded_aqlm: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(loaded_aqlm, tmp_path))
    with pytest.raises(ToolError, match="registered in this process") as caught:
        load_into_executorch(copy)
    assert caught.value.problems[0].code == "operators.twice"
    assert "aqlm::code2x8_lut_matmat.out" in caught.value.problems[0].message
    assert str(loaded_aqlm) in caught.value.problems[0].message


def test_a_process_without_the_library_names_the_operator(tmp_path: Path) -> None:
    path = tmp_path / "product.pte"
    path.write_bytes(lowered(AqlmProduct(2, 3, 5, bias=True), (torch.randn(1, 24),)))
    code = (
        "import sys, torch; from pathlib import Path; from etcli.export.runtime import run_method\n"
        "try: run_method(Path(sys.argv[1]), 'forward', [torch.randn(1, 24)])\n"
        "except RuntimeError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert "0x:14" in done.stdout or "0x14" in done.stdout
    assert "aqlm::code2x8_lut_matmat.out" in done.stderr


def test_in_a_worker(loaded_aqlm: Path, tmp_path: Path) -> None:
    product = AqlmProduct(1, 5, 9, bias=True)
    x = torch.randn(1, 3, 40)
    path = tmp_path / "product.pte"
    path.write_bytes(lowered(product, (x,)))
    code = (
        "import json, sys, torch; from pathlib import Path; from etcli.export.runtime import run_method\n"
        "from etcli.ops.library import aqlm_library; from etcli.ops.loading import load_into_executorch\n"
        "load_into_executorch(aqlm_library())\n"
        "[y] = run_method(Path(sys.argv[1]), 'forward', [torch.tensor(json.load(sys.stdin))])\n"
        "print(json.dumps([y.tolist(), 'executorch.exir' in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], input=json.dumps(x.tolist()), capture_output=True, text=True, check=True
    )
    found, whole_exporter = json.loads(done.stdout)
    assert_exact(torch.tensor(found), product.exact(x))
    assert not whole_exporter
