"""Define and validate the parameters (``params.yaml``) and settings (``CORPUS_*`` variables) of the project."""
