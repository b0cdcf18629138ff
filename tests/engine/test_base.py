"""The engine under every estimator: formats, seeds, going on, failing, and what memory it takes."""

import copy
import subprocess
import sys
import tracemalloc
from functools import partial

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from skorch.callbacks import Callback, EarlyStopping
from torch import nn

from _factories import QUICK, built, make_learnable, make_X, make_y
from sklearn_xlc import MultiHeadClassifier, config_context
from sklearn_xlc._csr import one_per_row
from sklearn_xlc.batches import Rows, SparseRows, make_batch
from sklearn_xlc.datasets import open_csr, save_csr
from sklearn_xlc.encoders import MLP
from sklearn_xlc.heads import Product
from sklearn_xlc.training import WeightAveraging

N_LABELS = 9
FORMATS = ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"]


quick = partial(built, MultiHeadClassifier(**{**QUICK, "encoder": MLP((8,)), "max_epochs": 4}))


def parameters(clf):
    return {name: value.numpy().tobytes() for name, value in clf.net_.module_.state_dict().items()}


def scrambled(X):
    """CSR with columns in no order, every other entry split in two, and stored zeros."""
    C = sp.coo_array(X)
    rows, columns = np.r_[C.row, C.row, C.row], np.r_[C.col, C.col, (C.col + 1) % X.shape[1]]
    data = np.r_[C.data / 2, C.data / 2, np.zeros(C.nnz)]
    order = np.lexsort((-columns, rows))
    counts = np.bincount(rows, minlength=X.shape[0])
    indptr = np.r_[0, np.cumsum(counts)]
    return sp.csr_array((data[order], columns[order], indptr), shape=X.shape)


class Break(Callback):
    """Fail in the second epoch."""

    def on_batch_end(self, net, training=False, **kwargs):
        if training and len(net.history) == 2:
            raise RuntimeError("broken")


# --- formats ----------------------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.parametrize(
    "density, optimizer, multilabel",
    [(0.05, "adam", False), (0.05, "mixed", True), (0.5, "adam", False), (0.5, "adam", True)],
)
def test_every_format_of_X_gives_the_same_bits(density, multilabel, optimizer):
    X, y = make_X(density, n_rows=24), make_y(multilabel, n_rows=24)
    # Small batches do not hold all columns, so that what a stored zero touches shows.
    params = {"optimizer": optimizer, "weight_decay": 0.1, "batch_size": 6, "max_epochs": 2}
    clf = quick(**params)
    expected = clf.fit(X, y).decision_function(X)
    given = [sp.csr_matrix(X).asformat(name) for name in FORMATS]
    given += [sp.csr_array(X), scrambled(X), np.asfortranarray(X), X.tolist()]
    for other in given:
        np.testing.assert_array_equal(clf.decision_function(other), expected)
        again = quick(**params).fit(other, y)
        np.testing.assert_array_equal(again.decision_function(X), expected)


@pytest.mark.integration
@pytest.mark.parametrize("head", ["flat", "cascade"])
def test_every_format_of_y_gives_the_same_model(head):
    X, Y = make_X(), make_y(True)
    clf = quick(head=head).fit(X, Y)
    assert isinstance(clf.predict(X), np.ndarray)
    given = [sp.csr_matrix(Y).asformat(name) for name in FORMATS]
    given.append(sp.csr_array(Y))
    for other in given:
        again = quick(head=head).fit(X, other)
        assert parameters(again) == parameters(clf)
        predicted = again.predict(X)
        assert sp.issparse(predicted)
        assert predicted.format == "csr"
        assert predicted.dtype == other.dtype
        np.testing.assert_array_equal(predicted.toarray(), clf.predict(X))
    for other in (Y.tolist(), pd.DataFrame(Y), pl.DataFrame(Y), Y.astype(bool), Y.astype(float)):
        again = quick(head=head).fit(X, other)
        assert parameters(again) == parameters(clf)
        predicted = again.predict(X)
        assert isinstance(
            predicted, pl.DataFrame if isinstance(other, pl.DataFrame) else np.ndarray
        )
        assert np.asarray(predicted).dtype == np.asarray(other).dtype
        np.testing.assert_array_equal(np.asarray(predicted), clf.predict(X))


