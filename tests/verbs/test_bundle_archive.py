"""Bundles packed, unpacked and verified, hostile archives included."""

import stat
import zipfile

import pytest
import samples

from etcli.common.errors import EtcliError
from etcli.common.workspace import Workspace
from etcli.output.console import Console
from etcli.verbs.archive import pack, unpack, verify

QUIET = Console(verbosity=-1)


@pytest.fixture
def bundle(tmp_path):
    loaded = samples.make_recipe(tmp_path)
    workspace = Workspace(tmp_path / ".etcli", "tiny")
    samples.make_bundle(loaded, workspace)
    return workspace.bundle


def tree(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_bundle_travels_whole(bundle, tmp_path):
    (bundle / "reference").mkdir()
    (bundle / "reference" / "chunk_0.pt2").write_bytes(b"carried along")
    packed = pack(bundle, tmp_path / "out.zip", "tiny", QUIET)
    unpacked = unpack(packed.archive, tmp_path / "there" / "bundle", QUIET)
    assert tree(unpacked.folder) == tree(bundle)
    assert not list((tmp_path / "there").glob(".*"))


def test_equal_bundles_give_equal_archives(bundle, tmp_path):
    first = pack(bundle, tmp_path / "a.zip", "tiny", QUIET).archive.read_bytes()
    for path in bundle.rglob("*"):
        path.touch()
    assert pack(bundle, tmp_path / "b.zip", "tiny", QUIET).archive.read_bytes() == first


def test_every_damage_is_reported_at_once(bundle):
    (bundle / "runner.cfg").unlink()
    embedding = bundle / "embedding_float32.bin"
    embedding.write_bytes(embedding.read_bytes()[:-1])
    chunk = bundle / "chunks" / "tiny_0.pte"
    chunk.write_bytes(b"X" + chunk.read_bytes()[1:])
    with pytest.raises(EtcliError) as caught:
        verify(bundle, QUIET)
    assert caught.value.exit == 8
    assert {problem.code for problem in caught.value.problems} == {"bundle.damaged"}
    assert {problem.file.name for problem in caught.value.problems} == {
        "runner.cfg",
        "embedding_float32.bin",
        "tiny_0.pte",
    }


def test_a_damaged_bundle_is_not_packed(bundle, tmp_path):
    (bundle / "runner.cfg").write_text("changed")
    with pytest.raises(EtcliError):
        pack(bundle, tmp_path / "out.zip", "tiny", QUIET)
    assert not (tmp_path / "out.zip").exists()


def test_a_folder_without_manifest_is_no_bundle(tmp_path):
    with pytest.raises(EtcliError) as caught:
        verify(tmp_path, QUIET)
    assert caught.value.problems[0].code == "bundle.missing"
    assert caught.value.exit == 2


def hostile(path, name, *, mode=stat.S_IFREG | 0o644, manifest=True):
    with zipfile.ZipFile(path, "w") as archive:
        if manifest:
            archive.writestr("manifest.json", "{}")
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        archive.writestr(info, "/etc/passwd")
    return path


@pytest.mark.parametrize("name", ["../outside", "/absolute", "a/../../outside", "a//b", "nul\x01name", "back\\slash"])
def test_members_that_leave_the_folder_are_refused(tmp_path, name):
    archive = hostile(tmp_path / "x.zip", name)
    with pytest.raises(EtcliError) as caught:
        unpack(archive, tmp_path / "in" / "new", QUIET)
    assert caught.value.problems[0].code == "bundle.unsafe_member"
    assert caught.value.exit == 8
    assert list((tmp_path / "in").iterdir()) == []
    assert not (tmp_path / "outside").exists()


def test_links_are_refused(tmp_path):
    archive = hostile(tmp_path / "x.zip", "link", mode=stat.S_IFLNK | 0o777)
    with pytest.raises(EtcliError) as caught:
        unpack(archive, tmp_path / "new", QUIET)
    assert caught.value.problems[0].code == "bundle.unsafe_member"


def test_a_truncated_archive_leaves_nothing(bundle, tmp_path):
    archive = pack(bundle, tmp_path / "out.zip", "tiny", QUIET).archive
    archive.write_bytes(archive.read_bytes()[:2000])
    with pytest.raises(EtcliError) as caught:
        unpack(archive, tmp_path / "in" / "new", QUIET)
    assert caught.value.exit == 2
    assert not (tmp_path / "in" / "new").exists()


def test_changed_content_is_found_by_its_hash(bundle, tmp_path):
    good = pack(bundle, tmp_path / "out.zip", "tiny", QUIET).archive
    bad = tmp_path / "bad.zip"
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(bad, "w") as target:
        for member in source.infolist():
            data = source.read(member)
            target.writestr(member.filename, b"Y" + data[1:] if member.filename.endswith("_1.pte") else data)
    with pytest.raises(EtcliError) as caught:
        unpack(bad, tmp_path / "in" / "new", QUIET)
    assert caught.value.problems[0].code == "bundle.damaged"
    assert list((tmp_path / "in").iterdir()) == []


def test_a_folder_in_use_is_left_alone(bundle, tmp_path):
    archive = pack(bundle, tmp_path / "out.zip", "tiny", QUIET).archive
    place = tmp_path / "mine"
    place.mkdir()
    (place / "keep").write_text("mine")
    with pytest.raises(EtcliError) as caught:
        unpack(archive, place, QUIET)
    assert caught.value.problems[0].code == "bundle.exists"
    assert tree(place) == {"keep": b"mine"}
