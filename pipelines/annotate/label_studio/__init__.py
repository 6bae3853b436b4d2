"""Run Label Studio on this machine, and render forms and tasks for it."""
