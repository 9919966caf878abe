"""PartialLabelClassifier among scikit-learn's own tools."""

from __future__ import annotations

import inspect
import pickle
import re
import warnings

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from wsl_toolkit.sklearn import (
    CHECKS_THAT_CANNOT_APPLY,
    PartialLabelClassifier,
    approximated_accuracy,
    candidate_matrix,
    covering_rate,
)

NAMES = np.array(["chat noir", "chien", "éléphant", "oie"])


@pytest.fixture(scope="module")
def blobs():
    """Four blobs; each set holds the true class and each wrong one with probability 0.3."""
    X, y = make_blobs(300, centers=4, cluster_std=0.6, random_state=0)
    rng = np.random.default_rng(0)
    mask = rng.random((300, 4)) < 0.3
    mask[np.arange(300), y] = True
    mask[mask.all(1)] = np.eye(4, dtype=bool)[y[mask.all(1)]]
    return X, y, mask.astype(int)


def quick(**more):
    return PartialLabelClassifier(epochs=20, **more)


def test_scikit_learns_checks_pass_except_those_listed_by_name():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(PartialLabelClassifier(epochs=25), on_fail=None, on_skip=None)
    not_passed = {r["check_name"]: repr(r["exception"])[:200] for r in results if r["status"] != "passed"}
    assert not_passed.keys() == CHECKS_THAT_CANNOT_APPLY.keys(), not_passed
    assert len(results) > 50


def test_all_forms_of_the_same_sets_give_the_same_classifier(blobs):
    X, _, mask = blobs
    sets = [{int(j) for j in np.flatnonzero(row)} for row in mask]
    texts = ["|".join(str(j) for j in np.flatnonzero(row)) for row in mask]
    reference = quick().fit(X, mask).predict_proba(X)
    for form in (mask.tolist(), mask.astype(bool), csr_matrix(mask), sets, [sorted(s) for s in sets]):
        np.testing.assert_array_equal(quick().fit(X, form).predict_proba(X), reference)
    by_text = quick().fit(X, texts)
    assert by_text.classes_.tolist() == ["0", "1", "2", "3"]
    np.testing.assert_array_equal(by_text.predict_proba(X), reference)


def test_partial_labels_suffice_to_learn_the_true_classes(blobs):
    X, y, mask = blobs
    model = quick().fit(X, mask)
    assert np.mean(model.predict(X) == y) > 0.95
    assert model.score(X, mask) == pytest.approx(covering_rate(model, X, mask))
    assert model.score(X, y) == np.mean(model.predict(X) == y)
    assert 0.9 < approximated_accuracy(model, X, mask) <= 1


def test_class_names_come_back_from_predict_and_disambiguate(blobs):
    X, y, mask = blobs
    named = [[NAMES[j] for j in np.flatnonzero(row)] for row in mask]
    model = quick(classes=NAMES).fit(X, named)
    assert model.classes_.tolist() == NAMES.tolist()
    labels, confidence = model.disambiguate(X, named)
    assert all(label in members for label, members in zip(labels, named, strict=True))
    assert np.mean(labels == NAMES[y]) > 0.95
    assert ((confidence > 0) & (confidence <= 1)).all()
    alone = np.array([len(members) == 1 for members in named])
    np.testing.assert_allclose(confidence[alone], 1)


