"""Data preparation: shell scripts that turn raw text into binarised corpora, and their modules."""
