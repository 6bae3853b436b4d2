"""Label Studio's settings with one change: a project is open to members of its organization and to nobody else.

Label Studio's community edition takes for granted that a server has one organization: whoever is logged in may read
and delete any project by its number (projects/mixins.py, 1.23.2). ``PROJECT_MIXIN`` is its own setting for replacing
that; tasks, answers, drafts and summaries all ask their project.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

_theirs = Path(str(getattr(find_spec("label_studio.core.settings.label_studio"), "origin", "")))
# Run here and not imported: while it loads it asks for the settings, which are this module.
exec(compile(_theirs.read_text(), _theirs, "exec"), globals())  # noqa: S102
PROJECT_MIXIN = "crisis_mixins.ProjectMixin"
