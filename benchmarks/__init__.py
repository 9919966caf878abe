"""Benchmarks: ratios with spreads, from interleaved repetitions in one process."""
