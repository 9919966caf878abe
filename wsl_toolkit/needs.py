"""What an estimator may ask for beside logits and candidate sets: one table, asked by property."""

from __future__ import annotations

from typing import Literal

import attrs


@attrs.frozen(kw_only=True)
class Need:
    """Something that an estimator may ask for: what it gets, who provides it, and what follows from that."""

    gives: str
    provider: Literal["labels", "data", "network", "loop"]
    key: str | None = None
    """The name under which `state` holds it whenever a loss is computed; None where it holds nothing more."""
    view: bool = False
    """Whether it is an augmented copy of the batch, drawn as the estimator wants it."""
    stacks: bool = False
    """Whether models that need it can be trained as one stack."""
    splits: bool = True
    """Whether it means the same for a part of a batch as for the whole of it, as several ranks require."""


NEEDS = {
    "true_labels": Need(gives="candidates are the singletons {y}", provider="labels", stacks=True),
    "weak_view": Need(
        gives="logits and features are those of a weakly augmented copy of the batch, not of the batch itself",
        provider="network",
        view=True,
    ),
    "second_view": Need(
        gives="state['view_logits']: logits of an augmented copy of the batch",
        key="view_logits",
        provider="network",
        view=True,
    ),
    "third_view": Need(
        gives="state['third_logits']: logits of yet another augmented copy",
        key="third_logits",
        provider="network",
        view=True,
    ),
    "features": Need(
        gives="state['features']: what the network's last layer sees; 'view_features' with a second view",
        key="features",
        provider="network",
    ),
    "mixed": Need(
        gives="state['mixed_logits'], 'mixed_partner', 'mixed_share': λx + (1-λ)x' for another x' of the batch",
        key="mixed_logits",
        provider="network",
        splits=False,
    ),
    "momentum": Need(
        gives="state['momentum_logits'] (and 'momentum_features'): a slow copy of the network, without gradient",
        key="momentum_logits",
        provider="network",
    ),
    "momentum_view": Need(
        gives="the slow copy sees an augmented copy of the batch that nothing else sees", provider="network", view=True
    ),
    "epoch": Need(
        gives="state['epoch']: the number of epochs behind, a scalar", key="epoch", provider="loop", stacks=True
    ),
    "index": Need(
        gives="state['index']: the place of each example in the training part",
        key="index",
        provider="data",
        stacks=True,
    ),
    "class_prior": Need(
        gives="state['class_prior']: the share of each class if every candidate of a set were equally likely",
        key="class_prior",
        provider="data",
        stacks=True,
    ),
    "weights": Need(
        gives="state['weights']: how much each example of the batch counts, 1 on average over the training part; one "
        "that asks weighs its losses by itself",
        key="weights",
        provider="data",
        stacks=True,
    ),
    "unlabelled": Need(gives="examples whose set is full take part in training too", provider="data", stacks=True),
    "all_logits": Need(
        gives="state['all_logits'] in after_epoch: the logits of all examples after a pass in evaluation mode; of two "
        "networks the first one's, beside 'second_all_logits'",
        provider="loop",
    ),
    "two_networks": Need(
        gives="state['second_logits'] (and 'second_features'): a second network with its own initialisation, trained "
        "with the first; together they predict",
        key="second_logits",
        provider="network",
        stacks=True,
    ),
    "seed": Need(
        gives="state['seed']: a fresh whole number, from which a function may draw what is random",
        key="seed",
        provider="network",
        splits=False,
    ),
}
"""What an estimator may declare in `needs`: the one table of which the engine, stacks and ranks ask."""
