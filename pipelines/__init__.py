"""Crisis Corpus: Reddit into versioned corpora, honest labels and registered models. Never imports Airflow."""
