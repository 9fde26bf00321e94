"""Settings for processes that train on a CPU."""

from __future__ import annotations

# On a CPU much of a training step goes on memory that is given back to the system and asked for
# again at the next one. These make torch ask for large pages, and glibc keep what it has.
KEEP_MEMORY = {
    "THP_MEM_ALLOC_ENABLE": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    "MALLOC_TOP_PAD_": "268435456",
}
