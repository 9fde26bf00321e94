"""Pages: one document for readers from any set of records, tables, scores and comparisons."""
