from __future__ import annotations

import importlib.util
import re
import signal
from pathlib import Path

import pytest

from etcli.tables.known_errors import explain_code, explain_runner_code, explain_status, explain_text, load


def test_codes_are_those_of_the_installed_executorch():
    spec = importlib.util.find_spec("executorch")
    assert spec is not None
    assert spec.submodule_search_locations
    header = Path(next(iter(spec.submodule_search_locations))) / "include/executorch/runtime/core/error.h"
    upstream = {
        name: int(number, 16) for name, number in re.findall(r"^\s*(\w+) = (0x[0-9a-fA-F]+),", header.read_text(), re.M)
    }
    del upstream["Ok"]
    assert {row.name: row.code for row in load().codes} == upstream


FORMS = (
    "ExecuTorch error {name} 0x{code:02x} (why)",
    "Failed to load method forward, error: 0x:{code:x}",
    "method->execute() failed with error 0x{code:02X}",
    "Execution of method forward failed with status 0x{code:x}",
    "[Executorch Error 0x{code:x}] Something went wrong: forward",
    "Error {code} (0x{code:02x})",
    "forward failed (0x{code:x})",
    "Load failed: {code}",
    "ExecuTorch error code {code}",
    "org.pytorch.executorch error: code={code}",
    "return Error::{name};",
)


@pytest.mark.parametrize("form", FORMS)
def test_every_code_is_known_in_every_form_in_which_it_is_printed(form):
    for row in load().codes:
        text = form.format(code=row.code, name=row.name)
        assert explain_text(f"E executorch:x.cpp:1] {text}\n") == [explain_code(row.code)], text


@pytest.mark.parametrize(
    "text",
    [
        "exit code 20",
        "error 20 of 34",
        "status: 32",
        "Error::Ok",
        "executorch 1.5.1: loaded in 20 ms",
        "executorch error codes are listed there",
        "0x14",
        "load 34 failed",
    ],
)
def test_other_numbers_are_no_codes(text):
    assert explain_text(text) == []


def test_codes_of_the_own_runner_are_those_of_the_protocol_page():
    page = (Path(__file__).parents[2] / "docs/runner-protocol.md").read_text()
    line = next(line for line in page.splitlines() if line.startswith("| `error` |"))
    assert {row.code for row in load().runner} == set(re.findall(r"`(runner\.\w+)`", line))
    assert explain_runner_code("runner.file")
    assert explain_runner_code("runner.else") is None


def test_signals_are_those_of_the_system():
    for row in load().statuses:
        if row.signal is not None:
            assert row.status == 128 + getattr(signal, row.signal)


@pytest.mark.parametrize("status", [126, 127, 129, 130, 132, 133, 134, 135, 136, 137, 139, 141, 143, 159])
def test_statuses_that_users_meet(status):
    assert explain_status(status)


