"""Read Pushshift and Arctic Shift dumps: verify every byte and parse only the lines of the wanted subreddits.

A file is read once. Every frame is decompressed to its end while the SHA-256 is computed. A vectorised search finds the
key ``"subreddit"``, and a pattern compares its value, so that the other 99 % are never parsed (SPEC.md 2.6). Posts are
yielded only after every file has been verified. A line that is no JSON object is counted whatever its subreddit, which
cannot be known.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from io import BufferedReader, FileIO, RawIOBase
from itertools import islice
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, cast

import orjson
import zstandard
from ahocorasick_rs import BytesAhoCorasick
from pydantic import Field

from pipelines.collect.month import Gaps, Interval, Window
from pipelines.collect.sources import ClosedEntry, Monthly
from pipelines.collect.submission import Dropped, Gathered, Submission, created_of
from pipelines.core.config.base import Positive
from pipelines.core.errors import SourceError
from pipelines.core.process import reporter

# Compressed bytes decompressed at a time: errors name a place so exactly. Larger pieces are not faster.
PIECE = 4096
# Read at a time, so that digest and decompressor find it in the cache.
READ = 2**17
# Ours: a file may expand to so much at any ratio, which takes a second at most. Repeated posts expand 4,000 times,
# so that the ratio of a short file or of one place in a file means nothing.
ALWAYS = 2**26
# Rows parsed in a batch: alternating with the decompressor evicts the caches of both (a tenth of the scan time).
HELD = 64
# Bytes scanned at a time, unless a line is longer: they fit the second-level cache.
LINES = 2**17
# Ours: the lines of any dump are longer on average; where they are shorter, a loop over them would be slow.
SHORT_LINE = 64
# Ours: lines that are no JSON objects, in all and by bytes, beyond which the file is no dump: 1 % of short lines.
STRAYS, BYTES_PER_STRAY = 100, 2**16
BOM, BRACE = b"\xef\xbb\xbf", ord("{")
# With a single pattern, this is a search with SIMD instructions, four times faster than bytes.find and re. It finds
# matches that do not overlap, and without the first quotation mark none can.
KEY = BytesAhoCorasick([b'subreddit"'])
# A subreddit's name in a line, but for users' profile pages; in how many lines one like an unknown name is sought.
NAME = re.compile(rb'"subreddit"\s*:\s*"(?!u_)([A-Za-z0-9_]{2,21})"')
NAMES_IN = 1_000_000
log = logging.getLogger(__name__)
STRAY = re.compile(rb"^[^{\n].*", re.MULTILINE)
INSIDE = "it ends inside a frame"
# Read after the end of a file. It comes out of the decompressor only if the frame before it was complete: no dump ends
# so, and as its frame has the token once, bytes that are copied into a cut frame do not end so either.
MARK = token_hex(8).encode() * 8
END = zstandard.compress(MARK)


class DumpEntry(ClosedEntry):
    window_log: Annotated[int, Field(ge=10, le=31)]
    max_line_bytes: Positive
    max_ratio: Positive


class Dump(Monthly):
    """A source of dump files: ``<subreddit>_submissions*.zst``, and ``RS_YYYY-MM*.zst`` (a month of all of Reddit)."""

    name = "dump"
    Parameters = DumpEntry
    params: DumpEntry

    def probe(self, *, windows: Sequence[Window], subreddits: Sequence[str]) -> str:
        """Check that every file has a checksum."""
        files = {path for window in windows for path in self.files(window, subreddits=subreddits)}
        for path in files:
            expected_digest(path)
        return f"{len(files)} files with a checksum"

    def jobs(self, gaps: Gaps) -> Iterator[tuple[Interval, list[str]]]:
        """Yield the hull of the gaps, so that a file is scanned once."""
        hulls = {s: (min(start for start, _ in gap), max(end for _, end in gap)) for s, gap in gaps.items() if gap}
        whole = min((start for start, _ in hulls.values()), default=0), max((e for _, e in hulls.values()), default=0)
        if self._has_month(whole):
            yield whole, list(hulls)
        else:
            yield from ((hull, [subreddit]) for subreddit, hull in hulls.items())

    def covers(self, interval: Interval, *, newest: int) -> Interval:
        """Return the interval; nothing but its newest post says where a subreddit's own dump ends."""
        return interval if self._has_month(interval) else (interval[0], min(interval[1], newest))

    def _has_month(self, interval: Interval) -> bool:
        return any(self.settings.dumps.glob(f"[Rr][Ss]_{Window.of(interval).key}*.zst"))

    def months(self, window: Window, *, subreddits: Sequence[str]) -> Iterator[Submission | Dropped]:
        """Yield the window's posts from all relevant files; a post that any file marks as deleted is ``Dropped``."""
        gathered = Gathered(window, subreddits=subreddits, source=self.name)
        for path in self.files(window, subreddits=subreddits):
            digest = expected_digest(path)
            lines = wanted_lines(path, digest=digest, subreddits=subreddits, params=self.params)
            for number, line in enumerate(_held(lines)):
                item = loads(line)
                if isinstance(item, dict):
                    gathered.add(item, source_digest=digest)
                else:  # bad UTF-8, bad JSON or a list in a file that its publisher vouches for
                    gathered.put(Dropped(f"malformed:{digest[:16]}:{number}", "malformed"), retrieved=0.0)
        if absent := sorted(gathered.wanted - gathered.seen):
            names = {name for path in self.files(window, subreddits=subreddits) for name in self._names(path)}
            for subreddit in absent:
                alike = get_close_matches(subreddit, {name.lower(): name for name in names}, n=3, cutoff=0.7)
                said = ", ".join(f"r/{name}" for name in sorted(names) if name.lower() in alike)
                log.warning(
                    "No post of r/%s in %s. Similar names in the dumps: %s. If the name is wrong, correct "
                    "corpora.CORPUS.subreddits in the profile, or with `corpus params set`.",
                    subreddit, window.key, said or "none",
                )  # fmt: skip
        yield from gathered

    def _names(self, path: Path) -> set[str]:
        """Return the names of the subreddits in the beginning of a dump, without users' own."""
        with _lines(path, params=self.params) as lines:
            return {name[1].decode() for line in islice(lines, NAMES_IN) for name in NAME.finditer(line)}

    def files(self, window: Window, *, subreddits: Iterable[str]) -> list[Path]:
        """Return the dump files that may contain posts of the window, sorted by name."""
        return dump_files(self.settings.dumps, window, subreddits=subreddits)


