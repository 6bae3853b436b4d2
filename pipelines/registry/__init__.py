"""Register, load and inspect models, and journal every decision about them."""