def test_arguments_are_left_as_they_were():
    X, Y = make_X(), make_y(True)
    untidy_X, untidy_Y = scrambled(X), scrambled(Y)
    untidy_Y.data[:] = 0
    untidy_Y.data[untidy_Y.indptr[:-1]] = 1  # one label a row, behind stored zeros
    untidy_Y.sum_duplicates()
    weight = np.ones(len(X))
    before = copy.deepcopy((untidy_X, untidy_Y, weight))
    clf = quick().fit(untidy_X, untidy_Y, sample_weight=weight)
    clf.partial_fit(untidy_X, untidy_Y, sample_weight=weight)
    clf.predict(untidy_X)
    for was, now in zip(before[:2], (untidy_X, untidy_Y)):
        for part in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(was, part), getattr(now, part))
    np.testing.assert_array_equal(weight, before[2])


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix, sp.csr_array])
@pytest.mark.parametrize("density", [0.05, 0.5])
def test_X_may_be_a_read_only_map_of_a_file(make, density, tmp_path):
    X, y = make_X(density), make_y(False)
    expected = quick().fit(X, y).decision_function(X)
    joblib.dump(make(X), tmp_path / "X")
    mapped = joblib.load(tmp_path / "X", mmap_mode="r")
    clf = quick().fit(mapped, y)
    np.testing.assert_array_equal(clf.decision_function(mapped), expected)
    np.testing.assert_array_equal(mapped.toarray() if sp.issparse(mapped) else mapped, X)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_data_frames(frame):
    X, y = make_X(0.5), make_y(False)
    names = [f"x{i}" for i in range(X.shape[1])]
    df = pd.DataFrame(X, columns=names) if frame is pd.DataFrame else pl.DataFrame(X, schema=names)
    clf = quick().fit(df, y)
    assert list(clf.feature_names_in_) == names
    np.testing.assert_array_equal(clf.predict_proba(df), quick().fit(X, y).predict_proba(X))
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        clf.predict(X)
    series = (pd.Series if frame is pd.DataFrame else pl.Series)(y)
    assert parameters(quick().fit(df, series)) == parameters(clf)


# --- seeds ------------------------------------------------------------------------------------


@pytest.mark.integration
@pytest.mark.parametrize(
    "head, density",  # CSR rows and dense ones
    [("flat", 0.05), ("flat", 0.5), ("product", 0.5), ("cascade", 0.05), ("sampling", 0.5)],
)
def test_the_same_seed_gives_the_same_bytes(head, density):
    X, y = make_X(density), make_y(False)
    params = {"head": head, "encoder__dropout": 0.3, "batch_size": 16, "max_epochs": 2}
    if head == "sampling":
        params["head__n_sampled_heads"] = 1
    torch.manual_seed(1)
    first = parameters(quick(**params).fit(X, y))
    torch.manual_seed(2)
    clf = quick(**params)
    assert parameters(clf.fit(X, y)) == first
    assert parameters(clf.fit(X, y)) == first
    by_object = quick(**{**params, "random_state": np.random.RandomState(0)}).fit(X, y)
    assert parameters(by_object) == first
    for seed in (1, None, by_object.random_state):
        assert parameters(quick(**{**params, "random_state": seed}).fit(X, y)) != first


def test_fitting_leaves_the_generators_of_the_caller_alone():
    X, y = make_X(), make_y(False)
    torch.manual_seed(7)
    before, numpy_before = torch.get_rng_state(), np.random.mtrand._rand.get_state()[1]
    quick(encoder__dropout=0.3).fit(X, y).predict(X)
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(np.random.mtrand._rand.get_state()[1], numpy_before)


# --- going on ---------------------------------------------------------------------------------


