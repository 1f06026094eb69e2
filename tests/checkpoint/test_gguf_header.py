"""GGUF headers: the same as the gguf package's reader gives, and no damaged file believed."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etcli.common.errors import CheckpointError
from etcli.common.gguf_file import read_gguf_header


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A GGUF file with every kind of value and three tensors."""
    path = tmp_path / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_string("a.string", "grün")
    writer.add_bool("a.bool", True)
    writer.add_int8("a.int8", -5)
    writer.add_uint64("a.uint64", 1 << 40)
    writer.add_float64("a.float64", 0.1)
    writer.add_array("a.strings", ["x", "", "yz"])
    writer.add_array("a.floats", [1.5, 2.5])
    writer.add_tensor("one", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("two", np.arange(4, dtype=np.float16))
    quantised = gguf.quantize(np.ones((3, 64), np.float32), gguf.GGMLQuantizationType.Q4_1)
    writer.add_tensor("three", quantised, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def assert_same_as_package(path: Path, reader: gguf.GGUFReader) -> None:
    header = read_gguf_header(path)
    theirs = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert list(header.metadata) == list(theirs)
    for name, field in theirs.items():
        if len(field.data) < 1000:
            assert header.metadata[name] == field.contents(), name
        else:
            assert len(header.metadata[name]) == len(field.data), name
            for index in (0, 7, -1):
                assert header.metadata[name][index] == field.contents(index), name
    assert list(header.tensors) == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        ours = header.tensors[tensor.name]
        assert ours.shape == tuple(int(size) for size in reversed(tensor.shape))
        assert (ours.offset, ours.nbytes, ours.type) == (tensor.data_offset, tensor.n_bytes, tensor.tensor_type)


def test_default_model(default_model: Path, package_reader: gguf.GGUFReader) -> None:
    assert_same_as_package(default_model, package_reader)


def test_every_kind_of_value(small: Path) -> None:
    assert_same_as_package(small, gguf.GGUFReader(small))
    assert read_gguf_header(small).metadata["a.string"] == "grün"


def test_a_file_cut_anywhere_in_its_header_is_refused(small: Path, tmp_path: Path) -> None:
    content = small.read_bytes()
    end = min(tensor.offset for tensor in read_gguf_header(small).tensors.values())
    cut = tmp_path / "cut.gguf"
    # The padding before the first tensor may be gone without a loss to the header.
    for length in range(end - 32):
        cut.write_bytes(content[:length])
        with pytest.raises(CheckpointError) as caught:
            read_gguf_header(cut)
        assert caught.value.problems[0].code == "checkpoint.gguf"


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (b"GGML" + bytes(20), "letters GGUF"),
        (struct.pack("<4sIQQ", b"GGUF", 1, 0, 0), "version is 1"),
        (struct.pack(">4sIQQ", b"GGUF", 3, 0, 0), "big-endian"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 1 << 62, 0), "claims"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 1 << 62), "claims"),
        (struct.pack("<4sIQQQ1sIIQ", b"GGUF", 3, 0, 1, 1, b"k", 9, 0, 1 << 63), "ends within"),
        (struct.pack("<4sIQQQ1sIIQ", b"GGUF", 3, 0, 1, 1, b"k", 9, 8, 1 << 60), "ends within"),
        (struct.pack("<4sIQQQ1sIIQ", b"GGUF", 3, 0, 1, 1, b"k", 9, 9, 1 << 60), "array of the type 9"),
        (struct.pack("<4sIQQQ1sI", b"GGUF", 3, 0, 1, 1, b"k", 99), "unknown type 99"),
        (struct.pack("<4sIQQQ600s", b"GGUF", 3, 0, 1, 600, b"k" * 600), "a name of 600 characters"),
        (struct.pack("<4sIQQQ600s", b"GGUF", 3, 1, 0, 600, b"t" * 600), "a name of 600 characters"),
        (struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, 1 << 63), "ends within"),
        (struct.pack("<4sIQQQ1sI", b"GGUF", 3, 1, 0, 1, b"t", 9), "9 dimensions"),
        (struct.pack("<4sIQQQ1sIQIQ", b"GGUF", 3, 1, 0, 1, b"t", 1, 4, 77, 0), "type 77"),
        (struct.pack("<4sIQQQ1sIQIQ", b"GGUF", 3, 1, 0, 1, b"t", 1, 33, 3, 0), "multiple of 32"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_headers_that_lie(tmp_path: Path, header: bytes, why: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(header.ljust(24, b"\0"))
    with pytest.raises(CheckpointError, match=why):
        read_gguf_header(path)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_bytes_are_read_or_refused(small: Path, data: st.DataObject) -> None:
    content = bytearray(small.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    changed = small.with_name("changed.gguf")
    changed.write_bytes(content)
    try:
        header = read_gguf_header(changed)
    except CheckpointError:
        return
    assert all(tensor.nbytes >= 0 for tensor in header.tensors.values())
