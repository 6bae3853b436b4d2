"""Ask the registries for the digests of the images in images.json, and write docker/.env for compose.

A digest is the SHA-256 of the manifest that the registry serves for the tag; the answer is hashed here, and a header
with another digest is an error. Only the standard library is used, so that any Python can run it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
INDEXES = "application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"
MANIFESTS = "application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"
HUB = "registry-1.docker.io"
SECONDS = 30.0


class Unresolved(Exception):
    """An image has no digest, or its registry gave none."""


def parts(image: str) -> tuple[str, str, str]:
    """Return the registry, repository and tag of an image, as Docker reads its name."""
    name, colon, tag = image.rpartition(":")
    if not colon or "/" in tag:
        raise Unresolved(f"{image}: name a tag")
    host, slash, rest = name.partition("/")
    if slash and ("." in host or ":" in host or host == "localhost"):
        return host, rest, tag
    return HUB, name if slash else f"library/{name}", tag


def digest(image: str) -> str:
    """Return the digest of an image's manifest, or of its index of platforms.

    Raises:
        Unresolved: the registry does not answer, or answers with a manifest of another digest.
    """
    registry, repository, tag = parts(image)
    scheme = "http" if registry.partition(":")[0] in ("localhost", "127.0.0.1") else "https"
    url = f"{scheme}://{registry}/v2/{repository}/manifests/{tag}"
    headers = {"Accept": ", ".join((*INDEXES, *MANIFESTS))}
    try:
        try:
            body, stated = _get(url, headers)
        except urllib.error.HTTPError as error:
            if error.code != 401:
                raise
            token = _token(error.headers.get("WWW-Authenticate", ""))
            body, stated = _get(url, headers | {"Authorization": f"Bearer {token}"})
    except (OSError, ValueError, KeyError) as error:
        raise Unresolved(f"{image}: {registry} gave no manifest ({error})") from None
    found = f"sha256:{hashlib.sha256(body).hexdigest()}"
    if stated not in (None, found):
        raise Unresolved(f"{image}: the manifest's digest is not the one that {registry} states")
    return found


def _token(challenge: str) -> str:
    """Return an anonymous token from the service that a registry's challenge names."""
    fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    query = urllib.parse.urlencode({key: fields[key] for key in ("service", "scope") if key in fields})
    answer = json.loads(_get(f"{fields['realm']}?{query}", {})[0])
    return str(answer.get("token") or answer["access_token"])


def _get(url: str, headers: dict[str, str]) -> tuple[bytes, str | None]:
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - an address of a registry
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
        return answer.read(), answer.headers.get("Docker-Content-Digest")


def pinned(images: dict[str, dict[str, str | None]]) -> str:
    """Return the lines of docker/.env, each image with its digest.

    Raises:
        Unresolved: an image has no digest.
    """
    if missing := [name for name, image in images.items() if not image["digest"]]:
        raise Unresolved(f"no digest: {', '.join(missing)}. Run: python docker/resolve_digests.py")
    return "".join(f"{name}={image['image']}@{image['digest']}\n" for name, image in images.items())


def main(argv: list[str], *, folder: Path = FOLDER) -> int:
    """Resolve missing digests, or all of them, then write docker/.env; return 1 if an image is unresolved."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="resolve nothing; fail if a digest is missing")
    parser.add_argument("--all", action="store_true", help="resolve every tag again")
    given = parser.parse_args(argv)
    file = folder / "images.json"
    images = json.loads(file.read_text())
    try:
        for image in () if given.check else images.values():
            if given.all or not image["digest"]:
                image["digest"] = digest(image["image"])
        (folder / ".env").write_text(pinned(images))
    except Unresolved as error:
        sys.stderr.write(f"{error}\n")
        return 1
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(image)}" for name, image in images.items())
    file.write_text(f"{{\n{lines}\n}}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
