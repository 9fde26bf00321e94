"""fairseq's tokenizer ``moses_truecased``: as ``moses``, for a model of truecased text."""

from __future__ import annotations

from fairseq.data.encoders import register_tokenizer
from fairseq.data.encoders.moses_tokenizer import MosesTokenizerConfig

from fairseq_plugin.moses import RegionalMosesTokenizer
from headprune.errors import UsageError


@register_tokenizer("moses_truecased", dataclass=MosesTokenizerConfig)
class TruecasedMosesTokenizer(RegionalMosesTokenizer):
    """Undoes truecasing and tokenisation, so that fairseq-generate writes text for BLEU."""

    def __init__(self, cfg: MosesTokenizerConfig) -> None:
        super().__init__(cfg)
        from data_prep.lib.truecase import make_detruecaser  # needs sacremoses

        self._detruecase = make_detruecaser()

    def encode(self, x: str) -> str:
        """Refuse: fairseq's options name no model for truecasing."""
        raise UsageError(
            "--tokenizer moses_truecased only restores text; `headprune translate` takes raw text"
        )

    def decode(self, x: str) -> str:
        """Detruecase and detokenise a line of tokens."""
        text: str = self.detok.detokenize(self._detruecase(x.split()))
        return text
