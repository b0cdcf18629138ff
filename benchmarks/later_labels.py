"""Accuracy on labels that come later, beside a classifier that knows them from the start.

    SKLEARN_XLC_DATA=FOLDER_OF_SETS python benchmarks/later_labels.py --seeds 0 1 2
    python benchmarks/later_labels.py --quick

Classes: three of twelve synthetic classes are withheld for 20 passes of `partial_fit`, and 30 more
passes have all; the other classifier makes 50 passes with all. Labels: a tenth of the labels of
`debdeps`, drawn at random, is withheld from `fit`, with all samples that have one of them; one call
of `partial_fit` then brings these samples. The other classifier is fitted to all samples at once.
P@1 is measured in test samples with a late label, and in all; "late" is the share of the late
labels' test entries among the five best labels of their samples. Streams: one pass of `partial_fit`
over the samples of `bibtex` and `debtags` in random order, batch by batch, with the default ranker
and with the network alone. In per cent. `--quick`: one seed, and a part of the samples.

With `--growths 0.02 0.05` each batch of streams of at most 20 000 samples is ranked before it is
learnt: P@1/3/5 of the last two thirds, and CPU seconds of learning and of ranking, where the index
is made anew when such a share of the samples is new.

With `--first FOLDER ...` up to a hundred labels, at most a tenth of those with six samples, are
withheld from `fit` with all samples that have them; then come one sample of each, and two more, by
two calls of `partial_fit`. In the other training samples that have such labels: the share of the
labels among the best five, P@1 of all labels, and CPU ms of the next prediction of one sample, of
the classifier as it is, and with an index made anew.
"""

import argparse
import itertools
import os
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _measure import load_part
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import make_extreme_multiclass
from sklearn_xlc.encoders import MLP
from sklearn_xlc.metrics import precision_at_k
from sklearn_xlc.ranking import streaming

N_CLASSES, N_FIRST, N_BEFORE, N_AFTER = 12, 9, 20, 30
#: Classifiers by name: the default one, and a small network with a high learning rate.
NETWORKS = {
    "default": {},
    "16 units": {"encoder": MLP((16,), dropout=0.0), "learning_rate": 0.02},
}


def dense(n_samples, seed, **params):
    """Gaussian clusters in 20 dense columns."""
    params = {"n_features": 20, "n_informative": 12, "n_clusters_per_class": 1, **params}
    X, y = make_classification(
        n_samples, n_classes=N_CLASSES, class_sep=1.5, random_state=seed, **params
    )
    return X.astype(np.float32), y


def overlapping(n_samples, seed):
    """Two clusters a class in 60 dense columns, of which half tell classes apart."""
    return dense(n_samples, seed, n_features=60, n_informative=30, n_clusters_per_class=2)


def sparse(n_samples, seed):
    """Sparse samples, most of whose features are noise."""
    return make_extreme_multiclass(
        n_samples, 200, N_CLASSES, zipf_exponent=0, noise=0.6, random_state=seed
    )


#: Synthetic sets: data, training samples, and samples of a late class (None: as many as others).
SETS = {
    "dense": (dense, 300, None),
    "dense, ten samples a late class": (dense, 300, 10),
    "dense, overlapping": (overlapping, 1000, None),
    "sparse": (sparse, 300, None),
    "sparse, ten samples a late class": (sparse, 300, 10),
}

#: Batches of the streams.
STREAMS = {"bibtex": 100, "debtags": 200}
#: Batches of further streams, for `--growths`.
LONGER = {"icd10cm": 500, "debdeps": 500}


def classes(name, head, params, seed):
    """Return the accuracy on late and on known classes: of the stream, and known from the start."""
    make, n_train, of_late = SETS[name]
    X, y = make(n_train + 2000, seed)
    X, X_test, y, y_test = train_test_split(X, y, train_size=n_train, random_state=0, stratify=y)
    of_class = [np.flatnonzero(y == each) for each in range(N_CLASSES)]
    of_class[N_FIRST:] = [each[:of_late] for each in of_class[N_FIRST:]]
    kept = np.sort(np.concatenate(of_class))
    X, y = X[kept], y[kept]
    first, late = y < N_FIRST, y_test >= N_FIRST
    found = []
    for before, known in (((X[first], y[first]), N_FIRST), ((X, y), N_CLASSES)):
        clf = MultiHeadClassifier(head, random_state=seed, **params)
        for _ in range(N_BEFORE):
            clf.partial_fit(*before, classes=np.arange(known))
        for _ in range(N_AFTER):
            clf.partial_fit(X, y, classes=np.arange(N_CLASSES))
        is_right = clf.predict(X_test) == y_test
        found.append([100 * is_right[late].mean(), 100 * is_right[~late].mean()])
    return found


