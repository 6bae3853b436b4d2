"""Typed tables, sealed columns, and workspaces that commit."""
