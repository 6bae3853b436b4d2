"""The attacks that ``injection_test`` inserts into copies of posts, generated without knowledge of the detector."""
