"""One thin adapter for each model that the benchmark compares, all with their own default settings.

`measure` runs an adapter in a fresh process, which is this file, started as a script: it trains,
predicts, saves, and leaves a JSON report and the predicted label ids behind.

Every adapter has the same four duties: ``prepare(X, Y)`` brings the data into the shape that the
package asks for and is not timed, ``fit(X, Y)`` leaves a model that is ready to predict,
``predict_topk(X, k)`` returns label ids ``(n_samples, k)`` best first with -1 for none, and
``save(path)`` writes the model below a folder. A package is imported when its adapter is built,
so one that is missing raises ``ModuleNotFoundError`` there and disturbs no other.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from _measure import (
    Clock,
    device,
    fresh_process,
    load_classes,
    load_part,
    memory,
    seed,
    tree_bytes,
    yield_memory,
)


class Adapter:
    """What the adapters share: the thread count and a scratch folder of their own."""

    takes_classes = False  # as a vector, where every sample has one; else as an indicator

    def __init__(self, threads, folder):
        self.threads = threads
        self.folder = Path(folder)

    def prepare(self, X, Y):
        """Nothing to do for packages that take CSR matrices as they are."""

    def versions(self):
        """Names and versions of the distributions that the adapter runs."""
        from importlib.metadata import version

        return {name: version(name) for name in (*self.distributions, "numpy", "scipy")}


class Omikuji(Adapter):
    """Three Parabel-style trees; omikuji reads its training data from a text file only."""

    distributions = ("omikuji",)

    def __init__(self, threads, folder):
        super().__init__(threads, folder)
        import omikuji

        self.module = omikuji
        self.data_file = self.folder / "omikuji.txt"

    def prepare(self, X, Y):
        # omikuji refuses a file that has a row without features.
        rows = np.flatnonzero(np.diff(X.indptr))
        with open(self.data_file, "w") as stream:
            print(len(rows), X.shape[1], Y.shape[1], file=stream)
            for row in rows:
                labels = ",".join(map(str, Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist()))
                pairs = " ".join(f"{column}:{value:.7g}" for column, value in _row_pairs(X, row))
                print(labels, pairs, file=stream)

    def fit(self, X, Y):
        self.model = self.module.Model.train_on_data(str(self.data_file), n_threads=self.threads)
        self.model.init_prediction_thread_pool(self.threads)

    def predict_topk(self, X, k):
        found = np.full((X.shape[0], k), -1, dtype=np.int64)
        for row in range(X.shape[0]):
            best = self.model.predict(_row_pairs(X, row), top_k=k)
            found[row, : len(best)] = [label for label, _ in best]
        return found

    def save(self, path):
        self.model.save(str(path))


class NapkinXC(Adapter):
    """A probabilistic label tree; napkinXC keeps its model in a folder and loads it to predict."""

    distributions = ("napkinxc",)

    def __init__(self, threads, folder):
        super().__init__(threads, folder)
        from napkinxc.models import PLT

        self.model_folder = self.folder / "napkinxc"
        self.model = PLT(str(self.model_folder), threads=threads, seed=seed())

    def fit(self, X, Y):
        self.model.fit(X, Y)
        self.model.load()

    def predict_topk(self, X, k):
        return _padded(self.model.predict(X, top_k=k), k)

    def save(self, path):
        shutil.copytree(self.model_folder, path)


class Pecos(Adapter):
    """XR-Linear on the label embedding and clustering of the package's own quick start.

    The rows get unit length first: the tree learners above see to that themselves, and without it
    XR-Linear's defaults do badly on raw counts.
    """

    distributions = ("libpecos",)

    def __init__(self, threads, folder):
        super().__init__(threads, folder)
        from pecos.xmc import Indexer, LabelEmbeddingFactory
        from pecos.xmc.xlinear.model import XLinearModel
        from sklearn.preprocessing import normalize

        self.embed, self.cluster, self.factory = LabelEmbeddingFactory, Indexer, XLinearModel
        self.normalize = normalize
        self.model_folder = self.folder / "pecos"

    def fit(self, X, Y):
        X = self.normalize(X)
        embedding = self.embed.create(Y, X, method="pifa", threads=self.threads)
        clusters = self.cluster.gen(embedding, threads=self.threads)
        self.factory.train(X, Y, C=clusters, threads=self.threads).save(str(self.model_folder))
        # Its own prediction command loads the model in this form, which is far faster.
        self.model = self.factory.load(str(self.model_folder), is_predict_only=True)

    def predict_topk(self, X, k):
        return _topk_csr(
            self.model.predict(self.normalize(X), only_topk=k, threads=self.threads), k
        )

    def save(self, path):
        shutil.copytree(self.model_folder, path)


class OneVsRest(Adapter):
    """scikit-learn's usual answer: one liblinear logistic regression for each label."""

    distributions = ("scikit-learn",)

    def __init__(self, threads, folder):
        super().__init__(threads, folder)
        from sklearn.linear_model import LogisticRegression
        from sklearn.multiclass import OneVsRestClassifier

        self.model = OneVsRestClassifier(LogisticRegression(solver="liblinear"), n_jobs=threads)

    def fit(self, X, Y):
        from joblib import parallel_config

        self.columns = np.unique(Y.indices)  # a label of no sample scores 0, often the best
        # Threads, not processes: liblinear releases the interpreter's lock and X is not copied.
        with parallel_config("threading"):
            self.model.fit(X, Y[:, self.columns])

    def predict_topk(self, X, k):
        return self.columns[_topk_chunked(self.model.decision_function, X, k)]

    def save(self, path):
        _dump(self.model, path)


