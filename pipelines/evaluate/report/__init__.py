"""Write reports that show the scores of a corpus's models beside those in the papers on its label scheme."""