def test_partial_fit_improves_over_passes_and_knows_all_classes():
    X, y = make_X(0.5), make_y(False)
    clf = quick(batch_size=20, learning_rate=0.1)
    clf.partial_fit(X[:20], y[:20] % 3, classes=np.arange(N_LABELS))
    np.testing.assert_array_equal(clf.classes_, np.arange(N_LABELS))
    for _ in range(10):
        for part in (slice(0, 20), slice(20, 40), slice(40, 60)):
            clf.partial_fit(X[part], y[part])
    assert clf.n_iter_ == len(clf.loss_curve_) == clf.t_ == 31
    assert clf.score(X, y) > 0.9


@pytest.mark.parametrize("head", ["flat", "cascade"])
def test_partial_fit_multilabel(head):
    X, Y = make_X(0.5), make_y(True)
    clf = quick(head=head, learning_rate=0.1)
    for _ in range(24):
        clf.partial_fit(X, sp.csr_matrix(Y))
    assert clf.loss_curve_[-1] < 0.7 * clf.loss_curve_[0]
    assert sp.issparse(clf.predict(X))


@pytest.mark.parametrize("optimizer", ["adam", "mixed", "adagrad", "sgd"])
@pytest.mark.parametrize("head", ["flat", "product", "cascade", "sampling"])
def test_partial_fit_keeps_its_optimizer(head, optimizer):
    """Optimiser state lives on between calls."""
    X, y = make_X(), make_y(False)
    clf = quick(head=head, optimizer=optimizer)
    clf.partial_fit(X, y, classes=np.arange(N_LABELS))
    optimizer_ = clf.net_.optimizer_
    for _ in range(3):
        clf.partial_fit(X, y)
    assert clf.net_.optimizer_ is optimizer_
    assert clf.loss_curve_[-1] < clf.loss_curve_[0]


@pytest.mark.parametrize("dump", [False, True])
def test_partial_fit_after_fit(dump, tmp_path):
    X, y = make_X(0.5), make_y(False)
    clf = quick(max_epochs=30).fit(X, y)
    if dump:
        joblib.dump(clf, tmp_path / "clf")
        clf = joblib.load(tmp_path / "clf")
    before, n_iter = clf.decision_function(X), clf.n_iter_
    clf.partial_fit(X, y)
    assert clf.n_iter_ == n_iter + 1
    assert clf.loss_curve_[-1] < clf.loss_curve_[0]
    after = clf.decision_function(X)
    assert not np.array_equal(before, after)
    assert np.abs(after - before).max() < 1.0


@pytest.mark.parametrize("density", [0.05, 0.9])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_columns_without_an_entry_in_training_do_not_count(density, early_stopping):
    X, y = make_X(density), make_y(False)
    X[:, [3, 17]] = 0.0
    clf = MultiHeadClassifier(**{**QUICK, "max_epochs": 3}, early_stopping=early_stopping)
    clf.fit(X, y)
    before = clf.decision_function(X)
    X[:, 3] = 5.0
    np.testing.assert_array_equal(clf.decision_function(X), before)
    X[:, 3] = 0.0
    weight = clf.net_.module_.encoder.input.weight
    assert not weight[[3, 17]].any()
    assert early_stopping or weight[[2, 4, 16, 18]].any(dim=1).all()


def test_columns_that_come_later_are_trained():
    X, y = make_X(0.05), make_y(False)
    later = X.copy()
    later[:, 3] = 1.0
    X[:, 3] = 0.0
    params = {**QUICK, "max_epochs": 3, "warm_start": True}
    for method in ("fit", "partial_fit"):
        clf = MultiHeadClassifier(**params).fit(X, y)
        getattr(clf, method)(later, y)
        assert clf.net_.module_.encoder.input.weight[3].any()
    # A part of the data does not say which columns will stay empty.
    clf = MultiHeadClassifier(**params).partial_fit(X, y, classes=np.unique(y))
    assert clf.net_.module_.encoder.input.weight[3].all()


