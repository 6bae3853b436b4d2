"""Load label schemes from data files: their labels, definitions, and rules for valid label sets.

A scheme is one file in ``schemes/``; adding one needs no code.
"""

from pipelines.core.taxonomy.loader import available, labels_of_all, load, load_file
from pipelines.core.taxonomy.scheme import Category, Checked, Label, Scheme, tiers_of

__all__ = [
    "BadScheme",
    "Category",
    "Checked",
    "Label",
    "Scheme",
    "available",
    "labels_of_all",
    "load",
    "load_file",
    "tiers_of",
]
