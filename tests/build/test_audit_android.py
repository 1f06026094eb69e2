"""Stages for Android: what its loader refuses, C++ runtimes that do not fit, and a vendor's files, on ELF files made by the cross compiler.

The C library, and the C++ one where a test needs none of its content, are stand-ins: empty libraries with the names that Android has.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from etcli.build.audit import Audit, audit
from etcli.build.checking import Checked, check_stage
from etcli.common.errors import EtcliError, ExitCode
from etcli.output.console import Console
from etcli.recipe.loaded import LoadedRecipe
from etcli.tables.targets import load_targets
from etcli.toolchain.elf import read_elf

ANDROID = load_targets()["android"]
NOTE = """
__asm__(".section .note.android.ident,\\"a\\",%note\\n.balign 4\\n.long 8, 132, 1\\n.ascii \\"Android\\\\0\\"\\n.long {api}\\n"
        ".ascii \\"{ndk}\\"\\n.space {rest}\\n.space 64\\n.previous\\n");
"""
MAIN = 'int ours(); int helper(); extern "C" void _start() { ours(); }'


def compiled(path: Path, text: str, *flags: str, libraries: tuple[str, ...] = ("c",), page: int = 16384) -> None:
    """A shared library, or with `-pie` a program, of `text`; it needs exactly `libraries`, found beside it or as stand-ins."""
    command = ["aarch64-linux-gnu-g++", "-x", "c++", "-", "-x", "none", "-nostdlib", "-fPIC", "-O1", "-fno-exceptions"]
    command += ["-Wl,--no-as-needed", f"-Wl,-z,max-page-size={page}", "-Wl,--allow-shlib-undefined", "-o", str(path)]
    command += flags or ("-shared", f"-Wl,-soname,{path.name}")
    command += [f"-L{path.parent}", f"-L{path.parent.parent / 'system'}", *(f"-l{name}" for name in libraries)]
    subprocess.run(command, input=text, text=True, check=True)


def note(api: int = 26, ndk: str = "r28b") -> str:
    """What the NDK leaves in all that it links."""
    return NOTE.format(api=api, ndk=ndk, rest=64 - len(ndk))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `system/`, Android's stand-ins, and `stage/`, a sound stage of a program, a library and the C++ runtime."""
    folder = tmp_path_factory.mktemp("android")
    system, stage = folder / "system", folder / "stage"
    system.mkdir()
    stage.mkdir()
    for name in ("c", "neuralnetworks", "omp", "cutils"):
        compiled(system / f"lib{name}.so", "", libraries=())
    compiled(
        stage / "libc++_shared.so",
        f'{note()} extern "C" void __cxa_throw() {{}} extern "C" int _ZNSt6__ndk14soonE = 1;',
    )
    compiled(
        stage / "libours.so",
        f'{note()} extern int soon __asm__("_ZNSt6__ndk14soonE"); int ours() {{ return soon; }}',
        libraries=("c", "c++_shared"),
    )
    program(stage)
    return folder


def program(
    stage: Path, text: str = MAIN, *flags: str, libraries: tuple[str, ...] = ("c", "ours"), page: int = 16384
) -> None:
    kind = flags or ("-pie", "-Wl,--dynamic-linker=/system/bin/linker64", "-Wl,-rpath,$ORIGIN")
    compiled(stage / "main", note() + text, *kind, libraries=libraries, page=page)


@pytest.fixture
def stage(made: Path, tmp_path: Path) -> Path:
    """This test's own copy of the sound stage."""
    shutil.copytree(made, tmp_path / "made")
    return tmp_path / "made" / "stage"


def audited(stage: Path, **options: object) -> Audit:
    return audit(stage, ANDROID, ("main",), (), api_level=26, **options)  # type: ignore[arg-type]


def codes(found: Audit) -> list[str]:
    return sorted(problem.code for problem in found.problems)


