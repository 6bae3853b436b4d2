"""Folders of releases and models for the Hugging Face Hub, and their copies there."""
