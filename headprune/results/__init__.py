"""Records of measurements, their signatures, and the statistics of repeated ones."""
