"""What several kinds of models share: loop, loss, checkpoints, causal prediction, calibration, cards, tracking."""