class LinearSVC(Adapter):
    """scikit-learn's linear support vector machines, one for each class; for class labels."""

    distributions = ("scikit-learn",)
    takes_classes = True

    def __init__(self, threads, folder):
        super().__init__(threads, folder)
        from sklearn.svm import LinearSVC

        self.model = LinearSVC(random_state=seed())

    def fit(self, X, y):
        self.model.fit(X, y)

    def predict_topk(self, X, k):
        return self.model.classes_[_topk_chunked(self.model.decision_function, X, k)]

    def save(self, path):
        _dump(self.model, path)


class MLP(Adapter):
    """scikit-learn's ``MLPClassifier``, which takes dense targets only."""

    distributions = ("scikit-learn",)

    def __init__(self, threads, folder):
        super().__init__(threads, folder)
        from sklearn.neural_network import MLPClassifier

        self.model = MLPClassifier(random_state=seed())

    def fit(self, X, Y):
        self.model.fit(X, Y.astype(np.uint8).toarray())

    def predict_topk(self, X, k):
        return _topk_chunked(self.model.predict_proba, X, k)

    def save(self, path):
        _dump(self.model, path)


class MultiHead(Adapter):
    """This package, with every parameter but ``head`` and the seed at its default."""

    distributions = ("sklearn-xlc", "torch", "skorch")
    head = "auto"
    takes_classes = True

    def __init__(self, threads, folder):
        super().__init__(threads, folder)
        from sklearn_xlc import MultiHeadClassifier

        self.model = MultiHeadClassifier(self.head, device=device(), random_state=seed())

    def fit(self, X, Y):
        self.model.fit(X, Y)

    def predict_topk(self, X, k):
        labels, _ = self.model.predict_topk(X, k=k)
        return np.asarray(labels)

    def save(self, path):
        import sklearn_xlc

        path.mkdir(parents=True)
        sklearn_xlc.save(self.model, path / "model.skops")


class MultiHeadQuality(MultiHead):
    """The parts of "More precision for more time" in docs/ranking.md."""

    def __init__(self, threads, folder):
        super().__init__(threads, folder)
        from sklearn.feature_extraction.text import TfidfTransformer

        from sklearn_xlc import encoders, ranking

        space = {"vectorizer": TfidfTransformer(), "max_features_per_sample": 100}
        near = ranking.NearestSamples((3, 10, 50, 150), max_df=0.2, **space)
        lists = [
            ("near", near),
            ("centroids", ranking.LabelCentroids(n_nearest=16, **space)),
            ("votes", ranking.FeatureVotes()),
            ("together", ranking.CooccurringLabels()),
            ("near_in_features", ranking.NearestSamples(space="features")),
        ]
        self.model.set_params(
            encoder=encoders.MLP(2048),
            ranker=ranking.BoostedRanker(lists, n_candidates=30),
        )


class MultiHeadFlat(MultiHead):
    head = "flat"