def dump_files(folder: Path, window: Window, *, subreddits: Iterable[str]) -> list[Path]:
    """Return the dumps in a folder that may contain posts of the window, sorted by name."""
    paths = sorted(folder.glob("*.zst")) if folder.is_dir() else []
    months = [p for p in paths if re.fullmatch(rf"RS_{window.key}([._-].*)?\.zst", p.name, re.IGNORECASE)]
    chosen = set(months)
    for subreddit in subreddits:
        pattern = re.compile(rf"{re.escape(subreddit)}_submissions([._-].*)?\.zst", re.IGNORECASE)
        own = [p for p in paths if pattern.fullmatch(p.name)]
        if not own and not months:
            raise SourceError("DumpMissing", subreddit=subreddit, month=window.key)
        chosen.update(own)
    return sorted(chosen)


def survey(folder: Path, *, subreddits: Sequence[str], params: DumpEntry) -> tuple[list[Path], list[str]]:
    """Return the dumps in a folder that may have posts of subreddits, and the months of these posts.

    A dump of all of Reddit has its month in its name; one of a subreddit is read to its end.
    """
    paths, months = [], set[str]()
    own = re.compile(rf"({'|'.join(map(re.escape, subreddits))})_submissions([._-].*)?\.zst", re.IGNORECASE)
    for path in sorted(folder.glob("*.zst")):
        if whole := re.fullmatch(r"RS_(\d{4}-\d{2})([._-].*)?\.zst", path.name, re.IGNORECASE):
            months.add(whole[1])
        elif own.fullmatch(path.name):
            with _lines(path, params=params) as lines:
                items = (item for line in lines if isinstance(item := loads(line), dict))
                months |= {f"{created:%Y-%m}" for item in items if (created := created_of(item))}
        else:
            continue
        paths.append(path)
    return paths, sorted(months)


