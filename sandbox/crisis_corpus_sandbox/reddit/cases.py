"""Define the kinds of Reddit submissions that the offline Reddit contains, and the number of each."""

from __future__ import annotations

from dataclasses import dataclass

# The size for which ``share`` below is stated.
WHOLE = 600


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of simulated submission, its number among 600 submissions, and its minimum in a small sandbox."""

    name: str
    share: int
    least: int = 1


# Posts that never reach the picture step.
WITHOUT_PICTURES = (
    Case("deleted", 12),
    Case("removed", 12),
    Case("removed_body", 5),
    Case("deleted_later", 10, 2),
    Case("crosspost", 12, 2),
    Case("text", 22, 4),
    Case("link", 5),
    Case("video", 3),
    Case("outside_window", 4, 2),
)
# Posts whose picture cannot or must not be fetched; the name is that of the fault.
FAULTS = (
    Case("missing", 5),
    Case("gone", 3),
    Case("slow", 2),
    Case("cut_on_the_wire", 3),
    Case("huge", 2),
    Case("redirect_forbidden", 2),
    Case("wrong_type", 3),
    Case("placeholder", 4),
    Case("broken", 3),
    Case("cut_file", 2),
    Case("too_many_pixels", 1),
    Case("too_many_frames", 1),
    Case("foreign_host", 3),
    Case("wrong_scheme", 1),
    Case("dead_address", 2),
)
FOREIGN = Case("foreign_language", 26, 12)
# Copies of another post's picture. The first seven are near-duplicates of it, the rest are not.
DUPLICATES = (
    Case("recompressed", 9, 2),
    Case("resized", 8),
    Case("bordered", 6),
    Case("cropped", 6),
    Case("identical", 2),
    Case("edit1", 4),
    Case("edit2", 3),
)
OTHERS = (Case("edit3", 6), Case("edit4", 6), Case("recaptioned", 24, 3), Case("mirrored", 8))
# Kept posts with a special property; the remainder are plain memes.
SPECIAL = (
    Case("gallery", 22, 2),
    Case("gif", 10),
    Case("webp", 8),
    Case("png", 8),
    Case("alpha", 4),
    Case("rotated", 4),
    Case("low_quality", 10),
    Case("redirect", 4),
    Case("retry_after", 3),
    Case("preview_only", 4),
)
# Posts of other communities, in addition to the requested size.
ELSEWHERE = Case("elsewhere", 48, 8)
EVERY = (*WITHOUT_PICTURES, *FAULTS, FOREIGN, *DUPLICATES, *OTHERS, *SPECIAL)
SMALLEST = sum(c.least for c in EVERY) + 30


def counts(size: int) -> dict[str, int]:
    """Return the number of submissions of each kind among ``size``; the remainder is of the kind ``plain``."""
    if size < SMALLEST:
        raise ValueError(f"a sandbox needs at least {SMALLEST} submissions to hold every case")
    numbers = {c.name: max(c.least, round(c.share * size / WHOLE)) for c in EVERY}
    return numbers | {"plain": size - sum(numbers.values())}


def elsewhere(size: int) -> int:
    """Return how many posts of other communities the offline Reddit has beside ``size`` submissions."""
    return max(ELSEWHERE.least, round(ELSEWHERE.share * size / WHOLE))
