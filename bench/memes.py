"""Measure OCR, language filter and near-duplicates of memes on the second world, through the product's own functions.

The pictures (bench/second_world) were drawn by code that does not know the product's. The word recall counts the
caption's words that the step ``images`` stores, in any order; mirrored copies count too. A near-duplicate is found if
the stage ``dedupe`` pairs the copy with its original; precision is of all pairs. Parameters: seeds 1 to 14.
CORPUS_BENCH_FONTS names folders with more fonts than matplotlib's (bench/second_world/fonts.py).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from bench.second_world import fonts, world
from pipelines.collect.read.confined_engine import open_engine
from pipelines.collect.read.decode import DecodedPicture, Decoder
from pipelines.collect.read.engine import OcrFailed, OcrReading
from pipelines.collect.read.fingerprint import PictureHashes, fingerprints
from pipelines.collect.read.language import CaptionReader, LanguageGate, LanguageVerdict
from pipelines.collect.read.words import words
from pipelines.core.config.params import Params, load
from pipelines.curate.dedupe.image_pairs import Pictures, kinds, pairs_of_items, pairs_of_kinds

SEED = 15
REQUIRED = {"word_recall": 0.97, "duplicate_precision": 0.995, "duplicate_recall": 0.97, "english_excluded": 0.005}


@dataclass(frozen=True)
class Seen:
    """A picture of the world as the step ``images`` sees it."""

    truth: world.Picture
    decoded: DecodedPicture
    reading: OcrReading
    verdict: LanguageVerdict
    hashes: PictureHashes


def seen(pictures: Iterator[world.Picture], *, params: Params) -> Iterator[Seen]:
    """Decode, read, judge and fingerprint the pictures."""
    reader = CaptionReader(open_engine(params.images.ocr), LanguageGate(params.language))
    with Decoder(params.images.decode) as decoder:
        for truth in pictures:
            decoded = decoder.decode(truth.data)
            if not isinstance(decoded, DecodedPicture):
                raise SystemExit(f"A picture cannot be decoded: {decoded}.")
            try:
                reading, verdict = reader.read(decoded.data, title=truth.title)
            except OcrFailed as failed:  # which excludes the picture
                reading, verdict = OcrReading("", 0.0, ""), LanguageVerdict(str(failed), kept=False)
            captioned, least = bool(words(reading.text)), params.images.fingerprint.min_energy
            hashes = fingerprints(decoded.data, min_energy=least, captioned=captioned)
            yield Seen(truth, decoded, reading, verdict, hashes)


def word_recall(some: Sequence[Seen]) -> tuple[int, int]:
    """Return how many words of the captions were read, and how many there are."""
    found = total = 0
    for one in some:
        said, read = (Counter(words(text.replace("'", ""))) for text in (one.truth.caption, one.reading.text))
        found, total = found + (said & read).total(), total + said.total()
    return found, total


def pairs(some: Sequence[Seen], *, params: Params) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Return the pairs that ``dedupe`` finds, and those that are near-duplicates in truth."""
    codes = [[code or one.hashes.trimmed or 0 for code in one.hashes[:3]] for one in some]
    trimmed, inner, outer = np.array(codes, np.uint64).T
    pictures = Pictures(
        hashes=trimmed,
        hashed=np.array([one.hashes.trimmed is not None for one in some]),
        digests=[one.decoded.sha256 for one in some],
        texts=[one.reading.text for one in some],
        energies=np.array([one.hashes.energy for one in some]),
        inner=inner,
        outer=outer,
    )
    known = kinds(pictures)
    near = pairs_of_kinds(pictures, known, params=params.dedupe)
    found = pairs_of_items(near, known, listed=params.dedupe.listed_copies)
    groups = [one.truth.group for one in some]
    true = {(a, b) for a, b in combinations(range(len(some)), 2) if groups[a] == groups[b]}
    return set(zip(found.left.tolist(), found.right.tolist(), strict=True)), true


def measured(some: Sequence[Seen], *, params: Params) -> dict[str, tuple[float, str]]:
    """Return every measure with the number of things that it is a share of."""
    english = [one for one in some if one.truth.language == "en"]
    others = [one for one in some if one.truth.language != "en"]
    read, said = word_recall(english)
    found, true = pairs(english, params=params)
    copies = {(a, b) for a, b in true if "base" in (english[a].truth.change, english[b].truth.change)}
    mirrored = {pair for pair in copies if any(english[n].truth.change.startswith("mirror") for n in pair)}
    excluded = sum(not one.verdict.kept for one in english)
    undecided = sum(one.verdict.kept and one.verdict.language == "und" for one in some)
    kept = sum(one.verdict.kept for one in others)
    return {
        "word_recall": (read / said, f"share of {said} words"),
        "duplicate_precision": (len(found & true) / max(1, len(found)), f"share of {len(found)} pairs"),
        "duplicate_recall": (len(found & copies) / len(copies), f"share of {len(copies)} copies"),
        "mirrored_recall": (len(found & mirrored) / len(mirrored), f"share of {len(mirrored)} copies"),
        "english_excluded": (excluded / len(english), f"share of {len(english)} pictures"),
        "undecided": (undecided / len(some), f"share of {len(some)} pictures"),
        "other_languages_kept": (kept / max(1, len(others)), f"share of {len(others)} pictures"),
    }


def main() -> None:
    """Print one JSON line for each measure; the baseline is what issue 20 requires."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=240)
    parser.add_argument("--copies", type=int, default=209)
    args = parser.parse_args()
    params = load()
    drawn = world.build(args.seed, count=args.count, foreign=args.count // 5, copies=args.copies)
    families = len({face.family for face in fonts.faces()})
    for name, (value, unit) in measured(list(seen(drawn, params=params)), params=params).items():
        line = {"name": f"second_world_{name}", "ours": round(value, 4), "baseline": REQUIRED.get(name, "–")}
        ratio = round(value / REQUIRED[name], 3) if name in REQUIRED else "–"
        print(
            json.dumps(
                {**line, "baseline_name": f"required; {families} families of fonts", "ratio": ratio, "unit": unit}
            )
        )


if __name__ == "__main__":
    main()
