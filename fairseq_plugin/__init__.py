"""Head-pruned Transformers for fairseq: ``fairseq-train --user-dir fairseq_plugin``."""

import logging

# On import, tasks of fairseq print a request for tensorboard, which translation has no use for, and
# let all programs print what is logged for debugging.
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)
_level = logging.getLogger().level
import fairseq.tasks  # noqa: E402, F401

logging.getLogger().setLevel(_level)

from fairseq_plugin import (  # noqa: E402
    arguments,
    distributed,
    divergence,
    errors,
    resuming,
    safe_globals,
    save_folder,
    unknown_words,
)

safe_globals.allow()
distributed.allow_torchrun_without_gpu()
distributed.leave_process_group()
errors.print_as_one_line()
divergence.end_with_an_error()
arguments.check_early()
resuming.resume_exactly()
save_folder.remove_if_empty()
unknown_words.warn_of_unknown_words()

from fairseq_plugin import truecasing  # noqa: E402, F401  (registers the tokenizer)
from fairseq_plugin.criterions import (  # noqa: E402, F401  (registers the criteria)
    label_smoothed_cross_entropy_with_distillation,
    label_smoothed_cross_entropy_with_l0,
)
from fairseq_plugin.decoding import beam_search  # noqa: E402
from fairseq_plugin.models.transformer_headpruned import (  # noqa: E402  (registers the model)
    HeadPrunedTransformerModel,
)
from fairseq_plugin.shortlist_option import shortlist_option  # noqa: E402

beam_search.use_with(HeadPrunedTransformerModel)
shortlist_option.add_to_fairseq(HeadPrunedTransformerModel)

__all__ = ["HeadPrunedTransformerModel"]
