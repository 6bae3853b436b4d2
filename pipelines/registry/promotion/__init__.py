"""Compare candidate model versions with the champion (the version in use), and promote the better ones."""
