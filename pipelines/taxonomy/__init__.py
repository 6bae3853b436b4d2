"""Load label schemes from data files: their labels, definitions, and rules for valid label sets.

A scheme is one file in ``schemes/``; adding one needs no code.
"""

from pipelines.taxonomy.loader import BadScheme, available, labels_of_all, load, load_file
from pipelines.taxonomy.rules import Checked, tiers_of
from pipelines.taxonomy.scheme import Category, Label, Scheme

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
