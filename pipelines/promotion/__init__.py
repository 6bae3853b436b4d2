"""Compare candidates with the champion and promote them."""
