"""Column-mapping files of published datasets; :mod:`pipelines.annotate.imports.mapping` reads them."""