def test_it_works_in_pipelines_grid_searches_cross_validation_and_clones(blobs):
    X, _, mask = blobs
    pipeline = make_pipeline(StandardScaler(), quick(scale=False)).fit(X, mask)
    assert pipeline.score(X, mask) > 0.9
    search = GridSearchCV(quick(), {"lr": [1e-5, 0.05]}, scoring=approximated_accuracy, cv=3).fit(X, mask)
    assert search.best_params_ == {"lr": 0.05}
    assert cross_val_score(quick(), X, mask, scoring=covering_rate, cv=3).min() > 0.9
    texts = np.array(["|".join(NAMES[j] for j in np.flatnonzero(row)) for row in mask])
    assert cross_val_score(quick(classes=NAMES), X, texts, cv=KFold(3)).min() > 0.9
    model = quick(estimator="cc", estimator_params={}).fit(X, mask)
    assert clone(model).get_params() == model.get_params()
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_a_full_set_is_an_unlabelled_example_and_changes_nothing(blobs):
    X, _, mask = blobs
    more_x, more_mask = np.vstack([X, X[:1] * 0]), np.vstack([mask, np.ones((1, 4), dtype=int)])
    # Without scaling, which would see the new row, and in one batch, so that shuffling does not matter.
    one = quick(scale=False, batch_size=1000, lr=0.01)
    before, after = (clone(one).fit(a, b).predict_proba(X) for a, b in ((X, mask), (more_x, more_mask)))
    np.testing.assert_allclose(before, after, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([[0, 0], [1, 0]], "candidate set of example 0 is empty"),
        ([[0, 2], [1, 0]], None),
        ([{0}, set()], "candidate set of example 1 is empty"),
        (np.array([[0, 0.5], [1, 0]]), "candidate matrix holds"),
        ([[1, 1], [1, 1]], "nothing to learn from"),
        ([{0}, {1}, {0}], "2 examples and y has 3"),
        (None, "y is None"),
    ],
)
def test_bad_targets_are_refused_with_their_place(targets, message):
    X = np.array([[0.0], [1.0]])
    if message is None:
        assert quick().fit(X, targets).classes_.tolist() == [0, 1, 2]
        return
    with pytest.raises(ValueError, match=message):
        quick().fit(X, targets)


def test_an_unknown_class_or_component_is_a_value_error_that_names_it(blobs):
    X, _, mask = blobs
    with pytest.raises(ValueError, match="'poule', which is not among the classes"):
        quick(classes=NAMES).fit(X[:2], [{"oie"}, {"poule"}])
    with pytest.raises(ValueError, match="no estimator is named 'pppl'"):
        quick(estimator="pppl").fit(X, mask)
    with pytest.raises(ValueError, match="label 7 of example 1"):
        candidate_matrix([0, 7], classes=[0, 1])


def test_early_stopping_watches_held_out_candidate_sets_and_keeps_the_best_epoch() -> None:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    sets = rng.random((len(y), 10)) < 0.3
    sets[np.arange(len(y)), y] = True
    model = PartialLabelClassifier(epochs=60, early_stopping=True, n_iter_no_change=3, keep="best").fit(X, sets)
    assert model.best_epoch_ is not None
    assert model.n_iter_ == len(model.loss_curve_) < 60
    assert model.n_iter_ - model.best_epoch_ == 3
    assert model.score(X, y) > 0.8


def test_too_small_a_part_to_watch_is_an_error() -> None:
    X, sets = np.eye(4), np.eye(4, dtype=bool)
    with pytest.raises(ValueError, match="leaves nothing to train on or to watch"):
        PartialLabelClassifier(early_stopping=True, validation_fraction=0.01).fit(X, sets)


# ------------------------------------------------------------------------------------------------ scikit-learn's habits


def test_a_weight_counts_as_often_as_an_example_is_there(blobs):
    X, _, mask = blobs
    times = np.random.default_rng(1).integers(0, 3, size=len(X))
    one = quick(scale=False, batch_size=1000, lr=0.05)  # one batch, so that shuffling does not matter
    weighted = clone(one).fit(X, mask, sample_weight=times)
    repeated = clone(one).fit(np.repeat(X, times, axis=0), np.repeat(mask, times, axis=0))
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-3, atol=1e-5)
    plain = clone(one).fit(X, mask)
    all_alike = clone(one).fit(X, mask, sample_weight=np.full(300, 7.0))
    np.testing.assert_allclose(all_alike.predict_proba(X), plain.predict_proba(X), rtol=1e-4, atol=1e-6)
    assert np.abs(weighted.predict_proba(X) - plain.predict_proba(X)).max() > 1e-3
    with pytest.raises(ValueError, match="zero"):
        clone(one).fit(X, mask, sample_weight=np.zeros(300))
    with pytest.raises(ValueError, match="Negative values"):
        clone(one).fit(X, mask, sample_weight=-np.ones(300))
    with pytest.raises(ValueError, match="works on whole batches, in which examples cannot be weighted"):
        quick(estimator="cl-ga").fit(X, mask, sample_weight=times)


