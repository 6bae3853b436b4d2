"""Find and mask personal data in text."""
