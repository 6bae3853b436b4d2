"""Define moderation systems: each module has one class, whose name in ``moderators.<name>.kind`` is the module's."""