def withheld(folder, head, seed, n_rows=None):
    """Return P@1 of samples with a late label, of all, share of late labels found, CPU seconds."""
    (X, Y), (X_test, Y_test) = (load_part(folder, part) for part in ("trn", "tst"))
    X, Y = X[:n_rows], Y[:n_rows]
    n_labels = Y.shape[1]
    order = np.random.default_rng(seed).permutation(n_labels)
    Y, Y_test = Y[:, order].tocsr(), Y_test[:, order].tocsr()
    n_first = n_labels - n_labels // 10
    is_late = np.diff(Y[:, n_first:].tocsr().indptr) > 0
    of_late = Y_test[:, n_first:].tocsr()
    rows = np.flatnonzero(np.diff(of_late.indptr))

    def measured(clf):
        labels = clf.predict_topk(X_test, 5)[0]
        at, place = np.nonzero(labels >= n_first)
        entries = np.ones(len(at)), (at, labels[at, place] - n_first)
        listed = sp.csr_matrix(entries, shape=of_late.shape)
        return [
            100 * precision_at_k(Y_test[rows], labels[rows], 1),
            100 * precision_at_k(Y_test, labels, 1),
            100 * of_late.multiply(listed).sum() / of_late.nnz,
        ]

    found = []
    began = time.process_time()
    clf = MultiHeadClassifier(head, random_state=seed).fit(X[~is_late], Y[~is_late][:, :n_first])
    clf.partial_fit(X[is_late], Y[is_late], classes=np.arange(n_labels))
    seconds = time.process_time() - began
    found.append([*measured(clf), seconds])
    began = time.process_time()
    clf = MultiHeadClassifier(head, random_state=seed).fit(X, Y)
    seconds = time.process_time() - began
    found.append([*measured(clf), seconds])
    return found


def streamed(folder, size, seed, n_rows=None):
    """Return P@1, P@3, P@5 and CPU seconds of a stream with the default ranker, and without."""
    (X, Y), (X_test, Y_test) = (load_part(folder, part) for part in ("trn", "tst"))
    order = np.random.default_rng(seed).permutation(X.shape[0])[:n_rows]
    found = []
    for ranker in ("auto", None):
        clf = MultiHeadClassifier("flat", ranker=ranker, random_state=seed)
        began = time.process_time()
        for start in range(0, len(order), size):
            rows = order[start : start + size]
            clf.partial_fit(X[rows], Y[rows])
        seconds = time.process_time() - began
        labels = clf.predict_topk(X_test, 5)[0]
        found.append([*(100 * precision_at_k(Y_test, labels, k) for k in (1, 3, 5)), seconds])
    return found


