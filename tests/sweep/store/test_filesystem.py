"""Network file systems are told from local ones, because SQLite's WAL must not be used on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.store.filesystem import FileSystem, filesystem_of

MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
/dev/sdb1 /home ext4 rw 0 0
auto.home /home/me autofs rw 0 0
server:/export /home/me nfs4 rw,vers=4.2 0 0
ms:/scratch /scratch lustre rw 0 0
gpfs1 /gpfs\\040old gpfs rw 0 0
me@host:/ /home/me/far fuse.sshfs rw 0 0
/dev/sdc1 /mnt/stick fuseblk rw 0 0
/dev/sdd1 /scratch-local xfs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("folder", "kind", "network"),
    [
        ("/var/sweep-home", "ext4", False),
        ("/home/you/sweep-home", "ext4", False),
        ("/home/me/sweep-home", "nfs4", True),
        ("/home/me", "nfs4", True),
        ("/home/meanwhile", "ext4", False),
        ("/scratch/me/not/there/yet", "lustre", True),
        ("/scratch-local/me", "xfs", False),
        ("/gpfs old/me", "gpfs", True),
        ("/home/me/far/away", "fuse.sshfs", True),
        ("/mnt/stick", "fuseblk", False),
    ],
)
def test_the_innermost_latest_mount_decides(tmp_path: Path, folder: str, kind: str, network: bool) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert filesystem_of(folder, mounts) == FileSystem(kind, network)


def test_a_link_counts_as_the_place_it_leads_to(tmp_path: Path) -> None:
    mounts, link = tmp_path / "mounts", tmp_path / "link"
    mounts.write_text(f"/dev/a {tmp_path} ext4 rw 0 0\nserver:/x {tmp_path}/far nfs rw 0 0\n")
    (tmp_path / "far").mkdir()
    link.symlink_to(tmp_path / "far")
    assert filesystem_of(link / "home", mounts).network


def test_where_nothing_tells_the_folder_counts_as_local(tmp_path: Path) -> None:
    assert filesystem_of(tmp_path, tmp_path / "absent") == FileSystem("", network=False)


def test_this_machine_names_its_file_system(tmp_path: Path) -> None:
    assert filesystem_of(tmp_path).kind