@contextmanager
def _lines(path: Path, *, params: DumpEntry) -> Iterator[Iterator[bytes]]:
    """Yield the lines of a dump without verifying it."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=2**params.window_log)
    try:
        with path.open("rb") as file, decompressor.stream_reader(file, read_across_frames=True) as reader:
            buffered = BufferedReader(cast("RawIOBase", reader))
            yield iter(partial(buffered.readline, params.max_line_bytes), b"")
    except zstandard.ZstdError as error:
        raise SourceError("CorruptDump", name=path.name, offset=0, detail=_cause(error)) from None


def expected_digest(path: Path) -> str:
    """Read the expected SHA-256 of a dump from ``<name>.sha256`` (the format of ``sha256sum``)."""
    try:
        lines = path.with_name(path.name + ".sha256").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        raise SourceError("DumpUnverified", name=path.name) from None
    for line in lines:
        digest, _, name = line.strip().partition(" ")
        if re.fullmatch(r"[0-9a-fA-F]{64}", digest) and Path(name.lstrip(" *")).name in ("", path.name):
            return digest.lower()
    raise SourceError("DumpUnverified", name=path.name)


def wanted_lines(path: Path, *, digest: str, subreddits: Iterable[str], params: DumpEntry) -> Iterator[bytes]:
    """Yield the lines of a dump that name one of the subreddits or do not begin as a JSON object, in order.

    Lines are split at line feeds, which no UTF-8 sequence contains, so a character across two blocks stays intact.
    """
    names = b"|".join(re.escape(s.encode()) for s in subreddits)
    # Also matches the parent inside a crosspost; the parser filters those.
    wanted = re.compile(rb'"subreddit"\s*:\s*"(?i:' + names + rb')"')
    scanned = strays = 0
    tell = reporter(f"{path.name}, MiB", total=path.stat().st_size >> 20)
    for block, end, offset in blocks(path, digest=digest, params=params):
        tell(offset >> 20)
        scanned += end
        odd = _strays(block, end)
        strays += len(odd)
        if strays > max(STRAYS, scanned / BYTES_PER_STRAY):
            detail = f"{strays:,} of the lines so far are no JSON objects"
            raise SourceError("CorruptDump", name=path.name, offset=offset, detail=detail)
        yield from (line for _, line in sorted([*_matching(block, end, wanted=wanted), *odd]))


def blocks(path: Path, *, digest: str, params: DumpEntry) -> Iterator[tuple[bytearray, int, int]]:
    """Yield decompressed bytes (overwritten next), where their last whole line ends, and the position."""
    block, kept, begun, count = bytearray(LINES), 0, False, 1
    with path.open("rb", buffering=0) as file:
        frames = _Frames(file, params=params)
        while count:
            if kept == len(block):
                block = block + bytes(kept)
            count = frames.fill(memoryview(block)[kept:])
            size = kept + count
            if not begun:
                _check_start(block[:size], path=path, offset=frames.offset)
            end = block.rfind(b"\n", kept, size) + 1
            begun = begun or end > 0
            if (end or size) > params.max_line_bytes:
                _check_lines(block[: end or size], path=path, offset=frames.offset, params=params)
            if end:
                yield block, end, frames.offset
            block[: size - end] = block[end:size]
            kept = size - end
        frames.check(block[:kept], digest=digest)
    yield block, kept - len(MARK), frames.offset


class _Pieces:
    """The compressed bytes of a file in pieces, and ``END`` after them: a ``stream_reader`` ends silently at a cut."""

    def __init__(self, file: FileIO) -> None:
        self._file, self._held, self._at = file, b"", 0
        self.sha256, self.offset, self.ended = hashlib.sha256(), 0, False

    def read(self, size: int) -> bytes:
        """Return the next bytes, for the decompressor."""
        if self._at == len(self._held) and not self.ended:
            self._held, self._at = self._file.read(READ), 0
            self.sha256.update(self._held)
            if not self._held:
                self.ended = True
                return END
        piece = self._held[self._at : self._at + size]
        self._at += len(piece)
        self.offset += len(piece)
        return piece


class _Frames:
    """Decompress a file; every frame must be complete."""

    def __init__(self, file: FileIO, *, params: DumpEntry) -> None:
        self._name, self._params, self._total = Path(str(file.name)).name, params, 0
        # refers to nothing here: the decompressor takes no part in garbage collection, and its window is up to 2 GiB
        self._source = _Pieces(file)
        decompressor = zstandard.ZstdDecompressor(max_window_size=2**params.window_log)
        source: Any = self._source
        self._reader = decompressor.stream_reader(source, read_size=PIECE, read_across_frames=True)

    @property
    def offset(self) -> int:
        """The number of compressed bytes read."""
        return self._source.offset

    def fill(self, memory: memoryview) -> int:
        """Decompress into memory; return the number of bytes, less than it has only at the end of the file."""
        try:
            count = self._reader.readinto(memory)
        except zstandard.ZstdError as error:
            raise self._corrupt(INSIDE if self._source.ended else _cause(error)) from None
        self._total += count
        if self._total > max(ALWAYS, self.offset * self._params.max_ratio):
            limit = self._params.max_ratio
            raise self._corrupt(f"it expands to more than {limit} times its size (sources.dump.max_ratio)")
        return count

    def check(self, last: bytearray, *, digest: str) -> None:
        """Check that the file, whose last bytes are given, was complete and has this SHA-256."""
        if not (last.endswith(MARK) and self.offset):
            raise self._corrupt(INSIDE)
        if self._source.sha256.hexdigest() != digest:
            raise self._corrupt("its SHA-256 differs from the one in its .sha256 file")

    def _corrupt(self, detail: str) -> SourceError:
        return SourceError("CorruptDump", name=self._name, offset=self.offset, detail=detail)


def _matching(block: bytearray, end: int, *, wanted: re.Pattern[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield place and line for the lines before ``end`` that begin as an object and name a wanted subreddit."""
    done = 0
    compare = wanted.match
    for _, behind, _ in KEY.find_matches_as_indexes(block):
        if behind > done and (match := compare(block, behind - 1, end)):
            start = block.rfind(b"\n", 0, behind) + 1
            done = block.find(b"\n", match.end(), end)
            done = end if done < 0 else done
            if not _is_stray(line := bytes(block[start:done])):
                yield start, line


