"""Plan the reproduction of a paper from its profile: rows, requests, GPUs, time, cost, and what is missing."""
