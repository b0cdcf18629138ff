"""Dense columns that a network finds hard, one trait at a time, beside a remedy and other models.

    python benchmarks/hard_columns.py --seeds 0 1 2

Each set is made: classes by columns with outliers, with a code for missing values, by categories
that are integers, by amounts, by hours, by rules for single columns; by few samples of columns
that share factors; by vectors that scatter alike in each class; by lengths beside constant columns;
and a thousand classes of three samples.
A third of each is left out for the test; beside few samples a class, 4000 others. Prints
accuracy in percent and the calibration error of the best class, means over seeds.
"""

import argparse
import warnings
from functools import partial

import numpy as np
from few_classes import judge, scaled
from sklearn.datasets import make_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, RobustScaler, normalize
from sklearn.tree import DecisionTreeRegressor

from sklearn_xlc import MultiHeadClassifier

CODE = -999.0
#: Classes of boosted trees, at most: they take minutes for hundreds.
MOST_OF_TREES = 50


def default(seed, *remedies):
    return make_pipeline(*remedies, MultiHeadClassifier(random_state=seed))


def blobs(rng, n_samples=1500, n_features=20):
    return make_classification(
        n_samples,
        n_features,
        n_informative=8,
        n_classes=5,
        class_sep=1.5,
        random_state=rng.randint(2**31),
    )


def with_outliers(rng):
    """A cell in five hundred is a thousand times as large."""
    X, y = blobs(rng)
    return np.where(rng.random_sample(X.shape) < 0.002, 1000 * X, X), y


def with_codes(rng):
    """A tenth of the cells is missing."""
    X, y = blobs(rng)
    return np.where(rng.random_sample(X.shape) < 0.1, CODE, X), y


def categories(rng):
    """Each of 12 categories in 10 columns has effects of its own on four classes."""
    X = rng.randint(12, size=(3000, 10))
    effects = rng.normal(size=(10, 12, 4))
    scores = sum(effects[column, X[:, column]] for column in range(10))
    return X.astype(np.float64), (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)


def amounts(rng):
    """Logarithms of amounts tell three classes apart, in 8 of 200 columns."""
    y = rng.randint(3, size=600)
    X = 0.8 * rng.normal(size=(600, 200))
    X[:, :8] += 0.64 * rng.normal(size=(3, 8))[y]
    return np.exp(X + rng.normal(size=200)), y


def angles(rng):
    """Hours of a day tell two shifts apart, in two columns of many days."""
    X = np.c_[240 * rng.random_sample((3000, 2)), rng.normal(size=(3000, 3))]
    turns = 2 * np.pi * X[:, :2] / 24
    return X, (np.sin(turns[:, 0]) + np.cos(turns[:, 1]) + 0.3 * rng.normal(size=3000) > 0) * 1


def as_circles(X):
    turns = 2 * np.pi * X[:, :2] / 24
    return np.c_[np.sin(turns), np.cos(turns), X[:, 2:]]


def rules(rng):
    """A tree of 40 leaves over 6 of 20 columns names one of four classes."""
    X = rng.random_sample((3000, 20))
    tree = DecisionTreeRegressor(max_leaf_nodes=40, random_state=rng.randint(2**31))
    leaves = tree.fit(X[:500, :6], rng.normal(size=500)).apply(X[:, :6])
    return X, rng.randint(4, size=tree.tree_.node_count)[leaves]


def shared_factors(rng):
    """200 samples of 2000 columns: ten strong factors, and two classes by 50 columns."""
    y = rng.randint(2, size=300)
    X = 3 * rng.normal(size=(300, 10)) @ rng.normal(size=(10, 2000)) + rng.normal(size=(300, 2000))
    X[:, :50] += 0.6 * rng.normal(size=50) * (2 * y[:, None] - 1)
    return X, y


