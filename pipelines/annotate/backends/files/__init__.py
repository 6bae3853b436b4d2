"""Exchange annotation tasks and answers with a team's own annotation tool through plain folders."""
