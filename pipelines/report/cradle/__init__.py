"""Build the sections and tables of the report on post models, beside the figures of the CRADLE paper."""
