"""Import published datasets as gold, splits and posts."""
