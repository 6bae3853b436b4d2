"""What leaves the house: ids, labels and splits under new names, and the means to fetch the rest again."""
