"""Commands of headprune for models that fairseq trained."""
