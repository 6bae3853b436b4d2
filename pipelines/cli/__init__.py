"""Define the commands of ``corpus``, one module per layer."""