def faces(rng):
    """Unit vectors of 600 classes, 5 to 15 each, that scatter alike, most in some directions."""
    y = np.repeat(np.arange(600), rng.randint(5, 16, 600))
    spread = np.exp(-np.arange(128) / 60)
    X = rng.normal(size=(600, 128))[y] * np.exp(-np.arange(128) / 40)
    X += 1.1 * spread * rng.normal(size=X.shape)
    order, turn = rng.permutation(len(y)), np.linalg.qr(rng.normal(size=(128, 128)))[0]
    return normalize(X @ turn)[order], y[order]


def spirals(rng):
    """Two spirals beside ten constant columns."""
    y, length = rng.randint(2, size=1500), 3 * np.pi * rng.random_sample(1500)
    turn = length + np.pi * y
    X = length[:, None] * np.c_[np.cos(turn), np.sin(turn)] + 0.2 * rng.normal(size=(1500, 2))
    return np.c_[X, np.tile(7.0 * np.arange(10), (1500, 1))], y


def few_a_class(rng, n_classes, n_each, noise):
    """Samples of classes of one size, around centres; two thirds are fitted."""
    centres = rng.normal(size=(n_classes, 64))
    y = np.concatenate([np.repeat(np.arange(n_classes), n_each), rng.randint(n_classes, size=4000)])
    return centres[y] + noise * rng.normal(size=(len(y), 64)), y


def clipped():
    keep = FunctionTransformer(np.clip, kw_args={"a_min": -5, "a_max": 5})
    return make_pipeline(RobustScaler(), keep)


#: Traits: what makes a set, what makes the remedy, and the samples of the fit (two thirds).
SETS = {
    "no trait": (blobs, None, None),
    "outliers": (with_outliers, clipped, None),
    "-999 for missing": (
        with_codes,
        lambda: SimpleImputer(missing_values=CODE, add_indicator=True),
        None,
    ),
    "integers for categories": (
        categories,
        lambda: OneHotEncoder(handle_unknown="ignore", sparse_output=False),
        None,
    ),
    "amounts": (amounts, lambda: FunctionTransformer(np.log), None),
    "hours of many days": (angles, lambda: FunctionTransformer(as_circles), None),
    "rules for columns": (rules, None, None),
    "shared factors": (shared_factors, None, None),
    "600 classes that scatter alike": (
        faces,
        lambda: LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.05),
        None,
    ),
    "spirals, constant columns": (spirals, None, None),
    "600 classes of 3": (partial(few_a_class, n_classes=600, n_each=3, noise=1.2), None, 1800),
    "1000 classes of 3": (partial(few_a_class, n_classes=1000, n_each=3, noise=1.2), None, 3000),
    "100 classes of 20": (partial(few_a_class, n_classes=100, n_each=20, noise=2.0), None, 2000),
}
PEERS = {
    "logistic regression": scaled(lambda seed: LogisticRegression(max_iter=1000)),
    "boosted trees": lambda seed: HistGradientBoostingClassifier(random_state=seed),
}


def measure(make, draw, n_train, seed):
    """Accuracy in percent and calibration error of a fit to a set that is made anew."""
    X, y = draw(np.random.RandomState(seed))
    n_train = n_train or 2 * len(y) // 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = make(seed).fit(X[:n_train], y[:n_train])
    test = n_train + np.flatnonzero(np.isin(y[n_train:], model.classes_))
    accuracy, _, error = judge(model, X[test], y[test])
    return accuracy, error


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    args = parser.parse_args()
    print("| columns | default | with the remedy | " + " | ".join(PEERS) + " |")
    print("|---|---|---|" + len(PEERS) * "---|")
    for name in args.sets:
        draw, remedy, n_train = SETS[name]
        models = [default, remedy and (lambda seed, make=remedy: default(seed, make()))]
        has_few = len(np.unique(draw(np.random.RandomState(0))[1])) <= MOST_OF_TREES
        models += [
            make if has_few or peer != "boosted trees" else None for peer, make in PEERS.items()
        ]
        cells = []
        for make in models:
            found = make and [measure(make, draw, n_train, seed) for seed in args.seeds]
            cells.append("{:.1f}, {:.3f}".format(*np.mean(found, axis=0)) if found else "")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