class MultiHeadCascade(MultiHead):
    head = "cascade"


ADAPTERS = {
    "multihead-auto": MultiHead,
    "multihead-quality": MultiHeadQuality,
    "multihead-flat": MultiHeadFlat,
    "multihead-cascade": MultiHeadCascade,
    "omikuji": Omikuji,
    "napkinxc": NapkinXC,
    "pecos": Pecos,
    "sklearn-ovr": OneVsRest,
    "sklearn-svc": LinearSVC,
    "sklearn-mlp": MLP,
}


def _row_pairs(X, row):
    """The ``(column, value)`` pairs of one CSR row."""
    part = slice(X.indptr[row], X.indptr[row + 1])
    return zip(X.indices[part].tolist(), X.data[part].tolist())


def _padded(rows, k):
    """Lists of label ids as one integer array, filled up with -1."""
    found = np.full((len(rows), k), -1, dtype=np.int64)
    for row, labels in enumerate(rows):
        found[row, : len(labels)] = labels[:k]
    return found


def _topk_csr(scores, k):
    """The best ``k`` columns of every row of a CSR score matrix."""
    rows = []
    for start, stop in zip(scores.indptr[:-1], scores.indptr[1:]):
        order = np.argsort(-scores.data[start:stop], kind="stable")[:k]
        rows.append(scores.indices[start:stop][order])
    return _padded(rows, k)


def _topk_chunked(score, X, k, rows=1024):
    """The best ``k`` columns of a dense scorer, a block of rows at a time."""
    found = []
    for start in range(0, X.shape[0], rows):
        scores = score(sp.csr_matrix(X[start : start + rows]))
        best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1, kind="stable")
        found.append(np.take_along_axis(best, order, axis=1))
    return np.vstack(found)


def _dump(model, path):
    """Write a Python model with joblib, uncompressed."""
    import joblib

    path.mkdir(parents=True)
    joblib.dump(model, path / "model.joblib")


def measure(
    model, data_folder, *, threads=2, limit=1800.0, k=5, classes=False, python=sys.executable
):
    """Measure one model on one data set folder, in a process of its own.

    With `classes` the rarest label of a sample is its class.

    Returns
    -------
    result : dict
        As of `fresh_process`; also "not installed" is a ``status``. Where it is "ok", the mapping
        holds seconds, bytes and ``topk``, the predicted label ids of shape (n_test, k).
    """
    with tempfile.TemporaryDirectory(prefix="xlc-bench-") as scratch:
        arguments = [__file__, model, data_folder, scratch, threads, k, int(classes)]
        result = fresh_process(arguments, scratch, threads=threads, limit=limit, python=python)
        if result["status"] == "ok":
            result["topk"] = np.load(Path(scratch, "topk.npy"))
        return result


def _run_job(model, folder, scratch, threads, k, classes):
    """Train, predict and save one model; the report of `measure`."""
    yield_memory()
    load = load_classes if classes else load_part
    X, Y = load(folder, "trn")
    X_test, _ = load(folder, "tst")
    try:
        adapter = ADAPTERS[model](threads, scratch)
    except ModuleNotFoundError as error:
        return {"status": "not installed", "reason": str(error)}
    adapter.prepare(X, Y)
    y = Y.indices if classes and adapter.takes_classes else Y
    level = memory("VmRSS")
    with Clock() as fit:
        adapter.fit(X, y)
    with Clock() as predict:
        topk = adapter.predict_topk(X_test, k)
    adapter.save(scratch / "model")
    np.save(scratch / "topk.npy", topk)
    return {
        "status": "ok",
        "fit_wall_s": fit.wall,
        "fit_cpu_s": fit.cpu,
        "predict_wall_s": predict.wall,
        "predict_cpu_s": predict.cpu,
        "fit_peak_bytes": fit.peak - level,
        "predict_peak_bytes": predict.peak - level,
        "model_bytes": tree_bytes(scratch / "model"),
        "versions": adapter.versions(),
    }


if __name__ == "__main__":
    name, data, work, n_threads, top, of_classes = sys.argv[1:]
    outcome = _run_job(name, data, Path(work), int(n_threads), int(top), of_classes == "1")
    Path(work, "report.json").write_text(json.dumps(outcome))
