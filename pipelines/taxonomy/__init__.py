"""Label schemes as data: what may be said of a record, what the words mean, and which sets of them make sense.

A scheme is one file of ``schemes/``; another one needs no code.
"""

from pipelines.taxonomy.loader import BadScheme, available, load, load_file
from pipelines.taxonomy.rules import Checked, tiers_of
from pipelines.taxonomy.scheme import Category, Label, Scheme

__all__ = ["BadScheme", "Category", "Checked", "Label", "Scheme", "available", "load", "load_file", "tiers_of"]
