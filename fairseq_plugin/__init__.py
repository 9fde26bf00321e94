"""Head-pruned Transformers for fairseq: ``fairseq-train --user-dir fairseq_plugin``."""

from fairseq_plugin import distributed, errors, safe_globals

safe_globals.allow()
distributed.allow_torchrun_without_gpu()
errors.print_as_one_line()

from fairseq_plugin.models.transformer_headpruned import (  # noqa: E402  (registers the model)
    HeadPrunedTransformerModel,
)

__all__ = ["HeadPrunedTransformerModel"]
