"""What the generator knows about a submission and its pictures, before anything is written in Reddit's shape."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from pipelines.sandbox.reddit.labels import Figsim
from pipelines.sandbox.reddit.variants import Rendering

HOME = "SuicideMeme"
KEPT = "kept"
UNSCHEDULED = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True)
class Picture:
    """One picture of a submission. ``base`` names what lies under the caption; ``address`` replaces the usual one."""

    base: str
    rendering: Rendering | None
    text: str = ""
    language: str = "en"
    variant: str = "original"
    expected: str = KEPT
    behaviour: str = "ok"
    fault: str | None = None
    address: str | None = None
    preview: Rendering | None = None

    @property
    def file(self) -> str:
        """Return the file's name under ``images/``, empty for a picture that no server of ours has."""
        return self.rendering.file if self.rendering else ""


@dataclass(slots=True)
class Post:
    """One submission. ``family`` and ``rank`` order copies after their original; the schedule fills the last four."""

    case: str
    title: str
    kind: str = "image"
    body: str = ""
    subreddit: str = HOME
    pictures: list[Picture] = field(default_factory=list)
    expected: str = KEPT
    figsim: Figsim | None = None
    cradle: tuple[str, ...] = ("no_crisis",)
    carriers: dict[str, str] = field(default_factory=dict)
    family: str = ""
    rank: int = 0
    parent: Post | None = None
    link: str = ""
    id: str = ""
    author: str = ""
    created: datetime = UNSCHEDULED
    failed_item: bool = False
    language: str = "en"
    injected: bool = False

    @property
    def fullname(self) -> str:
        """Return Reddit's name of the submission."""
        return f"t3_{self.id}"
