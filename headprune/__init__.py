"""headprune: remove attention heads from Transformers, and measure what that costs.

The package imports neither fairseq nor transformers; their plugins import it.
"""

from headprune import select
from headprune.errors import DataError, HeadpruneError, UsageError
from headprune.plan import COMPONENTS, HeadPlan
from headprune.version import __version__

__all__ = [
    "COMPONENTS",
    "DataError",
    "HeadPlan",
    "HeadpruneError",
    "UsageError",
    "__version__",
    "select",
]
