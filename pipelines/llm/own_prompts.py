"""Read a team's own prompt texts from ``prompts.folder``, such as those of a paper that the team holds.

The folder has one text file per message. For a prompt NAME (``cradle-labels``, ``figsim-figurative``, or another scheme
and category) and a kind of labeller KIND (``open``, ``commercial``):

- ``NAME.system.txt``: the system message, and ``NAME.KIND.system.txt`` for one kind only, which takes precedence;
- ``NAME.user.txt``, or ``NAME.KIND.user.txt``: the user message. ``{{ post }}`` marks the place of the post and occurs
  once; ``{{ examples }}`` marks the place of few-shot examples; ``{{ delimiter }}`` is a line that no post can imitate.
- ``NAME.training.system.txt`` and ``NAME.training.user.txt``: the messages that models are fine-tuned on.

A prompt without a file is this project's. The digest covers names and bytes of all files; it is stated in
``prompts.sha256``, so that a changed text makes the stages run again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.core.config.label import Prompts
from pipelines.core.errors import ConfigError

POST, EXAMPLES = "{{ post }}", "{{ examples }}"
TRAINING = "training"
# Ours: far above any context, and small enough to read at once.
MAX_BYTES = 2**20


@dataclass(frozen=True)
class OwnPrompts:
    """The texts of a folder by file name, and their digest (SHA-256); ``repr`` shows no text."""

    digest: str
    texts: Mapping[str, str] = field(repr=False)

    def message(self, name: str, *, kind: str, role: str) -> str | None:
        """Return the text of a prompt's message ``role`` (``system``, ``user``) for a kind of model, or ``None``."""
        shared = None if kind == TRAINING else self.texts.get(f"{name}.{role}.txt")
        return self.texts.get(f"{name}.{kind}.{role}.txt", shared)


def read(section: Prompts, *, root: Path = Path()) -> OwnPrompts | None:
    """Return the texts of ``prompts.folder``, a path below ``root`` or an absolute one; ``None`` without a folder."""
    if section.folder is None:
        return None
    folder = root / section.folder
    try:
        files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*.txt"))}
        texts = {name: content.decode("utf-8") for name, content in files.items()}
    except (OSError, UnicodeDecodeError) as error:
        raise _unfit(f"a file cannot be read ({type(error).__name__})", todo="Repair it.") from None
    if not texts:
        raise _unfit("there are no .txt files in it", todo="Copy the texts to this machine.")
    digest = digest_of(files)
    if digest != section.sha256:
        todo = f"Read the texts, then run `corpus params set prompts.sha256 {digest}`."
        raise _unfit("its digest is not prompts.sha256", todo=todo)
    for name, text in texts.items():
        if len(text) > MAX_BYTES or not text.strip():
            raise _unfit(f"{name} is empty or longer than 1 MiB")
        if name.endswith(".user.txt") and text.count(POST) != 1:
            raise _unfit(f"{name} has {text.count(POST)} places {POST} and must have one")
    return OwnPrompts(digest, texts)


def _unfit(detail: str, *, todo: str = "Correct the text.") -> ConfigError:
    return ConfigError("OwnPromptsUnfit", detail=detail, todo=todo)


def digest_of(files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of the names and contents of a folder's files."""
    whole = hashlib.sha256()
    for name, content in sorted(files.items()):
        whole.update(f"{name}\0{len(content)}\0".encode() + content)
    return whole.hexdigest()