VENDOR = "libneuronusdk_adapter.mtk.so"
SHARED = ("-shared", f"-Wl,-soname,{VENDOR}")
OPENED = {"opened": {VENDOR: "MediaTek's"}, "vendor": (VENDOR,)}


def test_a_sound_stage(stage: Path) -> None:
    found = audited(stage)
    assert (found.problems, found.warnings) == ((), ())
    assert (found.facts["main"].android_api, found.facts["main"].ndk) == (26, "r28b")
    assert found.facts["main"].kind == "ET_DYN"
    assert found.reasons["libc++_shared.so"] == "needed by libours.so"


def test_a_program_of_another_loader(stage: Path) -> None:
    program(stage, MAIN, "-pie", "-Wl,--dynamic-linker=/lib/ld-linux-aarch64.so.1", "-Wl,-rpath,$ORIGIN")
    assert codes(audited(stage)) == ["audit.interpreter"]


def test_a_program_that_is_not_position_independent(stage: Path) -> None:
    program(stage, MAIN, "-no-pie", "-Wl,--dynamic-linker=/system/bin/linker64", "-Wl,-rpath,$ORIGIN")
    assert codes(audited(stage)) == ["audit.position"]


def test_text_relocations(stage: Path) -> None:
    text = 'int ours() { return 0; } __asm__(".text\\n.balign 8\\n.quad _Z4oursv\\n");'
    compiled(
        stage / "libours.so", text, "-shared", "-Wl,-soname,libours.so", "-Wl,-z,notext", libraries=("c", "c++_shared")
    )
    assert codes(audited(stage)) == ["audit.text_relocations"]


@pytest.mark.known_failure("android-16-kb-pages")
def test_pages_of_4_kib_are_a_fault_of_ours_and_a_warning_of_a_vendors(stage: Path) -> None:
    compiled(stage / VENDOR, "int a() { return 0; }", page=4096)
    assert audited(stage, **OPENED).problems == ()
    [warning] = audited(stage, **OPENED).warnings
    assert warning.code == "audit.alignment"
    assert f"stage/{VENDOR} has a segment aligned to 4096 bytes" in warning.message
    program(stage, page=4096)
    [problem] = audited(stage, **OPENED).problems
    assert problem.code == "audit.alignment"
    assert "stage/main" in problem.message
    assert "max-page-size=16384" in (problem.hint or "")


@pytest.mark.known_failure("android-16-kb-pages")
def test_the_ndks_own_runtime_may_be_older_than_large_pages(stage: Path) -> None:
    """It is the NDK's file, linked by whichever release its makers had."""
    text = f'{note(ndk="r23b")} extern "C" void __cxa_throw() {{}} extern "C" int _ZNSt6__ndk14soonE = 1;'
    compiled(stage / "libc++_shared.so", text, page=4096)
    found = audited(stage)
    assert found.problems == ()
    [warning] = found.warnings
    assert warning.code == "audit.alignment"
    assert "take a newer NDK, or build.stl: c++_static" in (warning.hint or "")
    assert found.facts["libc++_shared.so"].ndk == "r23b"


@pytest.mark.known_failure("android-16-kb-pages")
def test_one_segment_of_many_is_enough(stage: Path) -> None:
    """A program header broken by hand: the others stay as they were."""
    data = bytearray((stage / "libours.so").read_bytes())
    start, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    loads = [start + i * size for i in range(count) if struct.unpack_from("<I", data, start + i * size)[0] == 1]
    assert len(loads) > 1
    struct.pack_into("<Q", data, loads[-1] + 48, 4096)
    (stage / "libours.so").write_bytes(data)
    assert codes(audited(stage)) == ["audit.alignment"]


def test_a_vendors_run_path_and_name_are_warnings(stage: Path) -> None:
    compiled(stage / VENDOR, "int a() { return 0; }", "-shared", "-Wl,-rpath,/build/vendor", "-Wl,-soname,libother.so")
    found = audited(stage, **OPENED)
    assert found.problems == ()
    assert sorted(warning.code for warning in found.warnings) == ["audit.run_path", "audit.soname"]


