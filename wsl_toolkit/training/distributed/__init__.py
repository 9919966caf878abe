"""One run on several processes: each rank holds a part of the examples and their state, and all take the same steps.

A run does not change when it is spread: the global batches are those of a single process, each rank computes its own
examples' part of them, and gradients are summed. Start it with torch's own launcher (`torchrun … wsl run …`).
"""

from wsl_toolkit.training.distributed.ranks import Ranks, joined, ranks_asked_for

__all__ = ["Ranks", "joined", "ranks_asked_for"]
