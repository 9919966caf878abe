"""Exact enumeration: what holds for every candidate set is proven by looking at every candidate set."""
