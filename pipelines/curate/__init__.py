"""From what was collected to what is kept: text, language, fingerprints, duplicates, sample, split."""
