"""Environment variables for processes that train on a CPU."""

from __future__ import annotations

# On a CPU, a large part of a training step is spent on returning memory to the operating system
# and requesting it again in the next step. With these variables torch requests large pages, and
# glibc keeps freed memory.
KEEP_MEMORY = {
    "THP_MEM_ALLOC_ENABLE": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    "MALLOC_TOP_PAD_": "268435456",
}
