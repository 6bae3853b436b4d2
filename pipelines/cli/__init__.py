"""The commands of ``corpus``, one module for each layer."""
