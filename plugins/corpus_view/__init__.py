"""Show the state of the corpus on a page of Airflow's interface.

The page reads the summary that commands of ``corpus`` write (``pipelines.operate.summary``), and Airflow's runs; it
imports nothing of ``pipelines``, and opens neither the vault nor the secret.
"""
