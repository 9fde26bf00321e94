"""Commands of headprune for Hugging Face models."""
