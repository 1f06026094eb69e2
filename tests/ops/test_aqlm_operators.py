"""AQLM products in PyTorch: the eager and the compiled kernel compute what float64 does, refuse the same, and can be exported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from operator_programs import AqlmProduct

from etcli.ops import aqlm
from etcli.ops.aqlm import dense_weight, eager_matmat, lut_matmat, use_compiled

Product = Callable[..., torch.Tensor]

SIZES = [
    ((), 3, 5),
    ((1,), 1, 1),
    ((4,), 9, 37),
    ((2, 3), 40, 131),
    ((33,), 72, 65),
    ((1, 19), 7, 512),
    ((300,), 16, 70),
]
EMPTY = [((0,), 3, 5), ((2, 0), 3, 5), ((4,), 3, 0), ((4,), 0, 3), ((0,), 0, 0)]


def compiled_matmat(x: torch.Tensor, codes: torch.Tensor, *others: torch.Tensor | None) -> torch.Tensor:
    assert use_compiled()
    return lut_matmat(codes.shape[-1])(x, codes, *others)


@pytest.fixture(params=[eager_matmat, compiled_matmat])
def product(request: pytest.FixtureRequest) -> Product:
    """Each kernel in turn."""
    found: Product = request.param
    return found


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets the number of PyTorch's threads, until the test ends."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def arguments(module: AqlmProduct) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    return module.codes, module.codebooks, module.scales, module.bias


def assert_exact(found: torch.Tensor, want: torch.Tensor) -> None:
    """Within 5e-6 of the largest number, and of the norm."""
    assert found.dtype == torch.float32
    assert found.shape == want.shape
    difference = found.double() - want
    assert difference.abs().max() <= 5e-6 * want.abs().max()
    assert difference.norm() <= 5e-6 * want.norm()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("codebooks", [1, 2])
@pytest.mark.parametrize(("tokens", "groups", "outputs"), SIZES)
def test_it_computes_what_float64_does(
    product: Product, codebooks: int, bias: bool, tokens: tuple[int, ...], groups: int, outputs: int
) -> None:
    module = AqlmProduct(codebooks, groups, outputs, bias=bias, seed=outputs)
    x = torch.randn(*tokens, groups * 8, generator=torch.Generator().manual_seed(1))
    assert_exact(product(x, *arguments(module)), module.exact(x))


@pytest.mark.parametrize("codebooks", [1, 2])
@pytest.mark.parametrize("tokens", [1, 2, 20])
def test_outliers_do_not_cost_the_others_their_precision(product: Product, codebooks: int, tokens: int) -> None:
    module = AqlmProduct(codebooks, 96, 200, bias=True)
    x = torch.randn(tokens, 96 * 8, generator=torch.Generator().manual_seed(1))
    x[..., ::97] *= 1000  # as activations of large models have them in a few channels
    assert_exact(product(x, *arguments(module)), module.exact(x))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("tokens", "groups", "outputs"), EMPTY)
def test_nothing_times_anything(
    product: Product, bias: bool, tokens: tuple[int, ...], groups: int, outputs: int
) -> None:
    module = AqlmProduct(2, groups, outputs, bias=bias)
    found = product(torch.randn(*tokens, groups * 8), *arguments(module))
    assert found.shape == (*tokens, outputs)
    if found.numel():  # sums of no groups
        assert torch.equal(found, module.bias.expand(4, 3) if module.bias is not None else torch.zeros(4, 3))


def test_weights_larger_than_what_is_unpacked_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    module = AqlmProduct(2, 6, 40, bias=True)
    x = torch.randn(5, 48, generator=torch.Generator().manual_seed(1))
    dense = dense_weight(*arguments(module)[:3])
    for block in (1, 48 * 7):  # less than one output, and seven at a time
        monkeypatch.setattr(aqlm, "_BLOCK", block)
        assert_exact(eager_matmat(x, *arguments(module)), module.exact(x))
        assert torch.equal(dense_weight(*arguments(module)[:3]), dense)


@pytest.mark.parametrize("codebooks", [1, 2])
def test_the_dense_weight(codebooks: int) -> None:
    module = AqlmProduct(codebooks, 6, 11, bias=False)
    codes, books, scales, _ = arguments(module)
    weight = dense_weight(codes, books, scales)
    assert weight.dtype == torch.float32
    torch.testing.assert_close(weight.double(), module.exact(torch.eye(48)).T, rtol=1e-6, atol=1e-6)
    # As a checkpoint has them: outputs first, 16-bit floats; bytes that are not signed are the same bytes.
    stored = codes.transpose(0, 1).contiguous()
    assert torch.equal(dense_weight(stored.transpose(0, 1), books, scales), weight)
    assert torch.equal(dense_weight(codes.view(torch.uint8), books, scales), weight)
    half = dense_weight(codes, books.half(), scales.half())
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, weight, rtol=0.02, atol=0.01)


@pytest.mark.parametrize("tokens", [1, 3, 40])
def test_the_same_bits_whatever_the_number_of_threads(threads: Callable[[int], None], tokens: int) -> None:
    module = AqlmProduct(2, 250, 640, bias=True)  # large enough to be shared out
    x = torch.randn(tokens, 2000, generator=torch.Generator().manual_seed(1))
    threads(1)
    want = compiled_matmat(x, *arguments(module))
    for count in (2, 3, 4):
        threads(count)
        for _ in range(5):
            assert torch.equal(compiled_matmat(x, *arguments(module)), want)


def test_a_call_of_its_own_from_every_thread() -> None:
    from concurrent.futures import ThreadPoolExecutor

    module = AqlmProduct(2, 250, 640, bias=True)
    inputs = [torch.randn(t, 2000, generator=torch.Generator().manual_seed(t)) for t in (1, 2, 9, 17)] * 3
    want = [compiled_matmat(x, *arguments(module)) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: compiled_matmat(x, *arguments(module)), inputs))
    assert all(torch.equal(a, b) for a, b in zip(found, want, strict=True))


def test_an_input_that_is_a_view(product: Product) -> None:
    module = AqlmProduct(2, 3, 10, bias=False)
    x = torch.randn(5, 48, generator=torch.Generator().manual_seed(1))
    for view in (x[:, ::2], x.T[:24, :4].T, x.view(5, 2, 24).transpose(0, 1)):
        assert not view.is_contiguous()
        assert_exact(product(view, *arguments(module)), module.exact(view))


@pytest.mark.parametrize("codebooks", [1, 2])
def test_into_memory_that_is_given(codebooks: int) -> None:
    module = AqlmProduct(codebooks, 3, 10, bias=True)
    x = torch.randn(2, 4, 24)
    out = torch.full((2, 4, 10), torch.nan)
    assert use_compiled()
    operator = lut_matmat(codebooks)
    assert operator(x, *arguments(module), out=out) is out
    assert_exact(out, module.exact(x))
    for wrong in (torch.empty(4, 10), torch.empty(2, 4, 10, dtype=torch.float64), torch.empty(2, 4, 20)[..., ::2]):
        with pytest.raises(ValueError, match="out "):
            operator(x, *arguments(module), out=wrong)
    # Its own input's memory.
    square = AqlmProduct(codebooks, 3, 24, bias=True)
    want = square.exact(x)
    assert_exact(operator(x, *arguments(square), out=x), want)


WRONG: list[tuple[str, Callable[[list[torch.Tensor]], object], str]] = [
    (
        "input too wide",
        lambda a: a.__setitem__(0, torch.randn(2, 32)),
        r"input has shape \[2, 32\], not \[\.\.\., 24\]",
    ),
    ("input of no dimension", lambda a: a.__setitem__(0, torch.tensor(1.0)), r"input has shape \[\]"),
    ("input of 16 bits", lambda a: a.__setitem__(0, a[0].half()), r"input is torch\.float16, not torch\.float32"),
    (
        "codes as in a checkpoint",
        lambda a: a.__setitem__(1, a[1].transpose(0, 1).contiguous()),
        r"shape \[3, 1, 1, 1\]|shape \[10",
    ),
    (
        "codes of one dimension",
        lambda a: a.__setitem__(1, a[1].flatten()),
        r"codes has shape \[60\], not \[in / 8, out, ",
    ),
    (
        "three codebooks",
        lambda a: a.__setitem__(1, a[1].repeat(1, 1, 2)[..., :3].contiguous()),
        r"codes has shape \[3, 10, 3\]",
    ),
    (
        "codes as unsigned bytes",
        lambda a: a.__setitem__(1, a[1].view(torch.uint8)),
        r"codes is torch\.uint8, not torch\.int8",
    ),
    ("codes of 16 bits", lambda a: a.__setitem__(1, a[1].short()), r"codes is torch\.int16, not torch\.int8"),
    (
        "codes that are a view",
        lambda a: a.__setitem__(1, a[1].transpose(0, 1).contiguous().transpose(0, 1)),
        "codes is not contiguous",
    ),
    (
        "65536 entries",
        lambda a: a.__setitem__(2, torch.randn(2, 65536, 1, 8)),
        r"codebooks has shape \[2, 65536, 1, 8\], not \[2, 256, 1, 8\]",
    ),
    ("groups of 16", lambda a: a.__setitem__(2, torch.randn(2, 256, 1, 16)), r"codebooks has shape"),
    ("two outputs a code", lambda a: a.__setitem__(2, torch.randn(2, 256, 2, 8)), r"codebooks has shape"),
    ("codebooks of 16 bits", lambda a: a.__setitem__(2, a[2].half()), r"codebooks is torch\.float16"),
    (
        "scales without their ones",
        lambda a: a.__setitem__(3, a[3].flatten()),
        r"scales has shape \[10\], not \[10, 1, 1, 1\]",
    ),
    ("scales that are a view", lambda a: a.__setitem__(3, torch.ones(20, 1, 1, 1)[::2]), "scales is not contiguous"),
    ("bias too long", lambda a: a.__setitem__(4, torch.randn(11)), r"bias has shape \[11\], not \[10\]"),
    ("bias of 64 bits", lambda a: a.__setitem__(4, a[4].double()), r"bias is torch\.float64"),
]


@pytest.mark.parametrize(("change", "said"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_what_does_not_fit_is_told(product: Product, change: Callable[[list[torch.Tensor]], object], said: str) -> None:
    module = AqlmProduct(2, 3, 10, bias=True)
    given = [torch.randn(2, 24), module.codes, module.codebooks, module.scales, module.bias]
    product(*given)
    change(given)  # type: ignore[arg-type]
    if product is compiled_matmat:
        with pytest.raises(ValueError, match=said):
            lut_matmat(2)(*given)
    else:
        with pytest.raises(ValueError, match=said):
            product(*given)


def test_the_operator_for_another_number_of_codebooks() -> None:
    module = AqlmProduct(2, 3, 10, bias=True)
    for mode in (False, True):
        given = [torch.randn(2, 24), *arguments(module)]
        if mode:  # the fake kernel
            given = [torch.empty_like(tensor, device="meta") for tensor in given if tensor is not None]
        with pytest.raises(ValueError, match="codes "):
            lut_matmat(1)(*given)


@pytest.mark.parametrize("codebooks", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
def test_it_exports_as_one_node(codebooks: int, bias: bool) -> None:
    module = AqlmProduct(codebooks, 3, 10, bias=bias)
    x = torch.randn(1, 5, 24)
    exported = torch.export.export(module, (x,))
    [call] = [node for node in exported.graph.nodes if node.op == "call_function"]
    assert call.target is lut_matmat(codebooks).default  # type: ignore[attr-defined]
    assert call.meta["val"].shape == (1, 5, 10)
    assert_exact(exported.module()(x), module.exact(x))
    # The weights stay the bytes that they are.
    assert exported.state_dict["codes"].dtype == torch.int8


def test_a_number_of_tokens_that_varies_can_be_exported() -> None:
    module = AqlmProduct(2, 3, 10, bias=True)
    exported = torch.export.export(
        module, (torch.randn(1, 5, 24),), dynamic_shapes=({1: torch.export.Dim("tokens", max=64)},)
    )
    x = torch.randn(1, 17, 24)
    assert_exact(exported.module()(x), module.exact(x))


@pytest.mark.parametrize("codebooks", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
def test_pytorch_finds_nothing_to_object_to(codebooks: int, bias: bool) -> None:
    assert use_compiled()
    module = AqlmProduct(codebooks, 3, 10, bias=bias)
    given = (torch.randn(2, 5, 24), *arguments(module))
    operator = lut_matmat(codebooks)
    torch.library.opcheck(operator.default, given)  # type: ignore[attr-defined]


def in_another_process(code: str, **env: str) -> list[str]:
    """What the code prints, line by line, after `x`, `module` and the means to call the operator were made."""
    before = (
        "import sys, torch; sys.path.insert(0, sys.argv[1])\n"
        "torch.manual_seed(0)\n"
        "from etcli.output.console import Console\n"
    )
    import os

    support = Path(__file__).parents[1] / "support"
    done = subprocess.run(
        [sys.executable, "-c", before + code, support],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **env},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_compiled_kernel_takes_over_in_a_worker() -> None:
    printed = in_another_process(
        """