def test_warm_start_goes_on_where_fit_ended():
    X, y = make_X(0.5), make_y(False)
    clf = quick(warm_start=True, max_epochs=15)
    clf.fit(X, y)
    n_parameters, ended = clf.n_parameters_, clf.loss_curve_[-1]
    clf.fit(X, y)
    assert clf.n_iter_ == len(clf.loss_curve_) == 30
    assert clf.n_parameters_ == n_parameters
    assert clf.loss_curve_[15] < 1.05 * ended < clf.loss_curve_[0]
    with pytest.raises(ValueError, match="40 features"):
        clf.fit(X[:, :5], y)
    cold = quick(max_epochs=2).fit(X, y)
    assert cold.fit(X, y).n_iter_ == 2


@pytest.mark.parametrize(
    "name, value", [("head", "product"), ("encoder", MLP((4,))), ("precision", "float64")]
)
def test_warm_start_with_another_network_is_refused(name, value):
    X, y = make_X(0.5).astype(np.float32), make_y(False)
    clf = quick(warm_start=True).fit(X, y)
    before = clf.decision_function(X)
    clf.set_params(**{name: value})
    with pytest.raises(ValueError, match=f"set after the fit: {name}; set warm_start=False"):
        clf.fit(X, y)
    clf.set_params(warm_start=False).fit(X, y)
    assert not np.array_equal(clf.decision_function(X), before)


def test_early_stopping_keeps_the_best_epoch():
    X, y = make_X(0.5, n_rows=200), make_y(False, n_rows=200)
    clf = quick(
        early_stopping=True,
        callbacks=[EarlyStopping(patience=2, load_best=True)],
        max_epochs=200,
        learning_rate=0.05,
    )
    clf.fit(X, y)  # labels are independent of X: the held-out loss soon rises
    assert clf.n_iter_ < 100
    valid_loss = [row["valid_loss"] for row in clf.net_.history]
    assert int(np.argmin(valid_loss)) == clf.n_iter_ - 1 - 2


@pytest.mark.parametrize("head", ["flat", Product(label_order="random")])
@pytest.mark.parametrize("density", [0.05, 0.5])
def test_the_held_out_loss_is_that_of_the_labels(head, density):
    X, y = np.tile(make_X(density), (4, 1)), np.tile(make_y(False), 4)
    clf = quick(head=head, early_stopping=True, max_epochs=20, learning_rate=0.12)
    clf.set_params(encoder__dropout=0.0)
    clf.fit(X, y)  # held-out samples have copies among the others
    assert clf.net_.history[-1, "valid_loss"] < 0.3 < np.log(N_LABELS)


@pytest.mark.parametrize("method", ["swa", "ema"])
def test_average_weights(method):
    X, y = make_X(0.5), make_y(False)
    params = {"max_epochs": 20, "learning_rate": 0.06}
    clf = quick(callbacks=[WeightAveraging(method)], **params).fit(X, y)
    assert parameters(clf) != parameters(quick(**params).fit(X, y))
    assert clf.score(X, y) > 0.8


# --- callbacks --------------------------------------------------------------------------------


class Count(Callback):
    """Count epochs."""

    n_epochs = 0

    def on_epoch_end(self, net, **kwargs):
        self.n_epochs += 1


def test_callbacks_are_copied_and_see_every_epoch():
    mine = Count()
    clf = quick(callbacks=[mine]).fit(make_X(), make_y(False))
    assert mine.n_epochs == 0
    assert [c.n_epochs for _, c in clf.net_.callbacks_ if isinstance(c, Count)] == [4]
    assert clf.callbacks == [mine]


def test_skorch_early_stopping_may_be_a_callback():
    stop = EarlyStopping(monitor="train_loss", patience=2, threshold=0.99)
    clf = quick(callbacks=[stop], max_epochs=50).fit(make_X(), make_y(False))
    assert clf.n_iter_ < 50
    assert clf.predict(make_X()).shape == (60,)


# --- failing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("warm_start", [False, True])
def test_a_fit_that_fails_changes_nothing(warm_start):
    X, y = make_X(0.5), make_y(False)
    clf = quick(warm_start=warm_start).fit(X, y)
    before, state = clf.decision_function(X), set(vars(clf))
    clf.set_params(callbacks=[Break()])
    with pytest.raises(RuntimeError, match="broken"):
        clf.fit(X[::2], y[::2])
    assert set(vars(clf)) == state
    assert clf.n_iter_ == 4
    np.testing.assert_array_equal(clf.decision_function(X), before)
    np.testing.assert_array_equal(clf.classes_, np.arange(N_LABELS))