def test_a_vendors_file_for_another_machine(stage: Path) -> None:
    subprocess.run(["g++", "-shared", "-o", stage / VENDOR, "-x", "c++", "/dev/null", "-nostdlib"], check=True)
    assert "audit.machine" in codes(audited(stage, **OPENED))


def test_what_a_vendors_file_needs_has_to_be_somewhere(stage: Path) -> None:
    compiled(stage / VENDOR, "int a() { return 0; }", libraries=("c", "cutils"))
    [problem] = audited(stage, **OPENED).problems
    assert problem.code == "audit.missing_library"
    assert f"libcutils.so is neither in stage/ nor on every android device; needed by {VENDOR}" in problem.message


@pytest.mark.known_failure("android-libcxx-of-another-ndk")
def test_a_vendors_other_libcxx_is_a_warning(stage: Path) -> None:
    compiled(stage / VENDOR, 'extern int x __asm__("_ZTVNSt6__ndk119basic_ostringstreamE"); int a() { return x; }')
    found = audited(stage, **OPENED)
    assert found.problems == ()
    assert [warning.code for warning in found.warnings] == ["audit.libcxx"]


def test_opened_libraries_are_not_taken_for_dropped_ones(stage: Path) -> None:
    compiled(stage / VENDOR, "int a() { return 0; }")
    assert codes(audited(stage)) == ["audit.never_loaded"]
    found = audited(stage, **OPENED)
    assert found.problems == ()
    assert found.reasons[VENDOR] == "MediaTek's"
    (stage / VENDOR).unlink()
    assert codes(audited(stage, **OPENED)) == ["audit.missing_library"]


@pytest.mark.known_failure("openmp-library-not-found")
def test_the_ndks_shared_openmp(stage: Path) -> None:
    program(stage, libraries=("c", "ours", "omp"))
    [problem] = audited(stage).problems
    assert problem.code == "audit.openmp"
    assert "stage/main needs libomp.so" in problem.message


@pytest.mark.known_failure("android-libcxx-of-another-ndk")
@pytest.mark.parametrize(
    ("symbol", "whose"),
    [("_ZTVNSt6__ndk119basic_ostringstreamE", "the NDK's libc++"), ("_ZNSt3__14coutE", "a libc++ other")],
)
def test_parts_of_another_libcxx(stage: Path, symbol: str, whose: str) -> None:
    compiled(
        stage / "libours.so",
        f'{note()} extern int x __asm__("{symbol}"); int ours() {{ return x; }}',
        libraries=("c", "c++_shared"),
    )
    [problem] = audited(stage).problems
    assert problem.code == "audit.libcxx"
    assert whose in problem.message
    assert symbol in problem.message


@pytest.mark.known_failure("android-libcxx-of-another-ndk")
def test_files_of_two_ndks(stage: Path) -> None:
    compiled(stage / "libours.so", f"{note(ndk='r26d')} int ours() {{ return 0; }}", libraries=("c", "c++_shared"))
    [problem] = audited(stage).problems
    assert problem.code == "audit.ndk_mixed"
    assert "r26d: libours.so; r28b: main" in problem.message


def test_a_vendor_may_have_had_another_ndk(stage: Path) -> None:
    compiled(stage / VENDOR, f"{note(ndk='r21e')} int a() {{ return 0; }}")
    assert audited(stage, **OPENED).problems == ()


def test_a_library_without_the_cxx_symbols_that_another_wants(stage: Path) -> None:
    compiled(
        stage / "libours.so", f"{note()} int theirs(); int ours() {{ return theirs(); }}", libraries=("c", "c++_shared")
    )
    [problem] = audited(stage).problems
    assert problem.code == "audit.undefined_symbol"
    assert "stage/libours.so" in problem.message
    assert "_Z6theirsv" in problem.message
    # A program's own exports count as well.
    program(stage, MAIN + ' __attribute__((visibility("default"))) int theirs() { return 1; }')
    assert audited(stage).problems == ()


