"""p(y|x) of examples whose true label is known, from models that did not see them: what a test of properness needs."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from wsl_toolkit.data.dataset import Data, transform_inputs

FOLDS = 3
SMOOTHING = 1e-3
"""Weight of the uniform law in a predicted one, so that no candidate is impossible."""


def out_of_fold_posterior(data: Data, index: Tensor, labels: Tensor, rng: torch.Generator) -> Tensor:
    """Return p(y|x) [m, K] by logistic regression on the known labels of the other folds, preprocessing included."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    posterior = torch.full((len(index), data.num_classes), 1 / data.num_classes)
    fold = torch.randperm(len(index), generator=rng) % FOLDS
    for number in range(FOLDS):
        train, held_out = (fold != number).nonzero().flatten(), (fold == number).nonzero().flatten()
        if len(held_out) == 0 or len(labels[train].unique()) < 2:
            continue
        transform = data.fit_inputs(index[train])
        inputs = [transform_inputs(transform, data.x, index[part]).flatten(1).numpy() for part in (train, held_out)]
        # Threads that wait for each other cost more than they bring on problems of this size.
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = LogisticRegression(max_iter=100).fit(inputs[0], labels[train].numpy())
        predicted = torch.full((len(held_out), data.num_classes), 0.0)
        predicted[:, torch.from_numpy(model.classes_)] = torch.from_numpy(model.predict_proba(inputs[1])).float()
        posterior[held_out] = (1 - SMOOTHING) * predicted + SMOOTHING / data.num_classes
    return posterior
