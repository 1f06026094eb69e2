"""`etcli inspect A B`: what differs and nothing else, told in the words of the thing."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
import samples
from click.testing import CliRunner

from etcli.cli.main import cli
from etcli.common.errors import UsageError
from etcli.common.workspace import Workspace
from etcli.manifests.bundle import BundleManifest, Method, TensorSpec
from etcli.pte.facts import (
    DelegateFacts,
    MethodFacts,
    NamedDataFacts,
    OperatorFacts,
    ProgramFacts,
    SegmentFacts,
    ValueFacts,
)
from etcli.verbs.bundle_differences import bundle_differences
from etcli.verbs.differences import inspect_both
from etcli.verbs.program_differences import program_differences


def tensor(*shape: int, dtype: str = "float32") -> ValueFacts:
    return ValueFacts("Tensor", dtype, shape, tuple(range(len(shape))))


METHOD = MethodFacts(
    name="forward",
    inputs=(tensor(1, 4), tensor(2, dtype="int64")),
    outputs=(tensor(1, 4),),
    operators=(OperatorFacts("aten::add.out", 2),),
    delegates=(DelegateFacts("XnnpackBackend", 1000, 1, ()),),
    planned_buffers=(64,),
    instructions=4,
)


def program(path, content: bytes = b"p" * 32 + b"w" * 16, method: MethodFacts = METHOD) -> ProgramFacts:
    path.write_bytes(content)
    return ProgramFacts(
        path=path,
        size=len(content),
        identifier="ET12",
        version=0,
        program_size=32,
        methods=(method,),
        segments=(SegmentFacts(32, len(content) - 32),),
        named_data=(NamedDataFacts("weights", 0, len(content) - 32),),
    )


def told(a: ProgramFacts, b: ProgramFacts) -> list[tuple[str, str, str]]:
    return [(item.what, item.a, item.b) for item in program_differences(a, b)]


def test_equal_programs_do_not_differ(tmp_path):
    assert told(program(tmp_path / "a"), program(tmp_path / "b")) == []


def test_other_weights_in_the_same_network_are_told_by_their_segment(tmp_path):
    (what, first, second), *rest = told(program(tmp_path / "a"), program(tmp_path / "b", b"p" * 32 + b"x" * 16))
    assert rest == []
    assert what == "bytes of segment 0 (weights)"
    assert first != second


def test_a_changed_method_is_told_tensor_by_tensor(tmp_path):
    changed = replace(
        METHOD,
        inputs=(tensor(1, 8), METHOD.inputs[1]),
        operators=(OperatorFacts("aten::add.out", 3), OperatorFacts("aten::sin.out", 1)),
        delegates=(),
    )
    found = told(program(tmp_path / "a"), program(tmp_path / "b", method=changed))
    assert found == [
        ("method forward: input 0", "float32 1 x 4, by the caller", "float32 1 x 8, by the caller"),
        ("method forward: delegate 0", "XnnpackBackend, 1.0 kB, called 1 time", "-"),
        ("method forward: operator aten::add.out", "called 2 times", "called 3 times"),
        ("method forward: operator aten::sin.out", "-", "called 1 time"),
    ]


def test_methods_without_a_common_name_are_paired_by_order(tmp_path):
    other = replace(METHOD, name="chunk_1", outputs=(tensor(1, 9),))
    found = told(program(tmp_path / "a"), program(tmp_path / "b", method=other))
    assert found[0] == ("method 1", "forward", "chunk_1")
    assert found[1][0] == "method 1: output 0"
    assert len(found) == 2


def test_a_method_that_only_one_has(tmp_path):
    one = program(tmp_path / "a")
    two = replace(program(tmp_path / "b"), methods=(METHOD, replace(METHOD, name="second")))
    assert told(one, two) == [("method second", "-", "there")]


def test_bundles_name_the_files_whose_content_differs(tmp_path):
    folders = []
    for number, weights in enumerate((b"weights" * 1000, b"WEIGHTS" * 1000)):
        workspace = Workspace(tmp_path / str(number), "tiny")
        samples.make_bundle(samples.make_recipe(tmp_path), workspace, weights=weights)
        folders.append(workspace.bundle)
    found = inspect_both(*folders)
    assert (found.kind, found.same) == ("bundle", False)
    (content,) = found.differences
    assert content.what == "chunks 0-1: sha256"
    for told, folder in ((content.a, folders[0]), (content.b, folders[1])):
        manifest = json.loads((folder / "manifest.json").read_text())
        assert told == ", ".join(chunk["files"][0]["sha256"][:12] for chunk in manifest["chunks"])
    done = CliRunner().invoke(cli, ["inspect", *map(str, folders), "--json"])
    result = json.loads(done.stdout)["result"]
    assert (result["same"], len(result["differences"])) == (False, 1)
    assert inspect_both(folders[0], folders[0]).same


def test_bundles_of_two_precisions_are_paired_by_chunk_and_shape_and_not_by_name(tmp_path):
    workspace = Workspace(tmp_path / "work", "tiny")
    one = samples.make_bundle(samples.make_recipe(tmp_path), workspace, chunks=3)

    def told(name: str, dtype: str, extra: bytes, **changed: object) -> BundleManifest:
        def method(old: Method) -> Method:
            keys = tuple(
                TensorSpec(name=f"key_{index}", dtype=dtype, shape=(1, 2, old.shape.cache, 4)) for index in range(5)
            )
            return old.model_copy(update={"name": f"{name}_{old.name}", "inputs": keys})

        chunks = [
            chunk.model_copy(
                update={
                    "files": tuple(
                        file.model_copy(
                            update={
                                "path": f"chunks/{name}_{chunk.index}.pte",
                                "size": file.size + len(extra),
                                "sha256": hashlib.sha256(extra).hexdigest(),
                                "methods": tuple(map(method, file.methods)),
                            }
                        )
                        for file in chunk.files
                    )
                }
            )
            for chunk in one.chunks
        ]
        return one.model_copy(update={"name": name, "chunks": tuple(chunks), **changed})

    a, b = told("plain", "float32", b""), told("small", "float16", b"more", precision="8da4w")
    found = [(item.what, item.a, item.b) for item in bundle_differences(a, b, {"precision": "x"}, {"precision": "y"})]
    size = sum(file.size for file in a.files())
    shape = f"1 x 2 x {samples.CACHE} x 4"
    assert found == [
        ("size", f"{size:,} B", f"{size + 12:,} B"),
        ("precision", "x", "y"),
        ("chunks 0-2: size", "7,001 B", "7,005 B"),
        (
            f"chunks 0-2: 5 inputs (key_0 to key_4) (4t{samples.CACHE}c, 1t{samples.CACHE}c)",
            f"float32 {shape}",
            f"float16 {shape}",
        ),
    ]
    fewer = a.model_copy(update={"chunks": a.chunks[:1]})
    assert ("chunks 1-2", "there", "-") in [(i.what, i.a, i.b) for i in bundle_differences(a, fewer, {}, {})]


def test_names_that_came_and_went_are_told_one_by_one(tmp_path):
    folders = []
    for number, operators in enumerate((("aten::add.out", "aten::mul.out"), ("aten::add.out", "mine::op.out"))):
        workspace = Workspace(tmp_path / str(number), "tiny")
        samples.make_build(samples.make_recipe(tmp_path), workspace, operators=operators)
        folders.append(workspace.build("host"))
    assert [(item.what, item.a, item.b) for item in inspect_both(*folders).differences] == [
        ("operators[aten::mul.out]", "there", "-"),
        ("operators[mine::op.out]", "-", "there"),
    ]


def test_two_of_different_kinds_are_refused(tmp_path):
    workspace = Workspace(tmp_path, "tiny")
    loaded = samples.make_recipe(tmp_path)
    samples.make_bundle(loaded, workspace)
    samples.make_build(loaded, workspace)
    with pytest.raises(UsageError) as caught:
        inspect_both(workspace.bundle, workspace.build("host"))
    assert caught.value.problems[0].code == "inspect.kinds"
    assert str(caught.value).endswith("is a build")


def test_build_goes_with_one_path(tmp_path):
    done = CliRunner().invoke(cli, ["inspect", "a", "b", "--build", str(tmp_path)])
    assert done.exit_code == 2
    assert "--build goes with one PATH" in done.output


def test_checkpoints_differ_in_numbers_and_types(random_llama):
    one, two = random_llama(tokenizer=True), random_llama(tokenizer=True, dtype="bfloat16", rope_theta=1e6)
    found = {item.what: (item.a, item.b) for item in inspect_both(one, two).differences}
    tensors = found["dtypes.F32"][0]
    assert found["dtypes.F32"] == (tensors, "-")
    assert found["dtypes.BF16"] == ("-", tensors)
    assert found["config.rope.theta"] == ("10000.0", "1000000.0")
    assert int(found["stored_bytes"][0]) == 2 * int(found["stored_bytes"][1])
    assert set(found) == {"dtypes.F32", "dtypes.BF16", "config.rope.theta", "stored_bytes"}
