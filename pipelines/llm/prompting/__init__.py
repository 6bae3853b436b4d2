"""Write the prompts of labelling requests and of fine-tuning."""
