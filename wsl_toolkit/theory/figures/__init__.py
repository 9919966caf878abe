"""Figures of exact results: the map of settings, a generator's sizes, the matrix of `wsl verify`."""
