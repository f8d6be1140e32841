"""Which file system a folder is on, and whether SQLite may trust the locks and the shared memory there."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_MOUNTS = Path("/proc/mounts")
# Names as the kernel gives them. FUSE file systems carry their own after a dot.
_NETWORK = {
    "9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "daos", "dvs", "fhgfs", "gfs2", "glusterfs", "gpfs",
    "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "vboxsf", "virtiofs",
    "vmhgfs", "wekafs",
}  # fmt: skip
_LOCAL_FUSE = {"fuseblk", "fuse.bindfs", "fuse.exfat", "fuse.fuse-overlayfs", "fuse.ntfs", "fuse.ntfs-3g"}


@dataclass(frozen=True)
class FileSystem:
    """A folder's file system: `kind` as the kernel names it, '' where it cannot be told."""

    kind: str
    network: bool  # other hosts may have it mounted: no memory is shared with them, so SQLite's WAL must stay off


def filesystem_of(path: str | Path, mounts: Path = _MOUNTS) -> FileSystem:
    """File system that holds `path`, or would hold it once it is created."""
    real = os.path.realpath(Path(path).expanduser())
    try:
        lines = mounts.read_text(errors="surrogateescape").splitlines()
    except OSError:  # no Linux: unknown, and then as good as local
        return FileSystem("", network=False)
    best, kind = "", ""
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[1])
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        # The later of two mounts on the same place hides the earlier one.
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return FileSystem(kind, network=_is_network(kind))


def _is_network(kind: str) -> bool:
    # What a FUSE file system does about locks cannot be known; most are remote (sshfs, s3fs, gcsfuse, glusterfs).
    return kind in _NETWORK or (kind.startswith("fuse") and kind not in _LOCAL_FUSE)
