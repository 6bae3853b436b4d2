"""Load Label Studio's settings with one change: only members of a project's organization may access it.

Label Studio's community edition assumes one organization per server: every logged-in user may read and delete any
project by its number (projects/mixins.py, 1.23.2). ``PROJECT_MIXIN`` is Label Studio's setting for replacing this
check. Tasks, annotations, drafts and summaries use the check of their project.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

_theirs = Path(str(getattr(find_spec("label_studio.core.settings.label_studio"), "origin", "")))
# Executed instead of imported: while loading, it reads the settings, which are this module.
exec(compile(_theirs.read_text(), _theirs, "exec"), globals())  # noqa: S102
PROJECT_MIXIN = "crisis_mixins.ProjectMixin"
