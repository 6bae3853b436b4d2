"""Read and write DVC pointers of data files: the text of their ``.dvc`` files.

A pointer that was handed over between tasks is untrusted input, because users of Airflow can change it. It has a
message authentication code, and is parsed against a closed schema, because DVC would follow other keys to another
repository, a URL or a path outside the clone.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from hashlib import sha256

from pipelines.core.errors import DataError
from pipelines.store.vault.keyring import derive
from pipelines.workspace.inventory import Out, read_outs

# Ours: enough for four lines of text with a path.
MAX_LENGTH = 1024
TOPS = ("data", "work")


def pointer_text(name: str, *, md5: str, size: int) -> str:
    """Return the text of a pointer file in DVC's format; ``size`` is in bytes."""
    return f"outs:\n- md5: {md5}\n  size: {size}\n  hash: md5\n  path: {name}\n"


def read_pointer(text: str) -> Out:
    """Return the DVC object that a pointer file of this repository names."""
    (out,) = read_outs(text)
    return Out.of(out)


def hand_over(pointers: Mapping[str, str], *, secret: bytes) -> dict[str, str]:
    """Append an authentication code to each pointer's text in a comment; return the texts by path."""
    return {path: f"{text}# {_mac(path, text, secret)}\n" for path, text in pointers.items()}


def received(pointers: Mapping[str, str], *, secret: bytes) -> dict[str, str]:
    """Verify and remove the codes of pointers from :func:`hand_over`; return the plain texts by path."""
    texts = {}
    for number, (path, given) in enumerate(pointers.items(), start=1):
        text, _, mac = str(given).rpartition("# ")
        if not hmac.compare_digest(mac.rstrip("\n").encode(), _mac(path, text, secret).encode()):
            raise DataError("BadPointer", number=number, detail="no task of this corpus wrote it for this path")
        texts[path] = text
    return texts


def _mac(path: str, text: str, secret: bytes) -> str:
    key = derive(secret, purpose="pointer", length=32)
    return hmac.new(key, f"{path}\0{text}".encode(), sha256).hexdigest()


def check_handed_over(pointers: Mapping[str, str], *, below: str | None = None) -> dict[str, str]:
    """Validate the texts of DVC pointers by path: each must name one local file below ``data/`` or ``work/``.

    ``below`` is the only folder in which the files may be. Returns the same pointers.
    """
    for number, (path, text) in enumerate(pointers.items(), start=1):
        fault = _fault(path, text)
        if not fault and below and not path.startswith(f"{below}/"):
            fault = f"its path is not below {below}/"
        if fault:
            raise DataError("BadPointer", number=number, detail=fault)
    return dict(pointers)


def _fault(path: str, text: str) -> str:
    parts = path.split("/")
    # no part is empty or begins with a dot, which excludes `..` and `.git`
    if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)+", path) or parts[0] not in TOPS:
        return "its path is not below data/ or work/"
    if len(text) > MAX_LENGTH:
        return f"it is longer than {MAX_LENGTH} characters"
    if (named := pointed(text)) is None:
        return "it has other fields than md5, size, hash and path of one file"
    return "" if named == parts[-1] else "it names another file than its own"


def pointed(text: str) -> str | None:
    """Return the name of the file in a DVC pointer's text, or ``None`` if it differs from :func:`pointer_text`."""
    # no YAML parser, which would let unknown keys through
    form = r"outs:\n- md5: [0-9a-f]{32}\n  size: [0-9]{1,15}\n  hash: md5\n  path: (.+)\n"
    return match[1] if (match := re.fullmatch(form, text)) else None
