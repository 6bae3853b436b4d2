"""Generate the attacks (instructions to a labeller) that the stage ``injection_test`` inserts into copies of posts.

They are generated without knowledge of the detector.
"""
