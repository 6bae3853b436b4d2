"""Run the demo on the embedded deployment."""