def test_a_first_fit_that_fails_leaves_nothing_fitted():
    clf = quick(callbacks=[Break()])
    with pytest.raises(RuntimeError, match="broken"):
        clf.fit(make_X(), make_y(False))
    assert vars(clf) == clf.get_params(deep=False)


def test_bad_data_leave_a_fitted_classifier_as_it_was():
    X, y = make_X(0.5), make_y(False)
    clf = quick().fit(X, y)
    before = clf.decision_function(X)
    broken = X[:, :5].copy()
    broken[3, 2] = np.nan
    for method in (clf.fit, clf.partial_fit):
        with pytest.raises(ValueError, match=r"NaN|features"):
            method(broken, y)
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            method(X, y[1:])
    assert clf.n_features_in_ == X.shape[1]
    np.testing.assert_array_equal(clf.decision_function(X), before)


def test_a_training_that_diverges_is_refused():
    X, y = make_X(0.5), make_y(False)
    clf = quick().fit(X, y)
    before = clf.decision_function(X)
    clf.set_params(learning_rate=1e200, optimizer="sgd")
    with pytest.raises(ValueError, match=r"step of the optim.*lower learning_rate=1e\+200"):
        clf.fit(X, y)
    np.testing.assert_array_equal(clf.decision_function(X), before)


# --- encoders ---------------------------------------------------------------------------------


def make_encoder(n_features):
    return nn.Sequential(nn.ReLU(inplace=True), nn.Linear(n_features, 7), nn.Tanh())


class Masked(nn.Linear):
    """A linear layer with masks such as attentions have them, and a mean that it replaces."""

    def __init__(self, n_features):
        super().__init__(n_features, 7)
        self.register_buffer("infinite", torch.full((3,), float("-inf")))
        self.register_buffer("least", torch.full((3,), torch.finfo(torch.float32).min))
        self.register_buffer("mean", torch.zeros(n_features))

    def forward(self, rows):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * rows.mean(0)
        return super().forward(rows) / (rows[:, :1] < 1e6)


@pytest.mark.parametrize("callbacks", [None, *([WeightAveraging(way)] for way in ("ema", "swa"))])
def test_encoders_with_masks_and_means_of_their_own(callbacks):
    X, y = make_X(0.5).astype(np.float32), make_y(False)
    clf = quick(encoder=Masked(X.shape[1]), callbacks=callbacks).fit(X, y)
    encoder = clf.net_.module_.encoder
    assert encoder.infinite.isneginf().all()
    assert encoder.least.isfinite().all()
    before = {name: value.clone() for name, value in encoder.named_buffers()}
    X[:, 0] = 1e9
    with pytest.raises(ValueError, match="norm of the features became"):
        clf.partial_fit(X, y)
    assert before.pop("mean").any()
    for name, value in before.items():
        assert torch.equal(value, getattr(encoder, name))
    assert float(encoder.mean.abs().max()) < 1e6


class Recorder(nn.Linear):
    """A linear layer on sparse rows that remembers what it was given."""

    accepts = ("dense", "csr")

    def forward(self, rows):
        self.seen = type(rows)
        dense = rows if torch.is_tensor(rows) else densify(rows)
        return super().forward(dense)


def densify(rows):
    matrix = (rows.data.numpy(), rows.indices.numpy(), rows.indptr.numpy())
    return torch.from_numpy(sp.csr_matrix(matrix, shape=(len(rows), rows.n_features)).toarray())


def test_an_encoder_module_is_copied():
    X, y = make_X(0.5), make_y(False)
    encoder = make_encoder(X.shape[1])
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    kept = X.copy()
    clf = quick(encoder=encoder).fit(X, y)
    assert clf.transform(X).shape == (60, 7)
    assert [f"multiheadclassifier{i}" for i in range(7)] == list(clf.get_feature_names_out())
    for name, value in encoder.state_dict().items():
        assert torch.equal(value, before[name])
    assert encoder.training
    np.testing.assert_array_equal(X, kept)  # though this encoder works in place