def _strays(block: bytearray, size: int) -> list[tuple[int, bytes]]:
    """Return place and line for the lines within ``size`` bytes that are not blank and do not begin as an object."""
    strays: list[tuple[int, bytes]] = []
    start, find = 0, block.find
    for _ in range(size // SHORT_LINE + 2):
        if start == size:
            return strays
        end = find(b"\n", start, size)
        if block[start] != BRACE and _is_stray(line := bytes(block[start : end if end >= 0 else size])):
            strays.append((start, line))
        start = end + 1 if end >= 0 else size
    more = ((match.start(), bytes(match[0])) for match in STRAY.finditer(block, start, size))
    return strays + [(place, line) for place, line in more if _is_stray(line)]


def _is_stray(line: bytes) -> bool:
    text = line.removeprefix(BOM).strip()
    return bool(text) and text[0] != BRACE


def _check_start(block: bytearray, *, path: Path, offset: int) -> None:
    """Refuse a file whose first bytes tell that no line of it could be read."""
    detail = ""
    text = block.removeprefix(BOM).lstrip()
    if block.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in block[:4]:
        detail = "its text is UTF-16 or UTF-32; only UTF-8 is read"
    elif text.startswith(b"["):
        detail = "it is a JSON list; only JSON Lines are read: one object a line"
    elif re.match(rb"\{\s*\n", text):
        detail = "its JSON is spread over several lines; only JSON Lines are read: one object a line"
    if detail:
        raise SourceError("CorruptDump", name=path.name, offset=offset, detail=detail)


def _held(lines: Iterator[bytes]) -> Iterator[bytes]:
    while batch := list(islice(lines, HELD)):
        yield from batch


def _check_lines(block: bytearray, *, path: Path, offset: int, params: DumpEntry) -> None:
    if max(map(len, block.split(b"\n"))) > params.max_line_bytes:
        detail = f"a line is longer than {params.max_line_bytes} bytes (sources.dump.max_line_bytes)"
        raise SourceError("CorruptDump", name=path.name, offset=offset, detail=detail)


def _cause(error: zstandard.ZstdError) -> str:
    text: Any = str(error)
    if "too much memory" in text:
        return "a frame needs a larger window than sources.dump.window_log allows"
    return "its compressed data is damaged or it is not zstd"


# Ours: the fields that are read are nested 6 deep at most; what is nested deeper than this is left out.
MAX_DEPTH = 32
# A double holds integers up to here exactly; no field that is read has longer ones.
MAX_DIGITS = 15
# Strings are matched as a whole, also an unfinished one, so that the search is linear in the length of the line.
TOKEN = re.compile(r'"(?:[^"\\]++|\\.?)*+(?:"|\Z)|[\[{]|[\]}]', re.DOTALL)


def loads(line: bytes) -> Any:
    """Return the value of a line, or ``None`` if it is not JSON or not UTF-8.

    A line that strict JSON excludes is read with lone surrogates, ``NaN``, a byte order mark and integers of any length
    (as floats); values that are nested deeper than ``MAX_DEPTH`` are replaced by null.
    """
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(_shallow(line.decode("utf-8-sig")), parse_int=_number)
    except (ValueError, RecursionError):
        return None


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) <= MAX_DIGITS else float(digits)


def _shallow(text: str) -> str:
    """Replace the lists and objects at ``MAX_DEPTH`` by null."""
    parts, depth, kept = [], 0, 0
    for token in TOKEN.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth == MAX_DEPTH:
                parts.append(text[kept : token.start()])
        elif token[0] in "]}":
            if depth == MAX_DEPTH:
                parts.append("null")
                kept = token.end()
            depth -= 1
    return "".join(parts) + text[kept:] if depth == 0 else ""