def ranked_before(folder, size, seed, growth):
    """Return P@1, P@3, P@5 of batches before they are learnt, CPU seconds of learning, ranking."""
    streaming.GROWTH_OF_STREAM = growth
    X, Y = load_part(folder, "trn")
    order = np.random.default_rng(seed).permutation(X.shape[0])[:20_000]
    clf, seconds, found = MultiHeadClassifier("flat", random_state=seed), np.zeros(2), []
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        began = time.process_time()
        if start:
            found.append((Y[rows], clf.predict_topk(X[rows], 5)[0]))
        ranked = time.process_time()
        clf.partial_fit(X[rows], Y[rows], classes=np.arange(Y.shape[1]))
        seconds += time.process_time() - ranked, ranked - began
    true, labels = zip(*found[len(found) // 3 :])
    true, labels = sp.vstack(true, "csr"), np.concatenate(labels)
    return [*(100 * precision_at_k(true, labels, k) for k in (1, 3, 5)), *seconds]


def first_samples(folder, seed):
    """Return share of late labels found, P@1, ms of the next prediction: as it is, and anew."""
    X, Y = load_part(folder, "trn")
    rng, counts = np.random.default_rng(seed), np.bincount(Y.indices, minlength=Y.shape[1])
    many = np.flatnonzero(counts >= 6)
    late = rng.choice(many, min(100, len(many) // 10), replace=False)
    n_labels, n_first = Y.shape[1], Y.shape[1] - len(late)
    Y = Y[:, np.append(np.delete(np.arange(n_labels), late), late)].tocsr()
    of_late = Y[:, n_first:].tocsc()
    drawn = [rng.choice(of_late[:, [i]].indices, 3, replace=False) for i in range(len(late))]
    calls = np.unique([rows[0] for rows in drawn]), np.unique([rows[1:] for rows in drawn])
    has_late = np.diff(of_late.tocsr().indptr) > 0
    known, asked = np.flatnonzero(~has_late), np.flatnonzero(has_late)
    asked = np.setdiff1d(asked, np.concatenate(calls))
    clf = MultiHeadClassifier("flat", random_state=seed).fit(X[known], Y[known][:, :n_first])
    for rows in calls:
        clf.predict_topk(X[known[:20]], 5)
        clf.partial_fit(X[rows], Y[rows], classes=np.arange(n_labels))
    found = []
    for index_is_made in (True, False):
        if not index_is_made:
            clf.ranker_.retrievers_ = None
        began = time.process_time()
        clf.predict_topk(X[known[:1]], 5)
        seconds = time.process_time() - began
        labels = clf.predict_topk(X[asked], 5)[0]
        at, place = np.nonzero(labels >= n_first)
        listed = sp.csr_matrix((np.ones(len(at)), (at, labels[at, place])), shape=Y[asked].shape)
        share = Y[asked].multiply(listed).sum() / Y[asked][:, n_first:].nnz
        found.append(
            [100 * share, 100 * precision_at_k(Y[asked], labels, 1), 1000 * seconds],
        )
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("SKLEARN_XLC_DATA"))
    parser.add_argument("--heads", nargs="+", default=["flat", "cascade"])
    parser.add_argument("--sets", nargs="+", choices=[*SETS, *STREAMS, *LONGER])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--growths", nargs="+", type=float)
    parser.add_argument("--first", nargs="+", type=Path)
    parser.add_argument("--quick", action="store_true", help="one seed, and fewer samples")
    args = parser.parse_args()
    seeds = args.seeds[:1] if args.quick else args.seeds
    sets = args.sets or [*SETS, *STREAMS, "debdeps"]
    if args.first:
        print("| | late among five | P@1 | next, CPU ms | anew | P@1 | ms |\n|" + 7 * "---|")
        for folder in args.first:
            means = np.mean([first_samples(folder, seed) for seed in seeds], axis=0)
            values = " | ".join(f"{value:.1f}" for value in means.ravel())
            print(f"| {folder.name} | {values} |", flush=True)
        return
    if args.growths:
        print("| stream | batches of | growth | P@1/3/5 | learn, CPU s | rank |\n|" + 6 * "---|")
        streams = STREAMS | LONGER
        for name, growth in itertools.product([s for s in streams if s in sets], args.growths):
            folder, size = Path(args.data) / name, streams[name]
            runs = [ranked_before(folder, size, seed, growth) for seed in seeds]
            *values, learn, rank = np.mean(runs, axis=0)
            precisions = "/".join(f"{value:.1f}" for value in values)
            values = f"{precisions} | {learn:.1f} | {rank:.1f}"
            print(f"| {name} | {size} | {growth} | {values} |", flush=True)
        return
    print("| classes | network | head | late, known | from the start | ratio |\n|" + 6 * "---|")
    for name in [each for each in SETS if each in sets]:
        for network, params in NETWORKS.items():
            for head in args.heads:
                later, known = np.mean([classes(name, head, params, s) for s in seeds], axis=0)
                print(
                    f"| {name} | {network} | {head} | {later[0]:.0f}, {later[1]:.0f} | "
                    f"{known[0]:.0f}, {known[1]:.0f} | {later[0] / known[0]:.2f} |",
                    flush=True,
                )
    if args.data is None:
        return
    print("\n| stream | batches of | ranker | P@1/3/5 | CPU s |\n|" + 5 * "---|")
    for name in [each for each in STREAMS if each in sets]:
        size, n_rows = STREAMS[name], 2000 if args.quick else None
        runs = [streamed(Path(args.data) / name, size, seed, n_rows) for seed in seeds]
        for ranker, values in zip(("default", "None"), np.mean(runs, axis=0)):
            precisions = "/".join(f"{value:.1f}" for value in values[:3])
            print(f"| {name} | {size} | {ranker} | {precisions} | {values[3]:.1f} |", flush=True)
    if "debdeps" not in sets:
        return
    print("\n| debdeps | head | P@1, late | P@1, all | late among five | CPU s |\n|" + 6 * "---|")
    n_rows = 8000 if args.quick else None
    for head in args.heads:
        runs = [withheld(Path(args.data) / "debdeps", head, seed, n_rows) for seed in seeds]
        for name, values in zip(("later", "`fit` with all"), np.mean(runs, axis=0)):
            late, every, among, seconds = values
            print(f"| {name} | {head} | {late:.1f} | {every:.1f} | {among:.1f} | {seconds:.0f} |")


if __name__ == "__main__":
    main()
