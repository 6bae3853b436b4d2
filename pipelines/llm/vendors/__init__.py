"""Define vendors of models: each module has one class, whose name in ``providers.<name>.api`` is the module's."""
