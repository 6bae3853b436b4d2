"""Read Pushshift and Arctic Shift dumps: verify every byte and parse only the lines of the wanted subreddits.

A file is read once. Every frame is decompressed to its end while the SHA-256 is computed. A vectorised search finds the
key ``"subreddit"``, and a pattern compares its value, so that the other 99 % are never parsed (SPEC.md 2.6). Posts are
yielded only after every file has been verified. A line that is no JSON object is counted whatever its subreddit, which
cannot be known.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import zstandard
from ahocorasick_rs import BytesAhoCorasick

from pipelines.collect.month import Window
from pipelines.collect.sources import Gathered
from pipelines.collect.sources.json_line import loads
from pipelines.collect.submission import Dropped, Submission
from pipelines.config.collect import Dump
from pipelines.errors import SourceError

# Compressed bytes decompressed at a time. zstd expands at most 32,768 times (a block of 128 KiB out of 4 bytes), so
# this limits memory to 128 MiB at once. Larger pieces are not faster.
PIECE = 4096
# Read into the same memory each time, so that digest and decompressor find it in the cache.
READ = 2**17
# Ours: a file may expand to so much at any ratio, which takes a second at most. Repeated posts expand 4,000 times,
# so that the ratio of a short file or of one place in a file means nothing.
ALWAYS = 2**26
# Rows parsed in a batch: alternating with the decompressor evicts the caches of both (a tenth of the scan time).
HELD = 64
# Bytes scanned at a time: they fit the second-level cache.
LINES = 2**17
# Passed on at most at a time, so that a piece which expands most is not copied as a whole.
MOST = 2**22
# Ours: the lines of any dump are longer on average; where they are shorter, a loop over them would be slow.
SHORT_LINE = 64
# Ours: lines that are no JSON objects, in all and by bytes, beyond which the file is no dump: 1 % of short lines.
STRAYS, BYTES_PER_STRAY = 100, 2**16
BOM, BRACE = b"\xef\xbb\xbf", ord("{")
# With a single pattern, this is a search with SIMD instructions, four times faster than bytes.find and re. It finds
# matches that do not overlap, and without the first quotation mark none can.
KEY = BytesAhoCorasick([b'subreddit"'])
STRAY = re.compile(rb"^[^{\n].*", re.MULTILINE)


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
                item = loads(line)
                if isinstance(item, dict):
                    gathered.add(item, source_digest=digest)
                else:  # bad UTF-8, bad JSON or a list in a file that its publisher vouches for
                    gathered.put(Dropped(f"malformed:{digest[:16]}:{number}", "malformed"), retrieved=0.0)
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
    """Yield the lines of a dump that name one of the subreddits or do not begin as a JSON object, without line feeds.

    Lines are split at line feeds, which no UTF-8 sequence contains, so a character across two chunks stays intact.

    Raises:
        CorruptDump: also after the last line, if the file differs from ``digest``; commit nothing before that.
    """
    names = b"|".join(re.escape(s.encode()) for s in subreddits)
    # Also matches the parent inside a crosspost; the parser filters those.
    wanted = re.compile(rb'"subreddit"\s*:\s*"(?i:' + names + rb')"')
    rest, offset, scanned, strays = b"", 0, 0, 0
    for pieces, offset in chunks(path, digest=digest, params=params):
        block = b"".join([rest, *pieces])
        if not scanned:
            _check_start(block, path=path, offset=offset)
        end = block.rfind(b"\n", len(rest)) + 1
        if (end or len(block)) > params.max_line_bytes:
            _check_lines(block, path=path, offset=offset, params=params)
        rest = block[end:]
        if not end:
            continue
        scanned += end
        yield from _matching(block, end, wanted=wanted)
        for stray in _strays(block, end):
            strays += 1
            if strays > max(STRAYS, scanned / BYTES_PER_STRAY):
                detail = f"{strays:,} of the lines so far are no JSON objects"
                raise CorruptDump(name=path.name, offset=offset, detail=detail)
            yield stray
    yield from _matching(rest, len(rest), wanted=wanted)
    yield from _strays(rest, len(rest))


def chunks(path: Path, *, digest: str, params: Dump) -> Iterator[tuple[list[bytes], int]]:
    """Yield pieces of decompressed bytes and the compressed position after them; every frame must be complete.

    ``stream_reader`` would silently stop at the end of a truncated file; a ``decompressobj`` reports whether its frame
    is complete.

    Raises:
        CorruptDump: not zstd, truncated inside a frame, a window or expansion over the limits, or a wrong SHA-256.
    """
    decompressor = zstandard.ZstdDecompressor(max_window_size=2**params.window_log)
    frame = None
    sha256 = hashlib.sha256()
    offset = total = size = 0
    held: list[bytes] = []
    memory = memoryview(bytearray(READ))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(memory):
            sha256.update(memory[:count])
            for start in range(0, count, PIECE):
                piece: memoryview | bytes = memory[start : min(start + PIECE, count)]
                offset += len(piece)
                while piece:
                    frame = frame or decompressor.decompressobj()
                    try:
                        data = frame.decompress(piece)
                    except zstandard.ZstdError as error:
                        raise CorruptDump(name=path.name, offset=offset, detail=_cause(error)) from None
                    piece = frame.unused_data if frame.eof else b""
                    frame = None if frame.eof else frame
                    held.append(data)
                    size += len(data)
                if total + size > max(ALWAYS, offset * params.max_ratio):
                    detail = f"it expands to more than {params.max_ratio} times its size (dump.max_ratio)"
                    raise CorruptDump(name=path.name, offset=offset, detail=detail)
                if size >= LINES:
                    yield from ((part, offset) for part in _parts(held, size))
                    held, total, size = [], total + size, 0
    yield held, offset
    if frame or not offset:
        raise CorruptDump(name=path.name, offset=offset, detail="it ends inside a frame")
    if sha256.hexdigest() != digest:
        raise CorruptDump(name=path.name, offset=offset, detail="its SHA-256 differs from the one in its .sha256 file")


def _parts(pieces: list[bytes], size: int) -> Iterator[list[bytes]]:
    """Yield ``pieces`` of ``size`` bytes together, or in parts of at most ``MOST`` bytes."""
    if size <= MOST:
        yield pieces
        return
    data = b"".join(pieces)
    for begin in range(0, size, MOST):
        yield [data[begin : begin + MOST]]


def _matching(block: bytes, end: int, *, wanted: re.Pattern[bytes]) -> Iterator[bytes]:
    """Yield the lines before ``end`` that begin as an object and name a wanted subreddit, each once.

    ``block`` holds whole lines up to ``end``; ``wanted`` matches the key and its value.
    """
    done = 0
    compare = wanted.match
    for _, behind, _ in KEY.find_matches_as_indexes(block):
        if behind > done and (match := compare(block, behind - 1, end)):
            start = block.rfind(b"\n", 0, behind) + 1
            done = block.find(b"\n", match.end(), end)
            done = end if done < 0 else done
            if not _is_stray(block[start:done]):
                yield block[start:done]


def _strays(block: bytes, size: int) -> list[bytes]:
    """Return the lines within ``size`` bytes that are not blank and do not begin as a JSON object."""
    found: list[bytes] = []
    start, find = 0, block.find
    for _ in range(size // SHORT_LINE + 2):
        if start == size:
            return found
        end = find(b"\n", start, size)
        if block[start] != BRACE and _is_stray(line := block[start : end if end >= 0 else size]):
            found.append(line)
        start = end + 1 if end >= 0 else size
    return found + [line for line in STRAY.findall(block, start, size) if _is_stray(line)]


def _is_stray(line: bytes) -> bool:
    text = line.removeprefix(BOM).strip()
    return bool(text) and text[0] != BRACE


def _check_start(block: bytes, *, path: Path, offset: int) -> None:
    """Refuse a file whose first bytes tell that no line of it could be read.

    Raises:
        CorruptDump: UTF-16 or UTF-32, a JSON list, or JSON that is spread over several lines.
    """
    detail = ""
    text = block.removeprefix(BOM).lstrip()
    if block.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in block[:4]:
        detail = "its text is UTF-16 or UTF-32; only UTF-8 is read"
    elif text.startswith(b"["):
        detail = "it is a JSON list; only JSON Lines are read: one object a line"
    elif re.match(rb"\{\s*\n", text):
        detail = "its JSON is spread over several lines; only JSON Lines are read: one object a line"
    if detail:
        raise CorruptDump(name=path.name, offset=offset, detail=detail)


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
