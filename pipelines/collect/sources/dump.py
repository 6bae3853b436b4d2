"""Read Pushshift and Arctic Shift dumps: verify every byte and parse only the lines of the wanted subreddits.

A file is read once. Every frame is decompressed to its end while the SHA-256 is computed, and a byte pattern finds the
lines of the wanted subreddits, so that the other 99 % are never parsed (SPEC.md 2.6). Posts are yielded only after
every file has been verified.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import zstandard

from pipelines.collect.month import Window
from pipelines.collect.sources import Gathered
from pipelines.collect.submission import Dropped, Submission
from pipelines.config.collect import Dump
from pipelines.errors import SourceError

# Compressed bytes decompressed at a time. zstd expands at most 32,768 times (a block of 128 KiB out of 4 bytes), so
# this limits memory to 128 MiB before the ratio is checked. Larger pieces are not faster.
PIECE = 4096
READ = 2**20
# zstd emits blocks of up to 128 KiB at once for any piece; the ratio check does not count them.
SLACK = 2 * 2**17
# Rows parsed in a batch: alternating with the decompressor evicts the caches of both (a tenth of the scan time).
HELD = 64
# Bytes scanned at a time: they fit the second-level cache.
LINES = 2**17


class CorruptDump(SourceError):
    """A dump file is truncated, altered or malformed."""

    message = "Dump {name} is unreadable at byte {offset}: {detail}."
    remedy = "Nothing was committed. Download the file again and compare its SHA-256 with the publisher's."
    exit_code = 65


class DumpMissing(SourceError):
    """No dump file covers a subreddit and month."""

    message = "No dump of r/{subreddit} for {month} is in the dumps folder."
    remedy = (
        "Put {subreddit}_submissions.zst or RS_{month}.zst into the folder CORPUS_DUMPS, together with its checksum "
        "file, whose name is the same with .sha256 appended."
    )
    exit_code = 66


class DumpUnverified(SourceError):
    """A dump file has no usable ``.sha256`` file beside it, so a damaged copy could not be detected."""

    message = "Dump {name} has no usable checksum file {name}.sha256."
    remedy = "Compare the file with its publisher's SHA-256, then run in its folder: sha256sum {name} > {name}.sha256"
    exit_code = 66


class DumpSource:
    """A source of dump files: ``<subreddit>_submissions*.zst``, and ``RS_YYYY-MM*.zst`` (a month of all of Reddit)."""

    name = "dump"

    def __init__(self, folder: Path, *, params: Dump) -> None:
        self._folder = folder
        self._params = params

    def submissions(self, window: Window, *, subreddits: Sequence[str]) -> Iterator[Submission | Dropped]:
        """Yield the window's posts from all relevant files; a post that any file marks as deleted is ``Dropped``.

        Raises:
            DumpMissing: no file for one of the subreddits.
            DumpUnverified: a file without its ``.sha256``.
            CorruptDump: a file is truncated, altered, not zstd, or exceeds a limit; with the compressed offset.
        """
        gathered = Gathered(window, subreddits=subreddits, source=self.name)
        for path in self.files(window, subreddits=subreddits):
            digest = expected_digest(path)
            lines = wanted_lines(path, digest=digest, subreddits=subreddits, params=self._params)
            for number, line in enumerate(_held(lines)):
                try:
                    item = orjson.loads(line)
                except orjson.JSONDecodeError:  # bad UTF-8 or bad JSON in a file that its publisher vouches for
                    gathered.put(Dropped(f"malformed:{digest[:16]}:{number}", "malformed"), retrieved=0.0)
                    continue
                if isinstance(item, dict):
                    gathered.add(item, source_digest=digest)
        yield from gathered

    def files(self, window: Window, *, subreddits: Iterable[str]) -> list[Path]:
        """Return the dump files that may contain posts of the window, sorted by name.

        Raises:
            DumpMissing: neither the subreddit nor the month has a file.
        """
        found = sorted(self._folder.glob("*.zst")) if self._folder.is_dir() else []
        months = [p for p in found if re.fullmatch(rf"RS_{window.key}([._-].*)?\.zst", p.name, re.IGNORECASE)]
        chosen = set(months)
        for subreddit in subreddits:
            pattern = re.compile(rf"{re.escape(subreddit)}_submissions([._-].*)?\.zst", re.IGNORECASE)
            own = [p for p in found if pattern.fullmatch(p.name)]
            if not own and not months:
                raise DumpMissing(subreddit=subreddit, month=window.key)
            chosen.update(own)
        return sorted(chosen)


def expected_digest(path: Path) -> str:
    """Read the expected SHA-256 of a dump from ``<name>.sha256`` (the format of ``sha256sum``).

    Raises:
        DumpUnverified: the file is missing or has no digest for this dump.
    """
    try:
        lines = path.with_name(path.name + ".sha256").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        raise DumpUnverified(name=path.name) from None
    for line in lines:
        digest, _, name = line.strip().partition(" ")
        if re.fullmatch(r"[0-9a-fA-F]{64}", digest) and Path(name.lstrip(" *")).name in ("", path.name):
            return digest.lower()
    raise DumpUnverified(name=path.name)


def wanted_lines(path: Path, *, digest: str, subreddits: Iterable[str], params: Dump) -> Iterator[bytes]:
    """Yield the lines of a dump that name one of the subreddits, as bytes without the line feed.

    Lines are split at line feeds, which no UTF-8 sequence contains, so a character across two chunks stays intact.

    Raises:
        CorruptDump: also after the last line, if the file differs from ``digest``; commit nothing before that.
    """
    names = b"|".join(re.escape(s.encode()) for s in subreddits)
    # Also matches the parent inside a crosspost; the parser filters those.
    wanted = re.compile(rb'"subreddit"\s*:\s*"(?i:' + names + rb')"')
    rest, offset = b"", 0
    for chunk, offset in chunks(path, digest=digest, params=params):
        end = chunk.rfind(b"\n") + 1
        if len(rest) + (end or len(chunk)) > params.max_line_bytes:
            _check_lines(rest + chunk, path=path, offset=offset, params=params)
        if end:
            yield from _matching(rest + chunk[:end], wanted=wanted)
            rest = chunk[end:]
        else:
            rest += chunk
    yield from _matching(rest, wanted=wanted)


def chunks(path: Path, *, digest: str, params: Dump) -> Iterator[tuple[bytes, int]]:
    """Yield decompressed bytes and the position in the compressed file after them; every frame must be complete.

    ``stream_reader`` would silently stop at the end of a truncated file; a ``decompressobj`` reports whether its frame
    is complete.

    Raises:
        CorruptDump: not zstd, truncated inside a frame, a window or expansion over the limits, or a wrong SHA-256.
    """
    decompressor = zstandard.ZstdDecompressor(max_window_size=2**params.window_log)
    frame = None
    sha256 = hashlib.sha256()
    offset = 0
    held: list[bytes] = []
    size = 0
    with path.open("rb") as file:
        while block := file.read(READ):
            sha256.update(block)
            for start in range(0, len(block), PIECE):
                piece = block[start : start + PIECE]
                offset += len(piece)
                while piece:
                    frame = frame or decompressor.decompressobj()
                    try:
                        data = frame.decompress(piece)
                    except zstandard.ZstdError as error:
                        raise CorruptDump(name=path.name, offset=offset, detail=_cause(error)) from None
                    if len(data) > len(piece) * params.max_ratio + SLACK:
                        detail = f"it expands to more than {params.max_ratio} times its size (dump.max_ratio)"
                        raise CorruptDump(name=path.name, offset=offset, detail=detail)
                    piece = frame.unused_data if frame.eof else b""
                    frame = None if frame.eof else frame
                    held.append(data)
                    size += len(data)
                if size >= LINES:
                    yield b"".join(held), offset
                    held, size = [], 0
    yield b"".join(held), offset
    if frame or not offset:
        raise CorruptDump(name=path.name, offset=offset, detail="it ends inside a frame")
    if sha256.hexdigest() != digest:
        raise CorruptDump(name=path.name, offset=offset, detail="its SHA-256 differs from the one in its .sha256 file")


def _matching(block: bytes, *, wanted: re.Pattern[bytes]) -> Iterator[bytes]:
    """Yield the lines of a block of whole lines that name a wanted subreddit, each once."""
    done = 0
    for match in wanted.finditer(block):
        if match.start() >= done:
            start = block.rfind(b"\n", 0, match.start()) + 1
            done = block.find(b"\n", match.end())
            done = len(block) if done < 0 else done
            yield block[start:done]


def _held(lines: Iterator[bytes]) -> Iterator[bytes]:
    while batch := list(islice(lines, HELD)):
        yield from batch


def _check_lines(block: bytes, *, path: Path, offset: int, params: Dump) -> None:
    if max(map(len, block.split(b"\n"))) > params.max_line_bytes:
        detail = f"a line is longer than {params.max_line_bytes} bytes (dump.max_line_bytes)"
        raise CorruptDump(name=path.name, offset=offset, detail=detail)


def _cause(error: zstandard.ZstdError) -> str:
    text: Any = str(error)
    if "too much memory" in text:
        return "a frame needs a larger window than dump.window_log allows"
    return "its compressed data is damaged or it is not zstd"
