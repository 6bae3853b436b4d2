"""Column-mapping files of published datasets; :mod:`pipelines.annotate.mapping` reads them."""
