"""Load pretrained base models, and text encoders made from them."""
