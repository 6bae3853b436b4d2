"""Train classifiers with one output for each label."""
