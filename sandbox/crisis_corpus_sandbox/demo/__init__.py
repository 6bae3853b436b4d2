"""Run the project's demo (``make demo``) on the embedded deployment."""