def test_libraries_and_files_of_a_later_android(stage: Path) -> None:
    program(stage, libraries=("c", "ours", "neuralnetworks"))
    [problem] = audited(stage).problems
    assert problem.code == "audit.api_level"
    assert "libneuralnetworks.so is on devices from Android API level 27, the build is for 26" in problem.message
    assert audit(stage, ANDROID, ("main",), (), api_level=27).problems == ()
    compiled(stage / "libours.so", f"{note(api=28)} int ours() {{ return 0; }}", libraries=("c", "c++_shared"))
    assert {problem.code for problem in audited(stage).problems} == {"audit.api_level"}
    assert "stage/libours.so is built for Android API level 28" in audited(stage).problems[0].message


@pytest.mark.known_failure("android-two-cxx-runtimes")
def test_two_cxx_runtimes_in_a_process(stage: Path) -> None:
    """The texts stand for libc++abi, which has them in it."""
    mark = '__attribute__((used)) static const char text[] = "terminating due to %s exception of type %s: %s";'
    compiled(stage / "libours.so", f"{note()} {mark} int ours() {{ return 0; }}", libraries=("c", "c++_shared"))
    assert audited(stage).problems == ()
    program(stage, MAIN + mark)
    [problem] = audited(stage).problems
    assert problem.code == "audit.cxx_runtime"
    assert "main would start with 2 C++ runtimes: inside libours.so, main" in problem.message
    assert "c++_shared" in (problem.hint or "")


@pytest.mark.known_failure("android-cxx-runtime-exported")
def test_a_library_that_offers_its_own_cxx_runtime(stage: Path) -> None:
    text = (
        f'{note()} extern "C" __attribute__((visibility("default"))) void __cxa_throw() {{}} int ours() {{ return 0; }}'
    )
    compiled(stage / "libours.so", text, libraries=("c", "c++_shared"))
    [problem] = audited(stage).problems
    assert problem.code == "audit.cxx_exported"
    assert "--exclude-libs,ALL" in (problem.hint or "")


@pytest.mark.known_failure("operators-private-registry")
def test_a_hidden_registry_beside_another(stage: Path) -> None:
    """The text stands for ExecuTorch's registry, which has it in it; the function for what registers."""
    mark = '__attribute__((used)) static const char text[] = "Re-registering %s, from %s";'
    register = " namespace executorch { namespace runtime { VISIBLE int register_backend(int x) { return x; } } }"
    hidden = register.replace("VISIBLE", '__attribute__((visibility("hidden")))')
    compiled(stage / "libours.so", f"{note()}{mark}{hidden} int ours() {{ return 0; }}", libraries=("c", "c++_shared"))
    assert audited(stage).problems == ()
    shown = MAIN + mark + register.replace("VISIBLE", '__attribute__((visibility("default")))')
    program(stage, shown, "-pie", "-Wl,--dynamic-linker=/system/bin/linker64", "-rdynamic")
    [problem] = audited(stage).problems
    assert problem.code == "audit.registry_twice"
    assert (
        "main would start with 2 registries of ExecuTorch: inside libours.so, main; that of libours.so is hidden"
        in problem.message
    )
    visible = register.replace("VISIBLE", "")
    compiled(stage / "libours.so", f"{note()}{mark}{visible} int ours() {{ return 0; }}", libraries=("c", "c++_shared"))
    assert audited(stage).problems == ()