def test_an_encoder_may_be_made_for_the_number_of_columns():
    X, y = make_X(0.5), make_y(False)
    assert quick(encoder=make_encoder).fit(X, y).transform(X).shape == (60, 7)
    lazy = nn.Sequential(nn.LazyLinear(5), nn.BatchNorm1d(5))
    clf = quick(encoder=lazy).fit(X, y)
    assert clf.transform(X).shape == (60, 5)
    assert clf.n_parameters_ == 40 * 5 + 5 + 10 + clf.net_.module_.head.weight.numel() + N_LABELS


@pytest.mark.parametrize("density, seen", [(0.05, SparseRows), (0.5, torch.Tensor)])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
def test_sparse_rows_go_to_encoders_that_take_them(make, density, seen):
    X, y = make_X(density), make_y(False)
    clf = quick(encoder=Recorder(X.shape[1], 6)).fit(make(X), y)
    assert clf.net_.module_.encoder.seen is seen
    linear = quick(encoder=nn.Linear(X.shape[1], 6)).fit(make(X), y)
    assert linear.transform(X).shape == clf.transform(X).shape


@pytest.mark.parametrize("density", [0.05, 0.5])
def test_bfloat16_stays_close(density):
    X, y = make_X(density).astype(np.float32), make_y(False)
    params = {"max_epochs": 5, "encoder": MLP((16, 16))}
    full, half = quick(**params), quick(precision="bfloat16", **params)
    expected, got = full.fit(X, y).predict_proba(X), half.fit(X, y).predict_proba(X)
    assert got.dtype == np.float32
    assert not np.array_equal(got, expected)
    assert np.abs(got - expected).mean() < 0.01
    # Half precision is for training only.
    features = half.net_.module_.eval()(make_batch(Rows(X, sparse=density < 0.1)).inputs)
    np.testing.assert_array_equal(half.transform(X), features.detach().numpy())


# --- memory -----------------------------------------------------------------------------------

MEASURE = """
import resource
import numpy as np, scipy.sparse as sp
from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.encoders import MLP
from sklearn_xlc.heads import Cascade

rng = np.random.default_rng(0)
n_rows, n_labels = 2000, 200_000
X = sp.random(n_rows, 5000, 0.004, format="csr", dtype=np.float32, random_state=0)
ids = rng.integers(n_labels, size=3 * n_rows)
Y = sp.csr_matrix((np.ones(len(ids), np.int8), (np.arange(len(ids)) // 3, ids)), (n_rows, n_labels))
Y.data[:] = 1
def clf(epochs):
    return MultiHeadClassifier(
        Cascade(embedding_dim=8), encoder=MLP((16,)), max_epochs=epochs, random_state=0
    )
clf(1).fit(X[:50], Y[:50]).predict_topk(X[:50])  # libraries and kernels are loaded
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
fitted = clf(2).fit(X, Y)
fitted.predict_topk(X)
fitted.predict_topk_sparse(X)
fitted.predict(X)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux only")
def test_nothing_of_the_size_of_rows_times_labels_is_allocated():
    """2000 rows times 200 000 labels: a byte each would be 400 MB."""
    command = [sys.executable, "-c", MEASURE]
    grown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert int(grown) * 1024 < 200e6


# --- X mapped from a file -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def arrays_on_disk(tmp_path_factory):
    """Data, indices and indptr of a canonical CSR matrix of 40 000 rows of 64 entries, as files."""
    rng, n_rows, width = np.random.default_rng(0), 40_000, 64
    quick(max_epochs=1).fit(make_X(), make_y(False))  # a first fit loads parts of torch
    folder = tmp_path_factory.mktemp("mapped")
    columns = rng.integers(0, 15, (n_rows, width)) + 15 * np.arange(width)
    np.save(folder / "data.npy", rng.random(n_rows * width, dtype=np.float32) + 0.5)
    for size in (32, 64):
        np.save(folder / f"indices{size}.npy", columns.ravel().astype(f"int{size}"))
        np.save(folder / f"indptr{size}.npy", np.arange(n_rows + 1, dtype=f"int{size}") * width)
    return folder


def mapped(folder, size):
    """Matrix of the files, with indices of that size: the constructor would make them smaller."""
    X = sp.csr_matrix((40_000, 960), dtype=np.float32)
    for name in ("data", f"indices{size}", f"indptr{size}"):
        array = np.load(folder / f"{name}.npy", mmap_mode="r")
        setattr(X, name.removesuffix(str(size)), array)
    return X


def allocated(call):
    """Peak of the bytes that NumPy allocates during a call."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.integration
