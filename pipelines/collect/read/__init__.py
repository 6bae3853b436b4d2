"""Extract text, language and fingerprints from single images and posts."""
