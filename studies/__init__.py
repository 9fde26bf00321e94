"""Studies: one YAML file each, and the Snakefile that runs them."""
