"""fairseq's tokenizer ``moses``, for codes of languages with a region too, such as ``en_GB``."""

from __future__ import annotations

import copy

from fairseq.data.encoders import TOKENIZER_REGISTRY
from fairseq.data.encoders.moses_tokenizer import MosesTokenizer, MosesTokenizerConfig


class RegionalMosesTokenizer(MosesTokenizer):  # type: ignore[misc]  # fairseq has no types
    """Tokenises and detokenises ``en_GB`` by the rules of ``en``, as data_prep does.

    sacremoses knows no code with a region, and would use the rules for unknown languages.
    """

    def __init__(self, cfg: MosesTokenizerConfig) -> None:
        from data_prep.lib.languages import primary

        cfg = copy.copy(cfg)
        for side in ("source_lang", "target_lang"):
            code = getattr(cfg, side)
            if code:  # fairseq-generate can run without --source-lang and --target-lang
                setattr(cfg, side, primary(code))
        super().__init__(cfg)


# fairseq refuses a second tokenizer of one name in `register_tokenizer`.
TOKENIZER_REGISTRY["moses"] = RegionalMosesTokenizer