def test_a_signal_as_subprocess_gives_it():
    assert explain_status(-9) == explain_status(137)
    assert explain_status(3) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Load failed: 34", "AccessFailed"),
        ("Load failed: 20", "OperatorMissing"),
        ("ExecuTorch error DelegateInvalidCompatibility 0x30 (x)", "another SoC"),
        ("Failed to create MmapDataLoader from file a.pte, error: 0x:22", "AccessFailed"),
        ("Backend XnnpackBackend is not registered.", "XnnpackBackend"),
        ("kernel 'llama::update_cache.out' not found.", "llama::update_cache.out"),
        ("Kernel registration failed with error 22, Re-registering aten::sym_size.int, from x", "aten::sym_size.int"),
        ("adb: error: failed to copy: remote write failed: No space left on device", "etcli clean --on-device"),
        (
            'CANNOT LINK EXECUTABLE "./r": library "libc++_shared.so" not found: needed by main executable',
            "libc++_shared.so",
        ),
        (
            'CANNOT LINK EXECUTABLE "./r": cannot locate symbol "_ZTVNSt6__ndk119basic_ostringstreamIcNS_11char_traitsIcEENS_9allocatorIcEEEE" '
            'referenced by "/data/local/tmp/r/libexecutorch.so"...',
            "releases of the NDK are mixed",
        ),
        (
            'CANNOT LINK EXECUTABLE "r": cannot locate symbol "AHardwareBuffer_allocate" referenced by "r"',
            "AHardwareBuffer_allocate",
        ),
        (
            "./r: error while loading shared libraries: libx.so.1: cannot open shared object file: No such file",
            "libx.so.1",
        ),
        ("./r: /lib/libc.so.6: version `GLIBC_2.38' not found (required by ./r)", "GLIBC_2.38"),
        ("./r: error while loading shared libraries: /d/libx.so: invalid ELF header", "/d/libx.so is no whole library"),
        ("./r: error while loading shared libraries: /d/libx.so.1: file too short", "/d/libx.so.1 is no whole library"),
        ('CANNOT LINK EXECUTABLE "r": "/d/libx.so" has bad ELF magic: 00000000', "/d/libx.so is no whole library"),
        (
            'CANNOT LINK EXECUTABLE "r": "/d/libx.so" is for EM_X86_64 (62) instead of EM_AARCH64 (183)',
            "Build /d/libx.so",
        ),
        ('CANNOT LINK EXECUTABLE "r": "/d/libx.so" is 32-bit instead of 64-bit', "Build /d/libx.so"),
        ("There are 3 instructions don't have corresponding operator registered. See logs", "marks those"),
        ("cannot open bundle/chunks/c_0.pte: No such file or directory", "bundle/chunks/c_0.pte is missing"),
        ("cannot open bundle/e.bin: Permission denied", "etcli deploy"),
        ("Illegal instruction", "-march"),
        ("/system/bin/sh: ./r: can't execute: Permission denied", "/sdcard"),
        ("r[1]: syntax error: unexpected '('", "ABI"),
        (
            "qemu-aarch64-static: Could not open '/system/bin/linker64': No such file or directory",
            "/system/bin/linker64",
        ),
        ("Program identifier 'ET11' != expected 'ET12'", "another release"),
        ("No method named 'kv_forward' in program", "kv_forward"),
        ("/usr/bin/ld: undefined reference to `foo::bar'", "foo::bar"),
        ("Text file busy", "still running"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "memory ran out"),
        ('dlopen failed: library "libomp.so" not found', "openmp: static"),
        ("error: more than one device/emulator", "ANDROID_SERIAL"),
        ('dlopen failed: library "libneuron_adapter.so" not found', "SoC or OS build"),
        ("libneuronusdk_adapter.mtk.so: cannot open shared object file: No such file or directory", "SoC or OS build"),
        ("E NeuronBackend: Failed to restore model from compiled network", "compiled for another SoC"),
        ("method 'a' on the NPU: NeuronCompilation_finish failed with NEURON_BAD_DATA (4)", "etcli deploy --verify"),
        ("ld.lld: error: undefined symbol: BufferAllocator::GetInstance()", "before 0.7"),
        ("/usr/bin/ld: backend.cpp: undefined reference to `neuron::BufferAllocator::Find(void*)'", "before 0.7"),
    ],
)
@pytest.mark.known_failure("neuron-allocator-eras", "neuron-adapter-not-found", "neuron-wrong-soc")
def test_messages_as_programs_print_them(text, said):
    found = explain_text(f"some line before\n{text}\nsome line after")
    assert any(said.lower() in line.lower() for line in found), found


@pytest.mark.parametrize("text", ["", "all is well", "exit status 34", "error: 3 errors", "error 20 of 100", "0x14"])
def test_nothing_is_made_up(text):
    assert explain_text(text) == []


def test_one_cause_is_said_once():
    assert len(explain_text("Load failed: 34\nLoad failed: 34\n")) == 1


def test_control_characters_of_a_device_do_not_get_through():
    (found,) = explain_text('CANNOT LINK EXECUTABLE "r": library "lib\x1b[31mx.so" not found')
    assert "\x1b" not in found
    assert "lib?[31mx.so" in found


def test_unknown_code():
    assert explain_code(0x77) is None


def test_ids_are_unique():
    ids = [row.id for row in load().messages]
    assert len(set(ids)) == len(ids)
