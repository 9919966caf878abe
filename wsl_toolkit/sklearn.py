"""Partial labels in scikit-learn: `PartialLabelClassifier`, and scorers that need no true label.

    from wsl_toolkit.sklearn import PartialLabelClassifier, approximated_accuracy
    model = PartialLabelClassifier(estimator="ppl", backbone="linear").fit(X, S)

S is a 0/1 matrix [n, K], a list of sets (or lists, or tuples) of classes, texts such as "cat|dog", or ordinary
labels, which are sets of one class. Cross-validation wants the matrix: scikit-learn cannot cut lists of sets into
folds (`candidate_matrix` makes one).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from wsl_toolkit.components import Backbone, Callback
from wsl_toolkit.data.dataset import Data, Preprocessor, transform_inputs
from wsl_toolkit.errors import WslError
from wsl_toolkit.labels.array_sets import candidate_matrix
from wsl_toolkit.labels.candidate_sets import CandidateSets
from wsl_toolkit.own_data import fitting
from wsl_toolkit.plugins.loading import load_plugins
from wsl_toolkit.system.random_streams import stream
from wsl_toolkit.training import formulas
from wsl_toolkit.training.build import check_training
from wsl_toolkit.training.config import Training
from wsl_toolkit.training.engine import EpochRecord
from wsl_toolkit.training.engine import predict as network_logits
from wsl_toolkit.training.jobs import JobListener, history_frame
from wsl_toolkit.training.train import TrainingJob, train

CHECKS_THAT_CANNOT_APPLY = {
    "check_array_api_input": "networks take tensors made from NumPy arrays; other array libraries are not supported",
    "check_sample_weight_equivalence_on_dense_data": "batches are cut from the examples as they are: one of weight 2 "
    "is in one batch, one that is there twice may be in two (in a single batch they are equal, as a test shows)",
}
"""scikit-learn's estimator checks that cannot apply, by name, with the reason. Set-valued targets rule out none:
ordinary labels, which all checks use, are sets of one class."""


@attrs.frozen(kw_only=True, eq=False)
class _Before(Preprocessor):
    """What an earlier fit left to go on from; raw inputs are scaled as they were then."""

    network: torch.nn.Module
    transform: torch.nn.Module

    def fit(self, x: torch.Tensor) -> torch.nn.Module:
        """Learn nothing: the scaling is there."""
        return self.transform

    def problem(self, x: torch.Tensor) -> str | None:
        """scikit-learn has refused what is not finite."""
        return None


@attrs.frozen(kw_only=True, eq=False)
class _Continued(Backbone):
    """A network that begins with the weights of an earlier one."""

    backbone: Backbone
    weights: dict[str, torch.Tensor] = attrs.field(repr=False)

    def build(self, input_shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
        """Build the network, and give it the weights."""
        network = self.backbone.build(input_shape, num_classes)
        network.load_state_dict(self.weights)
        return network


class _Printer(JobListener):
    """Prints a line an epoch."""

    def on_epoch_end(self, record: EpochRecord) -> None:
        """Print the epoch's metrics."""
        print(f"epoch {record.epoch}: " + ", ".join(f"{name} {value:.4f}" for name, value in record.metrics.items()))


class PartialLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier that learns from candidate sets: any installed estimator, any installed backbone.

    Parameters
    ----------
    estimator : str, default="ppl"
        How to learn from candidate sets; `wsl list estimator` names what is installed.
    backbone : str, default="linear"
        The network; `wsl list backbone` names what is installed.
    estimator_params : dict or None, default=None
        The estimator's own parameters, as `wsl show estimator NAME` lists them.
    backbone_params : dict or None, default=None
        The network's own parameters, as `wsl show backbone NAME` lists them.
    classes : sequence or None, default=None
        Names of the columns of a 0/1 matrix, or the order of the classes; None: as found in the candidate sets, or the
        columns' names where these are a DataFrame of zeros and ones.
    epochs : int, default=100
        Passes over the training data, at most.
    batch_size : int, default=64
        Examples in a mini-batch.
    lr : float, default=0.05
        Learning rate: the size of a step.
    weight_decay : float, default=0.0001
        l2 regularisation: how strongly weights are drawn to 0.
    optimizer : str, default="sgd"
        Any optimiser of torch.optim, by its name in lower case.
    momentum : float, default=0.9
        How much of the last step goes on in the next, for optimisers that have it.
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
    warm_start : bool, default=False
        Whether `fit` goes on from the network, the scaling and the classes of the fit before.
    callbacks : sequence of wsl_toolkit.Callback or None, default=None
        Who hears of each epoch, may log, and may end the training.
    verbose : bool, default=False
        Whether to print a line an epoch.
    device : str, default="auto"
        Where to train: auto, cpu, cuda, cuda:1 or mps.
    random_state : int, RandomState or None, default=0
        What all randomness derives from.

    Attributes
    ----------
    classes_ : ndarray
        The classes, in the order of `predict_proba`'s columns.
    n_iter_ : int
        How many epochs were trained; `partial_fit` counts on.
    n_features_in_ : int
        How many features there were.
    feature_names_in_ : ndarray of str
        Their names, where X was a DataFrame.
    history_ : pandas.DataFrame
        A row an epoch: its number, every metric, its seconds.
    best_epoch_ : int or None
        The epoch whose model was kept, where `keep` is "best".
    loss_curve_ : list of float
        The empirical risk after each epoch.
    network_ : torch.nn.Module
        The trained network.
    transform_ : torch.nn.Module
        What turns raw inputs into the network's.
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
        warm_start: bool = False,
        callbacks: Sequence[Callback] | None = None,
        verbose: bool = False,
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
        self.warm_start = warm_start
        self.callbacks = callbacks
        self.verbose = verbose
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> PartialLabelClassifier:
        """Learn from inputs and candidate sets.

        Parameters
        ----------
        X : array-like or DataFrame, [n, d]
            The inputs.
        y : 0/1 matrix, sequence of sets, texts such as "cat|dog", or labels, n of them
            The candidate sets; a missing one is an error, and a full one is an unlabelled example.
        sample_weight : array-like or None, default=None, [n]
            How much each example counts.
        """
        before = self._before() if self.warm_start and hasattr(self, "network_") else None
        return self._fit(X, y, self.classes if before is None else self.classes_, sample_weight, before, self.epochs)

    def partial_fit(
        self, X: Any, y: Any, classes: Sequence[Any] | None = None, sample_weight: Any = None
    ) -> PartialLabelClassifier:
        """Go on from the present network with one pass over some examples; the first call names all `classes`.

        Features are scaled as the first call's examples say. State that a method keeps for each example (confidences)
        lasts for the pass alone.
        """
        first = not hasattr(self, "network_")
        known = (classes if classes is not None else self.classes) if first else self.classes_
        if first and known is None:
            raise ValueError("the first call of partial_fit needs classes: all that will ever be candidates")
        if not first and classes is not None and list(classes) != list(self.classes_):
            raise ValueError(f"classes must be those of the first call, {list(self.classes_)}, not {list(classes)}")
        done = 0 if first else self.n_iter_
        self._fit(X, y, known, sample_weight, None if first else self._before(), 1)
        self.n_iter_ += done
        return self

    def _before(self) -> _Before:
        return _Before(network=self.network_, transform=self.transform_)

    def _fit(
        self, X: Any, y: Any, known: Any, sample_weight: Any, before: _Before | None, epochs: int
    ) -> PartialLabelClassifier:
        X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=1, reset=before is None)
        mask, classes = candidate_matrix(y, known)
        if len(mask) != len(X):
            raise ValueError(f"X has {len(X)} examples and y has {len(mask)} candidate sets")
        if mask.shape[1] < 2:
            raise ValueError(f"a classifier needs at least 2 classes, but y has 1 class: {classes[0]!r}")
        weights = None
        if sample_weight is not None:
            weights = torch.from_numpy(
                _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            )
            if not bool((weights > 0).any()):
                raise ValueError("all sample weights are zero: there is nothing to learn from")
        try:
            self._train(X, mask, weights, before, epochs)
        except WslError as error:
            raise ValueError(str(error)) from error
        self.classes_ = classes
        return self

    def _train(
        self, X: np.ndarray, mask: np.ndarray, weights: torch.Tensor | None, before: _Before | None, epochs: int
    ) -> None:
        registry = load_plugins().registry
        estimator = registry.create("estimator", self.estimator, self.estimator_params or {})
        backbone = registry.create("backbone", self.backbone, self.backbone_params or {})
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        training = self._training(epochs, seed)
        check_training(training)
        normalise: Any = "per-feature" if self.scale else "none"
        data = Data(
            name="X",
            x=torch.from_numpy(np.ascontiguousarray(X)),
            candidates=CandidateSets.from_mask(mask),
            num_classes=mask.shape[1],
            normalise=normalise if before is None else before,
            weights=weights,
        )
        if data.candidates is not None and len(data.candidates.labelled()) == 0:
            raise ValueError("every candidate set holds all classes: there is nothing to learn from")
        train_part, held_out = self._parts(len(X), seed)
        problem = fitting.make_own_problem(data, train_part, held_out)
        job = TrainingJob(
            problem=problem,
            estimator=estimator,
            backbone=backbone if before is None else _Continued(weights=before.network.state_dict(), backbone=backbone),
            training=training,
            seed=seed,
            listener=_Printer() if self.verbose else JobListener(),
            callbacks=tuple(self.callbacks or ()),
        )
        (result,) = train([job])
        self.network_ = result.model.cpu()
        self.transform_ = problem.transform
        self.history_ = history_frame(result.records)
        self.loss_curve_ = [record.metrics["train/risk"] for record in result.records]
        self.n_iter_ = len(result.records)
        self.best_epoch_ = result.best_epoch

    def _training(self, epochs: int, seed: int) -> Training:
        return Training(
            epochs=epochs,
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

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return log p(y|x) in the order of `classes_`, [n, K]."""
        return torch.log_softmax(self._logits(X).double(), dim=1).numpy()

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
        confidence, place = formulas.candidate_confidence(logits, self._mask(y)).max(1)
        return self.classes_[place.numpy()], confidence.numpy()

    def _mask(self, y: Any) -> torch.Tensor:
        """Return candidate sets as a mask over `classes_`."""
        return torch.from_numpy(candidate_matrix(y, self.classes_)[0])


def covering_rate(estimator: Any, X: Any, y: Any) -> float:
    """Score, for `scoring=`: the share of examples whose predicted class is a candidate."""
    logits, mask = _log_probabilities(estimator, X, y)
    return float(formulas.covering_rate(logits, mask))


def approximated_accuracy(estimator: Any, X: Any, y: Any) -> float:
    """Score, for `scoring=`: the mean confidence that the predicted class is the true one, given the set."""
    logits, mask = _log_probabilities(estimator, X, y)
    return float(formulas.approximated_accuracy(logits, mask))


def _log_probabilities(estimator: Any, X: Any, y: Any) -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.from_numpy(candidate_matrix(y, estimator.classes_)[0])
    probabilities = torch.from_numpy(np.asarray(estimator.predict_proba(X), dtype=np.float64))
    return probabilities.clamp(min=torch.finfo(torch.float64).tiny).log(), mask
