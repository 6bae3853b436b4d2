"""What the embedded Label Studio's own interpreter imports; nothing of this project imports it."""
