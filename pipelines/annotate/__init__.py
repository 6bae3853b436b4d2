"""From rounds of annotation to gold."""