@pytest.mark.parametrize(
    "size, multilabel, weighted, how",
    [
        (32, False, False, {}),
        (64, False, True, {"early_stopping": True}),
        (64, True, True, {"decision": "threshold", "checkpoint": True}),
    ],
    ids=["plain", "early-stopping", "threshold-checkpoint"],
)
def test_a_mapped_matrix_is_never_copied_whole(
    arrays_on_disk, tmp_path, size, multilabel, weighted, how
):
    X, y = mapped(arrays_on_disk, size), np.arange(40_000) % 5
    y = sp.csr_matrix(np.eye(20)[y]) if multilabel else y
    weight = np.arange(40_000) % 7 > 0 if weighted else None
    how = {name: tmp_path if name == "checkpoint" else value for name, value in how.items()}
    how["ranker"] = "calibration"  # another keeps the heaviest features of a sample
    clf = quick(encoder__hidden_layer_sizes=(4,), max_epochs=1, batch_size=500, **how)
    clone(clf).fit(X[:100], y[:100])  # a first fit loads modules
    calls = [
        lambda: clf.fit(X, y, sample_weight=weight),
        lambda: clf.partial_fit(X, y),
        lambda: clf.predict_topk(X, k=2),
        lambda: clf.predict(X),
    ]
    for call in calls:
        assert allocated(call) < X.data.nbytes / 2


@pytest.mark.parametrize("multilabel", [False, True], ids=["classes", "indicator"])
@pytest.mark.parametrize("head", ["flat", "cascade"])
def test_a_mapped_file_gives_the_model_of_the_matrix_in_memory(tmp_path, head, multilabel):
    X, y = make_X().astype(np.float32), make_y(multilabel)
    Y = sp.csr_matrix(y) if multilabel else one_per_row(y, 99)
    save_csr(tmp_path / "file", (X, Y.astype("int8")))
    mapped_X, mapped_Y = open_csr(tmp_path / "file")
    clf = quick(head=head, max_epochs=2, batch_size=16, random_state=0)
    one = clone(clf).fit(X, Y if multilabel else y)
    two = clone(clf).fit(mapped_X, mapped_Y if multilabel else mapped_Y.indices)
    assert parameters(one) == parameters(two)
    assert one.loss_curve_ == two.loss_curve_


@pytest.mark.integration
@pytest.mark.parametrize(
    "multilabel, how, limit",
    [
        (False, {"ranker": None}, 20),
        (False, {"ranker": "calibration"}, 46),
        (True, {"decision": "topk", "ranker": None}, 12),
        (True, {"ranker": "calibration"}, 46),
        # What lists remember of a sample with one word, one label and four features, in memory and
        # index, when measured: 160, 185.
        (True, {}, 172),
        (False, {}, 196),
    ],
    ids=["classes", "held-out-classes", "indicator", "held-out", "lists", "lists-of-classes"],
)
def test_memory_grows_by_a_few_bytes_a_row(multilabel, how, limit, ten_trees):
    """As with a mapped X: rows of X are read in batches, and labels are counted in blocks."""
    X = sp.csr_matrix(np.eye(20, dtype=np.float32)[np.arange(600_000) % 20])
    y = np.arange(600_000) % 30
    y = sp.csr_matrix(one_per_row(y, 30)) if multilabel else y
    few, many = (X[:200_000], y[:200_000]), (X, y)
    clf = quick(encoder__hidden_layer_sizes=(4,), max_epochs=1, batch_size=5000, **how)
    clf.fit(X[:500], y[:500])  # a first fit loads modules
    with config_context(working_memory=8):  # blocks, which do not grow, are no peak
        growth = allocated(lambda: clf.fit(*many)) - allocated(lambda: clf.fit(*few))
    assert growth < limit * 400_000


