"""Read a file of a checkout that DVC may track, from the checkout, the cache or the remote."""

from __future__ import annotations

from pathlib import Path


def read_tracked(path: Path, *, root: Path) -> str:
    """Return the text of a UTF-8 file of a checkout; if only its pointer exists, from the cache or remote.

    Raises:
        OSError: file and pointer are missing, or the pointer's object is neither in the cache nor on the remote.
        UnicodeDecodeError: the file is not UTF-8.
    """
    if path.exists() or not path.with_name(f"{path.name}.dvc").exists():
        return path.read_bytes().decode()
    import dvc.api
    from dvc.exceptions import DvcException

    try:
        data: bytes = dvc.api.read(str(path.relative_to(root)), repo=str(root), mode="rb")
    except DvcException as error:
        raise FileNotFoundError(path.name) from error
    return data.decode()
