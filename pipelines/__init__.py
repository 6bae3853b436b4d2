"""Crisis Corpus: turn Reddit posts into versioned, labelled corpora and registered models; never imports Airflow."""
