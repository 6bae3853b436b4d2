"""Run a deployment: services, checks, plans, backup, housekeeping."""
