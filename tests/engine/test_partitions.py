"""`predict_topk` by the path of a file, and over arrays, frames and series of dask."""

import threading

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

from _factories import make_learnable
from sklearn_xlc import AggregatedLabelClassifier, MultiHeadClassifier, predict_topk, save
from sklearn_xlc.encoders import MLP
from sklearn_xlc.engine import partitions

TEXTS = ["a cat on a mat", "a dog on a bed", "a cat and a dog", ""] * 5
TAGS = [["cat"], ["dog"], ["cat", "dog"], ["nothing"]] * 5
X, Y = make_learnable(True, n_rows=60, dtype=np.float32)
X, CARRIED = X.toarray(), np.flatnonzero(Y.sum(axis=0) > 0)
SIZES = (25, 0, 20, 15)
ENDS = np.cumsum(SIZES)


@pytest.fixture(scope="module")
def classifier():
    return MultiHeadClassifier(encoder=MLP((8,)), max_epochs=3, random_state=0).fit(X, Y)


@pytest.fixture(scope="module")
def pipeline():
    network = MultiHeadClassifier(encoder=MLP((8,)), max_epochs=3, random_state=0)
    return make_pipeline(TfidfVectorizer(), network).fit(TEXTS, TAGS)


@pytest.fixture
def path(classifier, tmp_path):
    save(classifier, tmp_path / "model.xlc", storage="float32")
    return tmp_path / "model.xlc"


@pytest.fixture(scope="module")
def da():
    return pytest.importorskip("dask.array")


@pytest.fixture(scope="module")
def dd():
    pytest.importorskip("pyarrow")
    return pytest.importorskip("dask.dataframe")


