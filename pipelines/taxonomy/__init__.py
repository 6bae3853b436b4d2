"""The two label schemes as data."""
