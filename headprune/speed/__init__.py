"""The speed and size of models, as the command ``headprune speed`` measures them."""