import json
from etcli.ops import aqlm
from operator_programs import AqlmProduct
module, x = AqlmProduct(2, 3, 10, bias=True), torch.randn(4, 24)
key = lambda: torch._C._dispatch_has_kernel_for_dispatch_key("aqlm::code2x8_lut_matmat", "CPU")
print(key())
eager, out = module(x), torch.empty(4, 10)
assert torch.equal(eager, aqlm.eager_matmat(x, module.codes, module.codebooks, module.scales, module.bias))
aqlm.lut_matmat(2)(x, module.codes, module.codebooks, module.scales, module.bias, out=out)
assert torch.equal(out, eager)
torch.library.opcheck(aqlm.lut_matmat(2).default, (x, module.codes, module.codebooks, module.scales, module.bias))
print(aqlm.use_compiled(), aqlm.use_compiled(), key())
compiled = module(x)
want = module.exact(x)
print(*(float((y - want).norm() / want.norm()) < 5e-6 for y in (eager, compiled)))
""",
    )
    assert printed == ["False", "True True True", "True True"]


def test_without_a_compiler_the_eager_kernel_stays_with_one_remark(tmp_path: Path) -> None:
    printed = in_another_process(
        """
from etcli.ops import aqlm
from operator_programs import AqlmProduct
class Listening(Console):
    def note(self, text): print(text)
