"""Provide modules for the embedded Label Studio's own interpreter; nothing in this project imports them."""
