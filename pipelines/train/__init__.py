"""Train the models of the benchmark and the post classifiers."""
