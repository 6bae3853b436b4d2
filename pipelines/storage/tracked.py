"""A file of a checkout that DVC may track, read wherever its bytes are."""

from __future__ import annotations

from pathlib import Path


def read_tracked(path: Path, *, root: Path) -> str:
    """Return a UTF-8 file of a checkout as it stands there or, where only its pointer does, from cache or remote.

    Raises:
        OSError: neither is there, or the object behind the pointer is in no place.
        UnicodeDecodeError: it is no UTF-8.
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
