"""Speed, memory and error against the peers, as ratios measured in one run: ``python -m benchmarks --help``."""
