"""Streams: labels that come part by part, and a million samples in batches of a thousand.

    python benchmarks/stream.py DATA_FOLDER --parts 10 --seeds 0 1
    python benchmarks/stream.py --samples 1000000 --labels 10000

With a folder labels are cut at random into equal parts, and a further part is known in each pass
over the training samples: `partial_fit` with `classes`. The other classifier takes the same passes
and knows all labels from the first on. P@k of the test samples, among all labels and in per cent,
after the last pass; P@1 also after some more passes in which no label is new, and of the samples
with a label of the last part. Beside them a `fit` with default parameters, whose learning rate
falls to zero.

With a number of samples the documents are synthetic (`_synthetic.py`), and batches are learnt by
`partial_fit`; every tenth is ranked before. One label in ten comes late, one in ten is removed, at
times drawn at random, every twenty batches; documents have their words all the time. A line for
every twentieth of the stream: labels known, CPU seconds of learning and of ranking since the last
line, memory of the process, P@1 of the batches that were ranked before they were learnt, and of
held-out documents, among the labels known at the time, of documents that have one, in per cent.
Then means of `drift_report` of the ranked batches: log loss and what the probabilities promise;
weight of new words, labels of the batch that are new, and known labels without a remembered sample,
in per cent. At last P@1 of one `fit` to all documents, with the labels as they came.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _measure import load_part, memory
from _synthetic import Documents

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.inspection import drift_report
from sklearn_xlc.metrics import precision_at_k
from sklearn_xlc.ranking import BoostedRanker

KS = (1, 3, 5)
#: Share of the labels that come late, and of those that go; batches between two changes,
#: and between two that are ranked before they are learnt.
SHARE, CHANGE, RANK = 0.1, 20, 10


def columns_in_order(train, test, seed):
    """Data with the columns of y in random order, so that the labels known are the first."""
    order = np.random.default_rng(seed).permutation(train[1].shape[1])
    return [(X, sp.csr_matrix(Y)[:, order]) for X, Y in (train, test)]


def passes(train, n_known, params, seed):
    """Classifier after each pass, in which so many labels are known."""
    X, Y = train
    clf = MultiHeadClassifier(random_state=seed, **params)
    for n_labels in n_known:
        yield clf.partial_fit(X, Y[:, :n_labels], classes=np.arange(n_labels))


def precisions(clf, X, Y):
    """P@1, P@3 and P@5 among the labels known, of which samples may have others."""
    labels, _ = clf.predict_topk(X, k=max(KS))
    return [100 * precision_at_k(Y, labels, k=k) for k in KS]


def run(folder, params, n_parts, n_more, seed):
    """P@1/3/5 after the last new labels, then P@1 after each further pass; both classifiers."""
    train, test = columns_in_order(*(load_part(folder, part) for part in ("trn", "tst")), seed)
    n_labels = train[1].shape[1]
    known = [round(n_labels * part / n_parts) for part in range(1, n_parts + 1)]
    has_new = np.flatnonzero(test[1][:, known[-2] :].getnnz(axis=1))
    results = {}
    for name, n_known in (("part by part", known), ("all at once", [n_labels] * n_parts)):
        began, later = time.process_time(), []
        for number, clf in enumerate(passes(train, n_known + [n_labels] * n_more, params, seed)):
            if number + 1 == n_parts:
                seconds = time.process_time() - began
                found = [*precisions(clf, *test), *precisions(clf, *(p[has_new] for p in test))[:1]]
            elif number >= n_parts:
                later.append(precisions(clf, *test)[0])
        results[name] = (found, later, seconds)
    began = time.process_time()
    clf = MultiHeadClassifier(random_state=seed, **params).fit(*train)
    seconds = time.process_time() - began
    found = [*precisions(clf, *test), *precisions(clf, *(part[has_new] for part in test))[:1]]
    return results | {"`fit`": (found, [], seconds)}


# --- a long stream ------------------------------------------------------------------------------


class LabelsInTime:
    """Columns of labels in the order of their coming, and the batches with which they come and go.

    Labels come and go every `CHANGE` batches.
    """

    def __init__(self, n_labels, n_batches, seed):
        rng = np.random.default_rng(seed)
        (is_late, goes), (start, stop) = (
            rng.random((2, n_labels)) < SHARE,
            np.ceil(rng.random((2, n_labels)) * n_batches / CHANGE) * CHANGE,
        )
        start = np.where(is_late, start, 0)
        stop = np.where(goes & (stop > start), stop, np.inf)
        self.columns = np.argsort(start, kind="stable")
        self.start, self.stop = start[self.columns], stop[self.columns]

    def known(self, batch):
        """Numbers of the labels known in a batch, in the order of the columns."""
        return np.flatnonzero((self.start <= batch) & (batch < self.stop))

    def cut(self, Y, batch):
        """Y with zeros for labels that are unknown in a batch."""
        known = np.zeros(Y.shape[1], dtype=np.float32)
        known[self.known(batch)] = 1
        Y = sp.csr_matrix(sp.csr_matrix(Y)[:, self.columns] @ sp.diags(known))
        Y.eliminate_zeros()
        return Y.astype(np.int32)


def hits_at_1(clf, X, Y):
    """Whether the best label is true, of the samples with labels."""
    used = np.flatnonzero(Y.getnnz(axis=1))
    if not len(used):
        return np.empty(0)
    best = clf.predict_topk(X[used], k=1)[0][:, 0]
    return np.asarray(Y[used, best]).ravel() > 0


def columns_of(clf, known):
    """Labels of the classifier, then the other known ones."""
    return np.concatenate([clf.classes_, np.setdiff1d(known, clf.classes_)])


def learn(clf, X, Y, known):
    """Remove labels, add labels, learn a batch."""
    if hasattr(clf, "classes_"):
        clf.remove_labels(np.setdiff1d(clf.classes_, known))
        known = columns_of(clf, known)  # labels of the first batch are the first columns
    clf.partial_fit(X, Y[:, known], classes=known)


def drift_in_words(reports):
    """Two cells of a line: the means of reports of drift."""
    shares = ("unseen_features", "unseen_labels", "labels_without_samples")
    means = {
        name: np.mean([getattr(each, name) for each in reports]) for name in reports[0]._fields
    }
    losses = f"{means['log_loss']:.2f} ({means['expected_log_loss']:.2f})"
    return f"{losses} | {' / '.join(f'{100 * means[name]:.1f}' for name in shares)}"


def run_long(n_samples, n_labels, n_rows, params, seed):
    """Learn a stream, print a line for each twentieth, and fit all of it at once."""
    documents, n_batches = Documents(n_samples, n_labels, seed), n_samples // n_rows
    labels = LabelsInTime(n_labels, n_batches, seed)
    X_test, Y_test = documents.test_rows(5000)
    clf = MultiHeadClassifier(random_state=seed).set_params(**params)
    ranked = "P@1 before | P@1 held out | log loss (promised) | new words / new labels / no samples"
    print(f"| samples | labels | learn CPU s | rank CPU s | MiB | {ranked} |")
    print("|---|---|---|---|---|---|---|---|---|")
    seconds, every = np.zeros(2), max(RANK, n_batches // 20 // RANK * RANK)
    hits, reports = [], []
    for batch in range(n_batches):
        X, Y = documents.block(n_rows, batch)
        Y, known = labels.cut(Y, batch), labels.known(batch)
        began = time.process_time()
        if batch % RANK == RANK - 1:
            hits.append(hits_at_1(clf, X, Y))
            seconds[1] += time.process_time() - began
            reports.append(drift_report(clf, X, Y[:, columns_of(clf, known)]))
            began = time.process_time()
        learn(clf, X, Y, known)
        seconds[0] += time.process_time() - began
        if (batch + 1) % every == 0:
            held_out = 100 * hits_at_1(clf, X_test, labels.cut(Y_test, batch)).mean()
            before = 100 * np.concatenate(hits).mean()
            used = " | ".join(f"{each:.0f}" for each in [*seconds, memory("VmRSS") / 2**20])
            sizes = f"{(batch + 1) * n_rows:,} | {len(clf.classes_):,}"
            drift = drift_in_words(reports)
            print(f"| {sizes} | {used} | {before:.1f} | {held_out:.1f} | {drift} |", flush=True)
            seconds, hits, reports = np.zeros(2), [], []
    del clf
    known, blocks = labels.known(n_batches - 1), []
    for batch in range(n_batches):
        X, Y = documents.block(n_rows, batch)
        blocks.append((X, labels.cut(Y, batch)[:, known]))
    X, Y = (sp.vstack(parts, "csr") for parts in zip(*blocks))
    del blocks
    began = time.process_time()
    clf = MultiHeadClassifier(random_state=seed).set_params(**params).fit(X, Y)
    used = time.process_time() - began
    found = 100 * hits_at_1(clf, X_test, labels.cut(Y_test, n_batches - 1)[:, known]).mean()
    print(f"`fit`: {used:.0f} CPU s, P@1 held out {found:.1f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="has X_trn.npz, Y_trn.npz, *_tst.npz")
    parser.add_argument("--samples", type=int, default=1_000_000, help="without a folder")
    parser.add_argument("--labels", type=int, default=10_000, help="without a folder")
    parser.add_argument("--batch", type=int, default=1000, help="samples in a call of partial_fit")
    parser.add_argument("--remembered", type=int, help="max_samples of the ranker")
    parser.add_argument("--head", default="flat")
    parser.add_argument("--parts", type=int, default=10, help="parts of the labels, and passes")
    parser.add_argument("--more", type=int, default=0, help="further passes")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    arguments = parser.parse_args()
    params = {"head": arguments.head}
    if arguments.folder is None:
        if arguments.remembered is not None:
            params["ranker"] = BoostedRanker(max_samples=arguments.remembered)
        sizes = arguments.samples, arguments.labels, arguments.batch
        for seed in arguments.seeds:
            run_long(*sizes, params, seed)
        return
    print(
        f"| {arguments.folder.name}, labels known | P@1/3/5 | P@1, last part | later P@1 | CPU s |"
    )
    print("|---|---|---|---|---|")
    shares = {"all at once": [], "`fit`": []}
    for seed in arguments.seeds:
        found = run(arguments.folder, params, arguments.parts, arguments.more, seed)
        for name, (values, later, seconds) in found.items():
            best, last = "/".join(f"{v:.1f}" for v in values[:3]), f"{values[3]:.1f}"
            after = " ".join(f"{value:.1f}" for value in later)
            print(f"| {name} | {best} | {last} | {after} | {seconds:.0f} |", flush=True)
        for name, of_seeds in shares.items():
            of_seeds.append(found["part by part"][0][0] / found[name][0][0])
    for name, of_seeds in shares.items():
        print(f"P@1 part by part is {100 * np.mean(of_seeds):.1f}% of that of {name}")


if __name__ == "__main__":
    main()