def assert_same(found, expected):
    for left, right in zip(found, expected, strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


def by_parts(model, samples, k, **proba):
    """Results of each partition on its own, which has the bits of products of its size."""
    parts = [samples[end - size : end] for end, size in zip(ENDS, SIZES) if size]
    found = [predict_topk(model, part, k, **proba) for part in parts]
    return tuple(map(np.concatenate, zip(*found)))


# --- files -------------------------------------------------------------------------------------


@pytest.fixture
def loads(monkeypatch):
    """Files that were loaded."""
    loaded, load = [], partitions.load

    def counted(path, mmap):
        assert mmap
        loaded.append(path)
        return load(path, mmap=mmap)

    monkeypatch.setattr(partitions, "load", counted)
    return loaded


def test_a_file_is_loaded_once_by_all_threads(classifier, path, loads):
    found, start = [None] * 4, threading.Barrier(4)

    def rank(i):
        start.wait()
        found[i] = predict_topk(path if i % 2 else str(path), X, 3)

    threads = [threading.Thread(target=rank, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for each in found:
        np.testing.assert_array_equal(each.labels, classifier.predict_topk(X, 3)[0])
    assert loads == [str(path)]
    weight = next(partitions.opened(path).net_.module_.parameters())
    assert not weight.detach().numpy().flags.owndata


def test_a_file_that_is_replaced_is_loaded_anew(classifier, path, loads, monkeypatch, tmp_path):
    other = clone(classifier).set_params(random_state=1).fit(X, Y[:, ::-1])
    monkeypatch.chdir(tmp_path)
    predict_topk("model.xlc", X, 3)
    save(other, path, storage="float32")
    assert_same(predict_topk("model.xlc", X, 3), other.predict_topk(X, 3))
    assert len(loads) == 2


def test_a_file_that_there_is_not(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        predict_topk(tmp_path / "none.xlc", X)


# --- collections -------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("proba", [False, True])
def test_arrays(da, classifier, path, sparse, proba):
    samples = sp.csr_matrix(X) if sparse else X
    expected = by_parts(classifier, samples, 3, proba=proba)
    # Columns in two chunks, too: a sample is whole where it is ranked.
    lazy = da.from_array(X, chunks=(SIZES, (20, X.shape[1] - 20)))
    lazy = lazy.map_blocks(sp.csr_matrix) if sparse else lazy
    for model in (classifier, path):
        top = predict_topk(model, lazy, 3, proba=proba)
        assert repr(top) == "LazyTopLabels of 3 partitions, k=3: compute() ranks them"
        assert [each.chunks for each in top] == [((25, 20, 15), (3,))] * 2
        assert [each.dtype for each in top] == [each.dtype for each in expected]
        found = top.compute(scheduler="threads")
        assert type(found).__name__ == "TopLabels"
        if model is classifier:
            assert_same(found, expected)
        else:  # products of mapped weights may differ in the last bit
            np.testing.assert_array_equal(found.labels, expected[0])
            np.testing.assert_allclose(found.scores, expected[1], rtol=1e-5)


def test_labels_and_scores_come_from_one_task(da, classifier, monkeypatch):
    ranked, rank = [], MultiHeadClassifier.predict_topk

    def counted(self, X, *args):
        ranked.append(len(X))
        return rank(self, X, *args)

    monkeypatch.setattr(MultiHeadClassifier, "predict_topk", counted)
    top = predict_topk(classifier, da.from_array(X, chunks=(SIZES, -1)), 2)
    assert ranked == []
    kept = top.persist(scheduler="sync")
    assert_same(kept.compute(), top.compute(scheduler="sync"))
    assert sorted(ranked) == sorted(2 * [size for size in SIZES if size])


def test_texts_in_series_and_columns_in_frames(dd, pipeline, classifier):
    pd = pytest.importorskip("pandas")
    series = pd.Series(TEXTS, name="text")
    parts = [series[:12], series[:0], series[12:]]
    top = predict_topk(pipeline, dd.from_map(lambda i: parts[i], range(3), meta=parts[1]), 2)
    assert np.isnan(top.labels.shape[0])
    assert top.labels.dtype == object
    expected = [predict_topk(pipeline, part, 2) for part in (parts[0], parts[2])]
    assert_same(top.compute(), map(np.concatenate, zip(*expected)))
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
    fitted = MultiHeadClassifier(encoder=MLP((8,)), max_epochs=1).fit(frame, Y)
    found = predict_topk(fitted, dd.from_pandas(frame, npartitions=1)).compute()
    assert_same(found, predict_topk(fitted, frame))


def test_texts_in_an_array(da, pipeline):
    texts = np.array(TEXTS, dtype=object)
    found = predict_topk(pipeline, da.from_array(texts, chunks=20), 3).compute()
    assert_same(found, predict_topk(pipeline, texts, 3))


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda: LogisticRegression().fit(X, np.array(["a", "b", "c"])[np.arange(60) % 3]),
        lambda: OneVsRestClassifier(LogisticRegression()).fit(X, Y[:, CARRIED]),
        lambda: AggregatedLabelClassifier(
            MultiHeadClassifier(encoder=MLP((8,)), max_epochs=1, random_state=0), n_rounds=1
        ).fit(X, [["a", "b"], ["c"]] * 30, groups=np.arange(60) % 2),
    ],
)
def test_classifiers_of_other_packages_and_wrapped_ones(da, wrapped):
    model = wrapped()
    top = predict_topk(model, da.from_array(X, chunks=(60, -1)), 2)
    expected = list(predict_topk(model, X, 2))
    if not isinstance(model, AggregatedLabelClassifier):
        # Of what others compute only samples would tell the type.
        assert expected[1].dtype == np.float32
        expected[1] = expected[1].astype(np.float64)
    assert [each.dtype for each in top] == [each.dtype for each in expected]
    assert_same(top.compute(), expected)


def test_no_samples_at_all(da, classifier):
    top = predict_topk(classifier, da.from_array(X[:0]), 2)
    assert_same(top.compute(), (np.empty((0, 2), dtype=int), np.empty((0, 2), np.float32)))


def test_what_is_refused_before_anything_is_ranked(da, classifier):
    lazy = da.from_array(X, chunks=(SIZES, -1))
    with pytest.raises(ValueError, match=r"k=24 must be at most the number of labels, 23"):
        predict_topk(classifier, lazy, 24)
    with pytest.raises(TypeError, match="k must be an integer"):
        predict_topk(classifier, lazy, 2.5)
    with pytest.raises(NotFittedError):
        predict_topk(MultiHeadClassifier(), lazy)
    bag = pytest.importorskip("dask.bag").from_sequence(TEXTS)
    with pytest.raises(TypeError, match="an array, a dataframe or a series of dask.* dask.bag"):
        predict_topk(classifier, bag)
    with pytest.raises(ValueError, match="X has 59 features"):
        predict_topk(classifier, lazy[:, 1:]).compute()