module, x = AqlmProduct(1, 3, 10, bias=True), torch.randn(4, 24)
before = module(x)
print(aqlm.use_compiled(Listening()), aqlm.use_compiled(Listening()))
print(torch.equal(module(x), before))
""",
        ETCLI_CACHE_DIR=str(tmp_path / "cache"),
        CXX="no-such-compiler",
    )
    remark, *rest = printed
    assert rest == ["False False", "True"]
    assert "times as long" in remark
    assert "no C++ compiler" in remark
    assert "apt-get install -y g++" in remark
    assert "go on without it" in remark


@pytest.mark.parametrize("first", ["binding", "package", "both"])
def test_whoever_registers_the_operators_first(first: str) -> None:
    """The binding alone is enough for PyTorch, and others that use the namespace are no hindrance."""
    code = """
from etcli.common.assets import asset_dir
from etcli.ops.loading import load_into_torch
from etcli.ops.torch_library import torch_library, torch_operators
from etcli.tables.operators import AQLM, read_operators
if FIRST in ("package", "both"):  # as inference_kernels/cuda_kernel.py of the aqlm package does
    torch.library.define("aqlm::code2x8_matmat", "(Tensor input, Tensor codes, Tensor codebooks, Tensor scales, Tensor bias) -> Tensor")
if FIRST in ("binding", "both"):
    library = read_operators(asset_dir("native") / AQLM)
    load_into_torch(torch_library(library), torch_operators(library))
from etcli.ops import aqlm
from operator_programs import AqlmProduct
print(aqlm.use_compiled())
module, x = AqlmProduct(2, 3, 10, bias=True), torch.randn(4, 24)
exported = torch.export.export(module, (x,))
print(torch.equal(exported.module()(x), module(x)), float((module(x) - module.exact(x)).abs().max()) < 1e-4)
"""
    assert in_another_process(code.replace("FIRST", repr(first))) == ["True", "True True"]


def test_an_operator_of_the_same_name_that_is_another_is_told() -> None:
    printed = in_another_process(
        """
torch.library.define("aqlm::code2x8_lut_matmat", "(Tensor input, Tensor codes, Tensor codebooks, Tensor scales) -> Tensor")
from etcli.common.errors import ToolError
try:
    from etcli.ops import aqlm
except ToolError as error:
    [problem] = error.problems
    print(problem.code, "Tensor? bias=None" in problem.message, bool(problem.hint), sep="\\n")
"""
    )
    assert printed == ["operators.schema", "True", "True"]
