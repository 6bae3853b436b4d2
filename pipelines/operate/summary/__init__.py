"""Write what the Corpus page of Airflow shows: one small file of counts, dates, digests and recorded reasons.

The page (``plugins/corpus_view``) reads this file and Airflow's own runs, and nothing else: no vault, no secret, no
table of records. Commands that change a fact of the corpus write the file again when they end.
"""
