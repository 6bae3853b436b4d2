"""What every test has alike: one project secret, so that what is drawn from it is the same every time."""

from __future__ import annotations

import os

os.environ.setdefault("CORPUS_SECRET", "5e" * 64)
