"""Bad parameters: each refused with a message that names what is wrong, where, and what to do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from generator_cases import create

from wsl_toolkit.errors import ConfigError, LabelError, UnknownComponentError, WslError


def sample(generator, num_classes):
    y = torch.arange(num_classes)
    return generator.sample(torch.zeros(num_classes, 2), y, num_classes, torch.Generator())


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("mcl-skewed", {"alpha": 0}, "alpha must be > 0, not 0"),
        ("mcl-skewed", {"alpha": -1.5}, "alpha must be > 0"),
        ("mcl-skewed", {"alpha": float("nan")}, "finite"),
        ("mcl-skewed", {"alpa": 0.7}, "unknown parameter 'alpa'. Did you mean 'alpha'"),
        ("mcl", {"sizes": (0.5, 0.4)}, "sizes must sum to 1, not to 0.9"),
        ("mcl", {"sizes": (1.5, -0.5)}, "sizes must be >= 0"),
        ("flip", {"q": 1}, "q must be >= 0, < 1, not 1"),
        ("flip", {"q": -0.1}, "q must be"),
        ("flip-class", {"matrix": "pari"}, "neither a preset nor a .csv or .npy file. Did you mean 'pair'"),
        ("flip-class", {"matrix": "nowhere.csv"}, "there is no file nowhere.csv"),
        ("flip-class", {"rate": 1.2}, "rate must be"),
        ("cl-biased", {"matrix": "matrix.mat"}, "must be a .npy, .csv or .txt file"),
        ("flip-instance", {"rate": 1}, "rate must be > 0, < 1"),
        ("flip-instance", {"epochs": 0}, "epochs must be >= 1"),
        ("flip-instance", {"scale": "mean"}, "scale must be one of mean-wrong, mean-all, max"),
        ("flip", {"singletons": "gone"}, "singletons must be one of kept, extended"),
        ("flip-superclass", {"groups": "cifar10"}, "is no preset .*Did you mean 'cifar100'"),
        ("flip-superclass", {"groups": "0 1 2"}, "single block"),
        ("annotators", {"abilities": (0.5, 0.0)}, "abilities must be > 0, <= 1"),
        ("annotators", {"abilities": ()}, "1 to 100 people, not of 0"),
        ("annotators", {"combine": "mean"}, "combine must be one of union, vote"),
        ("proper-instance", {"alpha_low": 0.9, "alpha_high": 0.5}, "must not exceed alpha_high"),
        ("noisy", {"eta": 1.1}, "eta must be"),
        ("noisy", {"options": "alpha"}, "name=value"),
        ("noisy", {"options": "alpha=-1"}, "mcl-skewed: alpha must be > 0"),
        ("noisy", {"wraps": "noisy"}, "wrap a generator that keeps it"),
        ("partition", {"partitions": "0 1 2"}, "single block"),
        ("partition", {"partitions": "0 1|x"}, "'x' is neither a class"),
        ("partition", {"partitions": "0 1|5-3"}, "ends before it begins"),
        ("partition", {"partitions": "0 1| "}, "holds no classes"),
        ("partition", {"partitions": " ; "}, "no partition is given"),
        ("partition", {"partitions": "0 0|1"}, "class 0 is named twice"),
        ("partition", {"partitions": "@nowhere.txt"}, "cannot read nowhere.txt"),
        ("partition", {"partitions": "0|1", "weights": (0.5, 0.5)}, "2 weights were given for 1"),
        ("partition", {"partitions": "0|1", "weights": (0.0,)}, "at least one weight must be positive"),
        ("query", {"queries": "treshold"}, "is no preset .*Did you mean 'thresholds'"),
        ("query", {"queries": "uniform", "weights": (1.0,)}, "take no weights"),
        ("query", {"queries": ""}, "no query is given"),
    ],
)
def test_wrong_parameters_are_refused_when_the_generator_is_made(name, values, message):
    with pytest.raises(ConfigError, match=message):
        create(name, **values)


def test_an_unknown_generator_to_wrap_is_named_with_the_nearest():
    with pytest.raises(UnknownComponentError, match=r"no generator is named 'mcl-skew'\. Did you mean 'mcl-skewed'"):
        create("noisy", wraps="mcl-skew")


@pytest.mark.parametrize(
    ("name", "values", "num_classes", "message"),
    [
        ("mcl", {"sizes": (0.25, 0.25, 0.25, 0.25)}, 4, "sizes has 4 entries, but 4 classes leave room for 1 to 3"),
        ("flip-class", {"matrix": "neighbours", "rate": 1.0}, 3, "only the full set could be drawn"),
        ("flip-class", {"matrix": "uniform", "rate": 1.0}, 5, "only the full set"),
        ("partition", {"partitions": "0 1|2"}, 4, "does not hold each class of 0 to 3 exactly once"),
        ("partition", {"partitions": "0 1|1 2 3"}, 4, "exactly once"),
        ("flip-superclass", {"groups": "cifar100"}, 10, "each class of 0 to 9 exactly once"),
        ("query", {"queries": "0 7"}, 4, "'0 7' names a class out of range 0 to 3"),
        ("query", {"queries": "0-3"}, 4, "asks about all 4 classes"),
        ("query", {"queries": "singletons", "weights": (1.0, 2.0)}, 4, "2 weights were given for 4"),
        ("noisy", {"wraps": "mcl", "options": "sizes=0.5,0.2,0.2,0.1"}, 4, "mcl: sizes has 4 entries"),
    ],
)
def test_parameters_that_do_not_fit_the_classes_are_refused_before_drawing(name, values, num_classes, message):
    with pytest.raises(ConfigError, match=message):
        sample(create(name, **values), num_classes)


@pytest.mark.parametrize(
    "name", ["cl", "mcl", "mcl-skewed", "pcpl", "partition", "query", "flip", "flip-class", "cl-biased", "noisy"]
)
def test_two_classes_make_no_sense(name):
    with pytest.raises(LabelError, match=f"{name} needs at least 3 classes, not 2"):
        sample(create(name), 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,1\n1,0\n", "is 2×2, but 3 classes need 3×3"),
        ("0,1,0\n0,0,1\n", "is 2×3, but 3 classes need 3×3"),
        ("0,1,0\n0,0\n1,0,0\n", "does not hold a matrix of numbers"),
        ("0,a,0\n", "does not hold a matrix of numbers"),
        ("", "not a matrix|does not hold"),
        ("0,nan,1\n1,0,0\n1,0,0\n", "no finite number at row 0, column 1"),
        ("0,2,-1\n1,0,0\n1,0,0\n", "has 2 at row 0, column 1: not in 0..1"),
        ("0.5,0.5,0\n1,0,0\n1,0,0\n", "0.5 on its diagonal at class 0"),
        ("0,0.5,0.4\n1,0,0\n1,0,0\n", "row 0 sums to 0.9, not to 1"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*input contained no data")
def test_a_wrong_matrix_of_complementary_labels_is_refused(tmp_path, text, message):
    path = tmp_path / "matrix.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        sample(create("cl-biased", matrix=str(path)), 3)


def test_a_matrix_file_with_a_row_of_ones_is_refused(tmp_path):
    path = tmp_path / "ones.npy"
    np.save(path, np.array([[1, 0.5, 0.5], [1, 1, 1], [0, 0, 0]]))
    with pytest.raises(ConfigError, match="every wrong label join class 1 with probability 1"):
        sample(create("flip-class", matrix=str(path)), 3)


def test_pickled_arrays_are_never_loaded(tmp_path):
    path = tmp_path / "trap.npy"
    np.save(path, np.array([[object()]], dtype=object), allow_pickle=True)
    with pytest.raises(ConfigError, match="does not hold a matrix of numbers"):
        create("flip-class", matrix=str(path))


def test_every_refusal_is_one_of_ours():
    for name, values in (("mcl", {"sizes": "0.5,x"}), ("flip", {"q": "much"}), ("flip-instance", {"epochs": 1.5})):
        with pytest.raises(WslError):
            create(name, **values)
