"""Define the records of generated submissions and pictures, before they are written in Reddit's format."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from crisis_corpus_sandbox.reddit.label_quotas import Figsim
from crisis_corpus_sandbox.reddit.variants import Rendering

HOME = "SuicideMeme"
KEPT = "kept"
UNSCHEDULED = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True)
class SandboxPicture:
    """One picture of a generated submission.

    ``base`` names the image under the caption; ``address`` replaces the usual URL.
    """

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
        """Return the picture's file name below ``images/``; empty if the sandbox does not serve the picture."""
        return self.rendering.file if self.rendering else ""


@dataclass(slots=True)
class SandboxPost:
    """One generated submission; ``family`` and ``rank`` order copies after their original.

    The schedule sets ``id``, ``author`` and ``created``.
    """

    case: str
    title: str
    kind: str = "image"
    body: str = ""
    subreddit: str = HOME
    pictures: list[SandboxPicture] = field(default_factory=list)
    expected: str = KEPT
    figsim: Figsim | None = None
    cradle: tuple[str, ...] = ("no_crisis",)
    carriers: dict[str, str] = field(default_factory=dict)
    family: str = ""
    rank: int = 0
    parent: SandboxPost | None = None
    link: str = ""
    id: str = ""
    author: str = ""
    created: datetime = UNSCHEDULED
    failed_item: bool = False
    language: str = "en"
    injected: bool = False

    @property
    def fullname(self) -> str:
        """Return the submission's fullname (``t3_<id>``)."""
        return f"t3_{self.id}"
