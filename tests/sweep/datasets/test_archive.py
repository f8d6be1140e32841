"""Untrusted archives: what they may not do, and what is said when they are broken."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sweep.datasets import archive
from sweep.datasets.archive import gunzip, read_files
from sweep.errors import UserError

FILES = {"top/a.txt": b"first", "top/sub/b.txt": b"second" * 100, "top/c.bin": b"other"}


def make_folder(path: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def make_tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path.with_suffix(".tar.gz"), "w:gz") as opened:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            opened.addfile(member, io.BytesIO(content))
    return path.with_suffix(".tar.gz")


def make_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path.with_suffix(".zip"), "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return path.with_suffix(".zip")


MAKERS = [make_folder, make_tar, make_zip]
ARCHIVES = [make_tar, make_zip]
Maker = Callable[[Path, dict[str, bytes]], Path]


def read(path: Path, suffix: str = "", most_bytes: int = 10**6) -> dict[str, bytes]:
    return {name: file.read() for name, file in read_files(path, lambda n: n.endswith(suffix), most_bytes=most_bytes)}


@pytest.mark.parametrize("make", MAKERS)
def test_only_wanted_files_are_read(make: Maker, tmp_path: Path) -> None:
    path = make(tmp_path / "data", FILES)
    assert read(path, ".txt") == {name: content for name, content in FILES.items() if name.endswith(".txt")}


@pytest.mark.parametrize("make", ARCHIVES)
@pytest.mark.parametrize("name", ["../out.txt", "/etc/out.txt", "top/../../out.txt", "..\\out.txt"])
def test_a_member_that_points_outside_is_refused(make: Maker, name: str, tmp_path: Path) -> None:
    path = make(tmp_path / "data", {name: b"x"})
    with pytest.raises(UserError, match="points outside"):
        read(path)


def test_links_in_a_tar_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_bytes(b"secret")
    path = tmp_path / "links.tar"
    with tarfile.open(path, "w") as opened:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
            member = tarfile.TarInfo(f"link{kind!r}.txt")
            member.type, member.linkname = kind, str(tmp_path / "secret.txt")
            opened.addfile(member)
    assert read(path) == {}


def test_links_in_a_zip_are_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "links.zip"
    with zipfile.ZipFile(path, "w") as opened:
        member = zipfile.ZipInfo("link.txt")
        member.external_attr = 0o120777 << 16
        opened.writestr(member, "/etc/hostname")
    assert read(path) == {}


def test_links_in_a_folder_are_not_followed(tmp_path: Path) -> None:
    make_folder(tmp_path / "elsewhere", {"b.txt": b"secret"})
    make_folder(tmp_path / "data", {"a.txt": b"here"})
    (tmp_path / "data" / "link.txt").symlink_to(tmp_path / "elsewhere" / "b.txt")
    (tmp_path / "data" / "folder").symlink_to(tmp_path / "elsewhere")
    assert read(tmp_path / "data") == {"a.txt": b"here"}


@pytest.mark.parametrize("make", MAKERS)
def test_reading_stops_at_the_budget(make: Maker, tmp_path: Path) -> None:
    path = make(tmp_path / "data", {"a.txt": bytes(600_000), "b.txt": bytes(600_000)})
    with pytest.raises(UserError, match="more than 1,000,000 bytes"):
        read(path)


def test_unwanted_members_of_a_tar_count_too(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "data", {"a.bin": bytes(600_000), "b.bin": bytes(600_000)})
    with pytest.raises(UserError, match="more than 1,000,000 bytes"):
        read(path, ".txt")


def test_a_gzip_bomb_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import gzip

    monkeypatch.setattr(archive, "MOST_BYTES", 10_000)
    with pytest.raises(UserError, match="more than 10,000 bytes"):
        gunzip(io.BytesIO(gzip.compress(bytes(1_000_000))), "bomb").read()


@pytest.mark.parametrize("make", ARCHIVES)
def test_too_many_files_are_refused(make: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_FILES", 2)
    with pytest.raises(UserError, match="more than 2 files"):
        read(make(tmp_path / "data", FILES))


@pytest.mark.parametrize("make", ARCHIVES)
@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_a_truncated_archive_is_one_clear_line(make: Maker, keep: float, tmp_path: Path) -> None:
    import random

    noise = random.Random(0)
    path = make(tmp_path / "data", {f"{i}.txt": noise.randbytes(5000) for i in range(20)})
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(UserError, match="truncated") as caught:
        read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", ARCHIVES)
def test_a_flipped_byte_is_noticed(make: Maker, tmp_path: Path) -> None:
    path = make(tmp_path / "data", {"a.txt": bytes(range(256)) * 200})
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(UserError, match="damaged"):
        read(path)


def test_a_file_that_is_no_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UserError, match="expected a folder, a tar or a zip"):
        read(tmp_path / "notes.txt")
    with pytest.raises(UserError, match="no such file"):
        read(tmp_path / "absent")
