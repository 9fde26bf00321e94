"""Names of tasks that records know; those of classifiers are GLUE's."""

TRANSLATION = "translation"
