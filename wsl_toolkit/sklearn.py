"""Partial labels in scikit-learn: `PartialLabelClassifier`, and scorers that need no true label.

    from wsl_toolkit.sklearn import PartialLabelClassifier, approximated_accuracy
    model = PartialLabelClassifier(estimator="ppl", backbone="linear").fit(X, S)

S is a 0/1 matrix [n, K], a list of sets (or lists, or tuples) of classes, texts such as "cat|dog", or ordinary
labels, which are sets of one class. Cross-validation wants the matrix: scikit-learn cannot cut lists of sets into
folds (`candidate_matrix` makes one).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from wsl_toolkit.data.dataset import Data, transform_inputs
from wsl_toolkit.errors import WslError
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data import fitting
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system.random_streams import stream
from wsl_toolkit.training import metrics
from wsl_toolkit.training.build import check_training
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.engine import predict as network_logits
from wsl_toolkit.training.train import TrainingJob, train

SEPARATOR = "|"

CHECKS_THAT_CANNOT_APPLY = {
    "check_array_api_input": "networks take tensors made from NumPy arrays; other array libraries are not supported",
}
"""scikit-learn's estimator checks that cannot apply, by name, with the reason. Set-valued targets rule out none:
ordinary labels, which all checks use, are sets of one class."""


class PartialLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier that learns from candidate sets: any installed estimator, any installed backbone.

    Parameters
    ----------
    estimator : str, default="ppl"
        How to learn from candidate sets; `wsl list estimator` names what is installed.
    backbone : str, default="linear"
        The network; `wsl list backbone` names what is installed.
    estimator_params, backbone_params : dict or None
        Their own parameters, as `wsl show estimator NAME` lists them.
    classes : sequence or None
        Names of the columns of a 0/1 matrix, or the order of the classes; None: as found in the candidate sets.
    epochs : int, default=100
        Passes over the training data, at most.
    batch_size : int, default=64
        Examples in a mini-batch.
    lr, weight_decay, momentum : float
        Learning rate, l2 regularisation, and the momentum of optimisers that have one.
    optimizer : str, default="sgd"
        Any optimiser of torch.optim, by its name in lower case.
    scheduler : str, default="none"
        The learning-rate schedule: none, cosine, linear, step, exponential or one-cycle.
    early_stopping : bool, default=False
        Whether to hold out a part of the examples, and to stop when `monitor` does not improve on it any more. Nothing
        but candidate sets is looked at.
    validation_fraction : float, default=0.1
        The share held out where `early_stopping` is on or `keep` is "best".
    n_iter_no_change : int, default=10
        Epochs without improvement after which training stops.
    monitor : str, default="validation/covering_rate"
        The metric to stop and to choose the best epoch by.
    keep : {"last", "best"}, default="last"
        Which epoch's model to keep.
    scale : bool, default=True
        Whether to standardise each feature by the training data.
    device : str, default="auto"
        Where to train: auto, cpu, cuda, cuda:1 or mps.
    random_state : int, RandomState or None, default=0
        What all randomness derives from.

    Attributes
    ----------
    classes_ : ndarray
        The classes, in the order of `predict_proba`'s columns.
    n_iter_ : int
        How many epochs were trained.
    best_epoch_ : int or None
        The epoch whose model was kept, where `keep` is "best".
    loss_curve_ : list of float
        The empirical risk after each epoch.
    network_, transform_ : torch.nn.Module
        The trained network, and what turns raw inputs into its inputs.
    """

    def __init__(
        self,
        estimator: str = "ppl",
        backbone: str = "linear",
        *,
        estimator_params: dict[str, Any] | None = None,
        backbone_params: dict[str, Any] | None = None,
        classes: Sequence[Any] | None = None,
        epochs: int = 100,
        batch_size: int = 64,
        lr: float = 0.05,
        weight_decay: float = 1e-4,
        optimizer: str = "sgd",
        momentum: float = 0.9,
        scheduler: str = "none",
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        monitor: str = "validation/covering_rate",
        keep: str = "last",
        scale: bool = True,
        device: str = "auto",
        random_state: Any = 0,
    ) -> None:
        """Keep the parameters; `classes` names the columns of a 0/1 matrix, or fixes the order of the classes."""
        self.estimator = estimator
        self.backbone = backbone
        self.estimator_params = estimator_params
        self.backbone_params = backbone_params
        self.classes = classes
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.optimizer = optimizer
        self.momentum = momentum
        self.scheduler = scheduler
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.monitor = monitor
        self.keep = keep
        self.scale = scale
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> PartialLabelClassifier:
        """Learn from inputs X [n, d] and candidate sets y."""
        X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=1)
        mask, classes = candidate_matrix(y, self.classes)
        if len(mask) != len(X):
            raise ValueError(f"X has {len(X)} examples and y has {len(mask)} candidate sets")
        if mask.shape[1] < 2:
            raise ValueError(f"a classifier needs at least 2 classes, but y has 1 class: {classes[0]!r}")
        try:
            self._train(X, mask)
        except WslError as error:
            raise ValueError(str(error)) from error
        self.classes_ = classes
        return self

    def _train(self, X: np.ndarray, mask: np.ndarray) -> None:
        registry = load_plugins().registry
        estimator = registry.create("estimator", self.estimator, self.estimator_params or {})
        backbone = registry.create("backbone", self.backbone, self.backbone_params or {})
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        training = Training(
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            weight_decay=self.weight_decay,
            optimizer=self.optimizer,
            momentum=self.momentum,
            scheduler=self.scheduler,
            seed=seed,
            device=self.device,
            patience=self.n_iter_no_change if self.early_stopping else 0,
            monitor=self.monitor,
            keep=self.keep,
        )
        check_training(training)
        data = Data(
            name="X",
            x=torch.from_numpy(np.ascontiguousarray(X)),
            candidates=CandidateSets.from_mask(mask),
            num_classes=mask.shape[1],
            normalise="per-feature" if self.scale else "none",
        )
        if data.candidates is not None and len(data.candidates.labelled()) == 0:
            raise ValueError("every candidate set holds all classes: there is nothing to learn from")
        train_part, held_out = self._parts(len(X), seed)
        problem = fitting.make_own_problem(data, train_part, held_out)
        (result,) = train(
            [TrainingJob(problem=problem, estimator=estimator, backbone=backbone, training=training, seed=seed)]
        )
        self.network_ = result.model.cpu()
        self.transform_ = problem.transform
        self.loss_curve_ = [record.metrics["train/risk"] for record in result.records]
        self.n_iter_ = len(result.records)
        self.best_epoch_ = result.best_epoch

    def _parts(self, n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the examples to train on and those held out; none are held out where nothing is watched."""
        order = torch.arange(n)
        if not self.early_stopping and self.keep == "last":
            return order, order[:0]
        cut = round(self.validation_fraction * n)
        if not 0 < cut < n:
            raise ValueError(
                f"validation_fraction={self.validation_fraction} of {n} examples leaves nothing to train on or to watch"
            )
        shuffled = order[torch.randperm(n, generator=stream(seed, "validation"))]
        return shuffled[cut:].sort().values, shuffled[:cut].sort().values

    def _logits(self, X: Any) -> torch.Tensor:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        x = torch.from_numpy(np.ascontiguousarray(X))
        return network_logits(self.network_, transform_inputs(self.transform_, x))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return p(y|x) in the order of `classes_`, [n, K]."""
        return torch.softmax(self._logits(X).double(), dim=1).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """Return the most likely class of every example, candidate sets unseen."""
        place = self._logits(X).argmax(1).numpy()
        labels: np.ndarray = self.classes_[place]
        return labels

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the covering rate; with ordinary labels, which are sets of one class, that is the accuracy."""
        logits = self._logits(X)
        covered = self._mask(y).gather(1, logits.argmax(1, keepdim=True)).squeeze(1).double().numpy()
        return float(np.average(covered, weights=sample_weight))

    def disambiguate(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the most likely candidate of every example, and its confidence r_y(x, s).

        Examples that the model learned from are judged by a model that has seen their sets; for an impartial verdict
        use examples of another fold (`wsl clean` does).
        """
        logits = self._logits(X).double()
        confidence, place = metrics.candidate_confidence(logits, self._mask(y)).max(1)
        return self.classes_[place.numpy()], confidence.numpy()

    def _mask(self, y: Any) -> torch.Tensor:
        """Return candidate sets as a mask over `classes_`."""
        return torch.from_numpy(candidate_matrix(y, self.classes_)[0])


def candidate_matrix(S: Any, classes: Sequence[Any] | np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return candidate sets in any accepted form as a boolean matrix [n, K], with the classes of its columns."""
    given = None if classes is None else np.asarray(classes)
    if S is None:
        raise ValueError("This PartialLabelClassifier estimator requires y to be passed, but the target y is None")
    if hasattr(S, "toarray"):
        S = S.toarray()
    if _is_sets(S):
        return _from_sets([_members(item) for item in S], given)
    array = np.asarray(S)
    if array.ndim == 2 and array.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Its values are taken as ordinary labels.",
            DataConversionWarning,
            stacklevel=3,
        )
        array = array.ravel()
    if array.ndim == 2:
        return _from_matrix(array, given)
    if array.ndim != 1:
        raise ValueError(f"y must be a 0/1 matrix, sets or labels, not an array of shape {array.shape}")
    check_classification_targets(array)
    if array.dtype.kind in "OU" and any(isinstance(item, str) and SEPARATOR in item for item in array):
        return _from_sets([item.split(SEPARATOR) for item in array], given)
    return _from_labels(array, given)


def _is_sets(S: Any) -> bool:
    """Tell a list of collections from a matrix: sets, rows of different lengths, or rows of more than 0 and 1."""
    if hasattr(S, "iloc"):
        S = S.to_numpy()
    if not isinstance(S, list | tuple | np.ndarray) or (
        isinstance(S, np.ndarray) and (S.dtype != object or S.ndim != 1)
    ):
        return False
    rows = list(S)
    if not rows or not all(isinstance(row, set | frozenset | list | tuple) for row in rows):
        return False
    if any(isinstance(row, set | frozenset) for row in rows) or len({len(row) for row in rows}) > 1:
        return True
    return any(item not in (0, 1) for row in rows for item in row)


def _members(item: Any) -> list[Any]:
    return sorted(item, key=str) if isinstance(item, set | frozenset) else list(item)


def _from_sets(sets: list[list[Any]], given: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    sets = [[m.strip() if isinstance(m, str) else m for m in members] for members in sets]
    if given is None:
        given = np.unique(np.asarray([member for members in sets for member in members]))
    place = {value: j for j, value in enumerate(given.tolist())}
    mask = np.zeros((len(sets), len(given)), dtype=bool)
    for row, members in enumerate(sets):
        for member in members:
            key = member.item() if isinstance(member, np.generic) else member
            if key not in place:
                raise ValueError(f"candidate set of example {row} names {key!r}, which is not among the classes")
            mask[row, place[key]] = True
    return _without_empty(mask), given


def _from_matrix(array: np.ndarray, given: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    wrong = np.argwhere((array != 0) & (array != 1))
    if len(wrong):
        row, column = wrong[0]
        raise ValueError(
            f"candidate matrix holds {array[row, column]} at row {row}, column {column}: only 0 and 1 may be"
        )
    classes = np.arange(array.shape[1]) if given is None else given
    if len(classes) != array.shape[1]:
        raise ValueError(f"candidate matrix has {array.shape[1]} columns for {len(classes)} classes")
    return _without_empty(array.astype(bool)), classes


def _from_labels(array: np.ndarray, given: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    classes = np.unique(array) if given is None else given
    order = np.argsort(classes, kind="stable")
    place = np.clip(np.searchsorted(classes, array, sorter=order), 0, len(classes) - 1)
    place = order[place]
    unknown = np.flatnonzero(classes[place] != array)
    if len(unknown):
        raise ValueError(f"label {array[unknown[0]].item()!r} of example {unknown[0]} is not among the classes")
    mask = np.zeros((len(array), len(classes)), dtype=bool)
    mask[np.arange(len(array)), place] = True
    return mask, classes


def _without_empty(mask: np.ndarray) -> np.ndarray:
    empty = np.flatnonzero(~mask.any(axis=1))
    if len(empty):
        raise ValueError(f"candidate set of example {empty[0]} is empty ({len(empty)} of {len(mask)} are)")
    return mask


def covering_rate(estimator: Any, X: Any, y: Any) -> float:
    """Score, for `scoring=`: the share of examples whose predicted class is a candidate."""
    logits, mask = _log_probabilities(estimator, X, y)
    return float(metrics.covering_rate(logits, mask))


def approximated_accuracy(estimator: Any, X: Any, y: Any) -> float:
    """Score, for `scoring=`: the mean confidence that the predicted class is the true one, given the set."""
    logits, mask = _log_probabilities(estimator, X, y)
    return float(metrics.approximated_accuracy(logits, mask))


def _log_probabilities(estimator: Any, X: Any, y: Any) -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.from_numpy(candidate_matrix(y, estimator.classes_)[0])
    probabilities = torch.from_numpy(np.asarray(estimator.predict_proba(X), dtype=np.float64))
    return probabilities.clamp(min=torch.finfo(torch.float64).tiny).log(), mask