def test_a_warm_start_goes_on_where_the_fit_before_ended(blobs):
    X, y, mask = blobs
    model = PartialLabelClassifier("cc", epochs=1, lr=0.05, warm_start=True)
    losses = [model.fit(X, mask).loss_curve_[0] for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.9 * losses[0]
    cold = PartialLabelClassifier("cc", epochs=1, lr=0.05)
    assert cold.fit(X, mask).loss_curve_ == cold.fit(X, mask).loss_curve_
    only_two = mask[:, :2][mask[:, :2].any(1)]
    with pytest.raises(ValueError, match="2 columns for 4 classes"):
        model.fit(X[: len(only_two)], only_two)
    assert np.mean(model.fit(X, mask).predict(X) == y) > 0.5


def test_partial_fit_learns_from_piece_after_piece(blobs):
    X, y, mask = blobs
    model = PartialLabelClassifier(lr=0.05, batch_size=20)
    with pytest.raises(ValueError, match="the first call of partial_fit needs classes"):
        model.partial_fit(X[:50], mask[:50])
    for _ in range(6):
        for start in range(0, 300, 50):
            part = slice(start, start + 50)
            model.partial_fit(X[part], mask[part], classes=[0, 1, 2, 3])
    assert model.n_iter_ == 36
    assert np.mean(model.predict(X) == y) > 0.9
    with pytest.raises(ValueError, match="classes must be those of the first call"):
        model.partial_fit(X[:50], mask[:50], classes=[1, 2, 3, 4])
    sets = [{0, 1}] * 10  # of some classes only
    assert model.partial_fit(X[:10], sets).classes_.tolist() == [0, 1, 2, 3]


def test_data_frames_give_names_to_features_and_classes(blobs):
    import pandas as pd

    X, y, mask = blobs
    frame = pd.DataFrame(X, columns=["width", "height"])
    sets = pd.DataFrame(mask, columns=NAMES)
    model = quick().fit(frame, sets)
    assert model.feature_names_in_.tolist() == ["width", "height"]
    assert model.classes_.tolist() == NAMES.tolist()
    assert np.mean(model.predict(frame) == NAMES[y]) > 0.95
    pipeline = make_pipeline(StandardScaler().set_output(transform="pandas"), quick(scale=False)).fit(frame, sets)
    assert pipeline[-1].feature_names_in_.tolist() == ["width", "height"]
    texts = pd.Series(["|".join(NAMES[j] for j in np.flatnonzero(row)) for row in mask])
    assert np.array_equal(quick().fit(frame, texts).predict(frame), model.predict(frame))
    texts[7] = None
    with pytest.raises(ValueError, match="candidate set of example 7 is missing"):
        quick().fit(frame, texts)
    sets = sets.astype(float)
    sets.iloc[3, 1] = np.nan
    with pytest.raises(ValueError, match="candidate set of example 3 is missing"):
        quick().fit(frame, sets)


def test_history_log_probabilities_callbacks_and_printed_epochs(blobs, capsys):
    from wsl_toolkit import Callback

    class StopAtThree(Callback):
        def on_epoch_end(self, record):
            record.log("squared", record.epoch**2)
            return record.epoch == 3

    X, _, mask = blobs
    model = quick(callbacks=[StopAtThree()], verbose=True, early_stopping=True, validation_fraction=0.2).fit(X, mask)
    assert model.n_iter_ == 3
    assert list(model.history_["epoch"]) == [1, 2, 3]
    assert list(model.history_["squared"]) == [1, 4, 9]
    assert "validation/covering_rate" in model.history_
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
    assert np.isfinite(model.predict_log_proba(1e6 * X)).all()
    assert capsys.readouterr().out.count("epoch ") == 3
    assert clone(model).get_params()["verbose"] is True


def test_every_parameter_and_attribute_has_an_entry_of_its_own_with_its_default(blobs):
    X, _, mask = blobs
    model = quick().fit(X, mask)
    sections = re.split(r"\n    (\w+)\n    -+\n", PartialLabelClassifier.__doc__)
    entries = {
        section: dict(re.findall(r"^    (\w+) : (.+)\n(?:        .{15,}\n?)+", text, flags=re.MULTILINE))
        for section, text in zip(sections[1::2], sections[2::2], strict=True)
    }
    signature = inspect.signature(PartialLabelClassifier.__init__)
    defaults = {name: each.default for name, each in signature.parameters.items() if name != "self"}
    assert list(entries["Parameters"]) == list(defaults)
    for name, kind in entries["Parameters"].items():
        shown = repr(defaults[name]).replace("'", '"')
        assert kind.endswith(f"default={shown}"), (name, kind)
    fitted = {name for name in vars(model) if name.endswith("_") and not name.startswith("_")}
    assert fitted <= set(entries["Attributes"])