MAPPED = """
import sys, threading, time
import numpy as np, scipy.sparse as sp
from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import open_csr, save_csr
from sklearn_xlc.encoders import MLP

path, n_rows, per_row, n_block = sys.argv[1], 10**7, 20, 2**16
def blocks():
    rng = np.random.default_rng(0)
    for start in range(0, n_rows, n_block):
        n = min(n_block, n_rows - start)
        columns = rng.integers(0, 1000, (n, per_row)) + 1000 * np.arange(per_row)
        data = rng.random(n * per_row, np.float32) + 0.5
        parts = (data, columns.ravel().astype(np.int32), per_row * np.arange(n + 1))
        yield sp.csr_matrix(parts, (n, 20_000))
def private():
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("RssAnon")).split()[1]) * 1024
def look():
    global highest
    while True:
        highest = max(highest, private())
        time.sleep(0.02)
# A ranker would remember a million rows, whatever the file holds.
clf = MultiHeadClassifier("flat", encoder=MLP((16,)), ranker=None, max_epochs=1, batch_size=4096)
small = next(blocks())[:5000]
clf.fit(small, np.arange(5000) % 100)  # libraries and kernels are loaded
before = highest = private()
threading.Thread(target=look, daemon=True).start()
save_csr(path, blocks())
X = open_csr(path, verify=False)
clf.fit(X, X.indices[::per_row] % 100)
print(highest - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ten_million_rows_take_a_fraction_of_their_file(tmp_path):
    """The file has 1.6 GB; 2 GB beside the model were asked for."""
    command = [sys.executable, "-c", MAPPED, str(tmp_path / "X.csr")]
    grown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert int(grown) < 500e6


def test_rows_that_are_left_out_leave_no_trace_in_the_model(arrays_on_disk):
    X, y = mapped(arrays_on_disk, 64)[:2000], np.arange(2000) // 2 % 20
    weight = np.arange(2000) % 2.0
    X.data[(X.indices >= 480) & (np.arange(X.nnz) % 128 < 64)] = 0
    X.data[(X.indices >= 720) & (np.arange(X.nnz) >= 64)] = 0  # in row 0 only
    X.eliminate_zeros()
    clf = quick(encoder__hidden_layer_sizes=(4,), max_epochs=1, batch_size=500, early_stopping=True)
    one, two = clone(clf).fit(X, y, sample_weight=weight), clone(clf).fit(X[1::2], y[1::2])
    assert parameters(one) == parameters(two)


# --- score ------------------------------------------------------------------------------------


@pytest.mark.parametrize("multilabel", [True, False])
def test_weights_of_a_score_are_checked_and_do_not_overflow(multilabel):
    X, y = make_learnable(multilabel)
    clf = quick(max_epochs=2).fit(X, y)
    assert clf.score(X, y, np.full(X.shape[0], 1e308)) == pytest.approx(clf.score(X, y))
    ones = np.ones(X.shape[0])
    for weight, match in (
        (np.full(150, "a"), "could not convert string to float"),
        (ones[:3], r"sample_weight.shape == \(3,\), expected \(150,\)"),
        (-ones, "got -1.0 in row 0"),
        (ones * np.nan, "got nan in row 0"),
        (0 * ones, "at least one non-zero"),
    ):
        with pytest.raises(ValueError, match=match):
            clf.score(X, y, weight)


def test_samples_without_tags_score_zero():
    X, _ = make_learnable(True)
    for tags in ([["a"], ["b"], ["a", "b"]] * 50, [[1], [2, 3], [1, 2]] * 50):
        clf = quick(max_epochs=1).fit(X, tags)
        assert clf.score(X[:2], [[], []]) == 0