@pytest.mark.known_failure("android-host-path-in-binary")
def test_a_library_needed_by_its_path(stage: Path) -> None:
    nameless = stage.parent / "system" / "libnameless.so"
    compiled(nameless, "int theirs() { return 0; }", "-shared", libraries=())
    program(stage, MAIN, "-pie", "-Wl,--dynamic-linker=/system/bin/linker64", str(nameless))
    [problem] = audited(stage).problems
    assert problem.code == "audit.host_path"
    assert f"stage/main needs {nameless}" in problem.message


@pytest.mark.known_failure("android-host-path-in-binary")
def test_folders_of_this_machine_in_what_was_compiled_here(stage: Path) -> None:
    program(stage, MAIN + ' __attribute__((used)) const char* const where = "/home/someone/native/runner/files.cpp";')
    assert audited(stage, folders={"the build": Path("/home/someone/build")}).problems == ()
    [problem] = audited(stage, folders={"the native sources": Path("/home/someone/native")}).problems
    assert problem.code == "audit.host_path"
    assert "stage/main holds the path of the native sources on this machine (/home/someone/native)" in problem.message


@pytest.mark.known_failure("android-library-not-pushed")
def test_the_cxx_runtime_is_no_library_of_androids(stage: Path) -> None:
    (stage / "libc++_shared.so").unlink()
    [problem] = audited(stage).problems
    assert problem.code == "audit.missing_library"
    assert "libc++_shared.so" in problem.message


def test_damaged_copies(stage: Path) -> None:
    whole = (stage / "libours.so").read_bytes()
    for broken in (whole[:200], whole[:64] + b"\xff" * 600 + whole[664:], whole[:18] + b"\x03\x00" + whole[20:]):
        (stage / "libours.so").write_bytes(broken)
        assert audited(stage).problems


def test_a_note_that_is_cut_short_is_none(stage: Path) -> None:
    text = '__asm__(".section .note.android.ident,\\"a\\",%note\\n.balign 4\\n.long 8, 4, 1\\n.ascii \\"Android\\\\0\\"\\n.long 26\\n.previous\\n");'
    compiled(stage / "libours.so", text)
    facts = read_elf(stage / "libours.so")
    assert (facts.android_api, facts.ndk) == (26, None)


def test_libraries_for_apps_are_held_against_the_same_as_programs(stage: Path) -> None:
    found = audit(stage, ANDROID, (), (), apps=("libours.so",), api_level=26)
    assert [problem.code for problem in found.problems] == ["audit.never_loaded"]  # main, which the app does not load
    (stage / "main").unlink()
    found = audit(stage, ANDROID, (), (), apps=("libours.so", "libgone.so"), api_level=26)
    assert [problem.code for problem in found.problems] == ["audit.missing_program"]
    assert found.reasons["libours.so"] == "library for apps"


def test_a_vendors_library_goes_into_the_stage_and_is_warned_of(
    stage: Path, tmp_path: Path, make_recipe: Callable[..., LoadedRecipe]
) -> None:
    compiled(tmp_path / VENDOR, "int a() { return 0; }", *SHARED, f"-L{stage.parent / 'system'}", page=4096)
    console = Console(verbosity=-1)
    build = Checked(
        make_recipe(),
        ANDROID,
        tmp_path / "build",
        {},
        ("main",),
        (),
        (),
        tmp_path,
        vendor=(tmp_path / VENDOR,),
        api_level=26,
    )
    seen = check_stage(build, stage, {}, console)
    assert seen.reasons[VENDOR] == "MediaTek's, opened while a program runs"
    assert (stage / VENDOR).read_bytes() == (tmp_path / VENDOR).read_bytes()
    assert [warning.code for warning in console.warnings] == ["audit.alignment"]
    compiled(
        tmp_path / VENDOR, "int a() { return 0; }", *SHARED, f"-L{stage.parent / 'system'}", libraries=("c", "cutils")
    )
    with pytest.raises(EtcliError) as caught:
        check_stage(build, stage, {}, console)
    [problem] = caught.value.problems
    assert (problem.code, problem.exit_code) == ("audit.missing_library", ExitCode.BUILD)
