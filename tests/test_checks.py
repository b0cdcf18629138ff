"""Checks of X, y and matrices: what passes, and the message of what does not."""

import datetime
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
import torch

from sklearn_xlc import EAGLETransformer, MultiHeadClassifier
from sklearn_xlc._checks import (
    check_counts,
    check_csr,
    check_indicator,
    check_sample_weight,
    check_sparse,
    check_y,
    is_indicator,
    unchanged_on_error,
)


def break_indptr(matrix):
    matrix.indptr[1] = matrix.indptr[-1] + 5


def no_entries(matrix):
    matrix.indptr[-1] = 0


def break_end(matrix):
    matrix.indptr[-1] += 100


def break_start(matrix):
    matrix.indptr[0] = 1


def negative_index(matrix):
    matrix.indices[0] = -3


def large_index(matrix):
    matrix.indices[-1] = 10**6


def fractional_indices(matrix):
    matrix.indices = matrix.indices.astype(float)


def fractional_indptr(matrix):
    matrix.indptr = matrix.indptr.astype(float)


def short_indptr(matrix):
    matrix.indptr = matrix.indptr[:-1]


def short_data(matrix):
    matrix.data = matrix.data[:-1]


BREAK = {
    break_indptr: "pointers must not decrease",
    no_entries: "pointers must not decrease",
    break_end: "Last value of index pointer",
    break_start: "index pointer should start with 0",
    negative_index: ".*must be >= 0",
    large_index: ".*must be < ",
    fractional_indices: "indices and pointers must be integers, got dtype float64",
    fractional_indptr: "indices and pointers must be integers, got dtype float64",
    short_indptr: "index pointer size",
    short_data: "indices and data should have the same size",
}


@pytest.mark.parametrize("make", [sp.csr_matrix, sp.csc_array, sp.bsr_array])
@pytest.mark.parametrize("damage", BREAK, ids=lambda function: function.__name__)
def test_broken_compressed_matrices(make, damage):
    matrix = make(np.arange(1.0, 13.0).reshape(4, 3))
    check_sparse(matrix, "X")
    damage(matrix)
    with pytest.raises(ValueError, match=f"X is not a valid .* matrix: {BREAK[damage]}.*build it"):
        check_sparse(matrix, "X")


def test_broken_coordinates():
    matrix = sp.coo_array(np.eye(3))
    matrix.coords[1][0] = 9
    with pytest.raises(ValueError, match="X is not a valid COO matrix: axis 1 index 9 exceeds"):
        check_sparse(matrix, "X")
    matrix.data = matrix.data[:2]
    with pytest.raises(ValueError, match="all index and data arrays must have the same length"):
        check_sparse(matrix, "X")


def test_what_scipy_remembers_of_the_order_is_forgotten():
    matrix = sp.csr_array(np.ones((2, 3)))
    assert matrix.has_canonical_format
    matrix.indices[:3] = [2, 0, 0]
    assert not check_sparse(matrix, "X").has_canonical_format


def test_entries_beyond_the_last_pointer_are_left_out():
    matrix = sp.csr_array(np.ones((2, 3)))
    matrix.indptr = np.array([0, 3, 3])
    assert check_sparse(matrix, "X").data.shape == (3,)
    assert matrix.data.shape == (6,)


MATRIX = np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]])
REPEATED = sp.csr_array((np.ones(3), [1, 0, 0], [0, 1, 3]), shape=(2, 3))
WITH_ZEROS = sp.csr_array((np.array([0.0, 1.0]), ([0, 1], [2, 1])), shape=(2, 3))


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.float32])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, sp.csc_matrix, sp.lil_array])
def test_indicator(make, dtype):
    indicator = check_indicator(make(MATRIX.astype(dtype)), "y")
    assert isinstance(indicator, sp.csr_array)
    assert indicator.has_canonical_format
    assert indicator.dtype == np.int8
    np.testing.assert_array_equal(indicator.toarray(), MATRIX)


@pytest.mark.parametrize("check", [check_indicator, check_counts])
def test_stored_zeros_go_and_the_argument_stays(check):
    untidy = sp.csr_array(([1.0, 0.0, 1.0], [2, 1, 0], [0, 3]), shape=(1, 3))
    untidy.data.setflags(write=False)
    untidy.indices.setflags(write=False)
    np.testing.assert_array_equal(check(untidy, "y").indices, [0, 2])
    assert untidy.indices.tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    "matrix, message",
    [
        ([[1, 0], [0, 2]], r"y must hold 0 and 1 only, got 2 in row 1, column 1; remedy$"),
        ([[1.0, 0], [-1, 0.5]], "got -1.0 in row 1"),
        (sp.csr_array([[1.0, 0], [0, np.nan]]), "got nan in row 1, column 1"),
        (REPEATED, "y holds an entry of the sparse indicator more than once, got 2 in row 1"),
        ([1, 0], r"y must be a two-dimensional matrix of numbers, got shape \(2,\)"),
        ([["a"]], "got shape .* and dtype <U1"),
        ([[1, 0], [1]], "y must be a rectangular array or a sparse matrix"),
    ],
)
def test_indicator_refused(matrix, message):
    with pytest.raises(ValueError, match=message):
        check_indicator(matrix, "y", "remedy")


@pytest.mark.parametrize(
    "value, dtype, times, message",
    [
        (1, np.int8, 257, "more than once, got 257 in row 1, column 2"),
        (1, np.uint8, 256, "more than once, got 256 in row 1, column 2"),
        (1, bool, 2, "more than once, got 2 in row 1, column 2"),
        (0.5, float, 2, "0 and 1 only, got 0.5 in row 1, column 2"),
    ],
)
def test_repetitions_in_coordinates_are_refused(value, dtype, times, message):
    """SciPy adds them up in their own dtype, where 256 ones may be none, and two halves are one."""
    entries = np.full(times, value, dtype=dtype), (np.ones(times, int), np.full(times, 2))
    for make in (sp.coo_matrix, sp.coo_array):
        with pytest.raises(ValueError, match=message):
            check_indicator(make(entries, shape=(3, 4)), "y")


@pytest.mark.parametrize("make", [sp.coo_matrix, sp.coo_array])
def test_repeated_counts_add_up_beyond_their_dtype(make):
    entries = np.array([200, 100, 1], dtype=np.uint8), ([1, 1, 0], [2, 2, 0])
    counts = check_counts(make(entries, shape=(2, 3)), "y")
    np.testing.assert_array_equal(counts.toarray(), [[1, 0, 0], [0, 0, 300]])


def test_counts_too_large_together_are_refused():
    much = sp.csr_array(([2**31 - 1, 1], [0, 0], [0, 2]), shape=(1, 1))
    with pytest.raises(ValueError, match=r"whole numbers from 0 on.*got 2147483648 in row 0"):
        check_counts(much, "y")


def test_many_repetitions_do_not_wrap_around():
    for times in (256, 257):
        repeated = sp.csr_array((np.ones(times, bool), np.zeros(times, int), [0, times]), (1, 1))
        with pytest.raises(ValueError, match=f"more than once, got {times} in row 0"):
            check_indicator(repeated, "y")


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32])
def test_counts(dtype):
    counts = check_counts(3 * MATRIX.astype(dtype), "y")
    assert counts.dtype == np.int32
    np.testing.assert_array_equal(counts.toarray(), 3 * MATRIX)
    np.testing.assert_array_equal(check_counts(REPEATED, "y").toarray(), REPEATED.toarray())


@pytest.mark.parametrize("value", [-1.0, 0.5, np.nan, np.inf, 2.0**31])
def test_counts_refused(value):
    rule = "y must hold counts of labels, whole numbers from 0 on"
    with pytest.raises(ValueError) as caught:
        check_counts([[3.0, 1.0], [0.0, value]], "y")
    assert str(caught.value) == f"{rule}, got {value} in row 1, column 1"


def test_csr_keeps_values_and_shares_arrays():
    given = sp.csr_array(MATRIX * 1.5)
    assert np.shares_memory(check_csr(given, "X").data, given.data)
    assert check_csr(WITH_ZEROS, "X").nnz == 2


def test_a_sparse_matrix_of_objects_is_refused():
    matrix = sp.csr_matrix(np.eye(2))
    matrix.data = matrix.data.astype(object)
    with pytest.raises(ValueError, match="X must hold numbers, got a sparse matrix of object"):
        check_sparse(matrix, "X")


def test_attributes_come_back_when_the_block_raises():
    class Fitted:
        a = 1

    fitted = Fitted()
    fitted.a, fitted.b = 2, 3

    def interrupted_fit():
        with unchanged_on_error(fitted):
            fitted.a, fitted.c = 5, 6
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted_fit()
    assert vars(fitted) == {"a": 2, "b": 3}


def test_a_second_interrupt_finds_no_empty_estimator():
    """Wherever it strikes in the roll-back, the attributes are all old or all of the failed fit."""

    class Fitted:
        pass

    def interrupt_at(line):
        fitted, count = Fitted(), 0
        fitted.a, fitted.b = 2, 3

        def trace(frame, event, argument):
            nonlocal count
            if frame.f_code is unchanged_on_error.__wrapped__.__code__:
                count += event == "line"
                if count == line:
                    raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        try:
            with unchanged_on_error(fitted):
                fitted.a = 5
                sys.settrace(trace)
                sys._getframe().f_trace = trace
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        return vars(fitted)

    for line in range(1, 6):
        assert interrupt_at(line) in ({"a": 2, "b": 3}, {"a": 5, "b": 3})


def test_classes_of_few_samples_need_no_filter_of_warnings(monkeypatch):
    """A filter is shared by all threads: one may take back what another has set."""
    monkeypatch.setattr(warnings, "filterwarnings", lambda *args, **kwargs: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_y(np.arange(30)).tolist() == list(range(30))


def test_classes_of_half_precision():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_y(np.array([0, 1, 0, 1], np.float16)).tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    "y, message",
    [
        ([0.5, 1.0], "continuous numbers"),
        (np.array([0.5, 1.0], np.float16), "continuous numbers"),
        ([b"a", b"b"], "objects of type bytes; convert them to str or int"),
        (np.array([1, 2], dtype=object), r"objects of type int; call y.astype\(int\)"),
        ([1, 10**30], "64 bits cannot hold all of these integers; convert them to str"),
        ([{"a": 1}, {"b": 1}], r"y\[0\] is of type dict: a class label is a string or a number"),
        ([torch.ones(2), torch.ones(3)], r"y\[0\] is of type Tensor: a class label is a string"),
        ([{"a": 1}, "b"], "y mixes labels of different types"),
        ([1.0, np.nan], "NaN"),
        (np.array(["2020-01-01", "NaT"], "M8[D]"), r"y\[1\] is NaT: every sample needs a class"),
        (np.array([1, "NaT"], "m8[D]"), r"y\[1\] is NaT: every sample needs a class"),
        (np.array([1j, 2j]), "Complex"),
        (np.array([(1, 2)] * 2, "i8, i8"), r"array of 2 fields: give one of them, y\['f0'\]"),
    ],
)
def test_values_that_are_no_classes(y, message):
    with pytest.raises(ValueError, match=message):
        check_y(y)


def test_no_labels_at_all():
    for check in (check_y, is_indicator):
        with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
            check(None)


def test_wide_indices_of_a_sparse_matrix_are_shared():
    X = sp.csr_matrix(np.eye(4))
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    X.data = np.append(X.data, 7)  # beyond the last pointer
    X.indices = np.append(X.indices, 99)
    assert X.has_canonical_format
    checked = check_sparse(X, "X")
    assert checked.indices.dtype == checked.indptr.dtype == np.int64
    assert all(
        np.shares_memory(getattr(checked, name), getattr(X, name))
        for name in ("data", "indices", "indptr")
    )
    X.indices[:2] = [1, 0]
    assert checked.nnz == 4
    np.testing.assert_array_equal(checked.toarray(), np.eye(4)[[1, 0, 2, 3]])
    X.indptr = X.indptr.astype(np.int32)  # types that SciPy has to make equal
    assert check_sparse(X, "X").indices.dtype == check_sparse(X, "X").indptr.dtype


@pytest.mark.parametrize(
    "weight, found",
    [
        ([1, 2, np.nan, -1], "nan in row 2"),
        ([1, -0.5, np.inf, 1], "-0.5 in row 1"),
        (pd.Series([1, np.inf, 2, 3], [7, 8, 9, 10]), "inf in row 1"),
        (pd.array([1, 2, None, 3], dtype="Int64"), "nan in row 2"),
        ([None, 1, 2, 3], "nan in row 0"),
        (np.array([1, 2, -3, 0]), "-3.0 in row 2"),
    ],
)
@pytest.mark.parametrize("assume_finite", [False, True])
def test_the_first_wrong_weight_is_named(weight, found, assume_finite):
    with (
        sklearn.config_context(assume_finite=assume_finite),
        pytest.raises(ValueError, match=f"sample_weight must be finite .*, got {found}"),
    ):
        check_sample_weight(weight, np.empty(4))


@pytest.mark.parametrize("name", ["X", "y", "sample_weight"])
def test_masked_values_are_refused(name):
    given = {"X": np.eye(6), "y": np.arange(6) % 2, "sample_weight": np.ones(6)}
    given[name] = np.ma.masked_equal(given[name], 1)
    place = r"\[0, 0\]" if name == "X" else r"\[1\]" if name == "y" else r"\[0\]"
    with pytest.raises(ValueError, match=f"^{name} is a masked array without a value at {place}"):
        MultiHeadClassifier(max_epochs=1).fit(**given)
    given[name] = np.ma.array(np.ma.getdata(given[name]))  # none is masked
    MultiHeadClassifier(max_epochs=1).fit(**given)


DAYS = pd.date_range("2020-01-01", periods=6)
DATES = {
    "dates": DAYS,
    "zone": DAYS.tz_localize("UTC"),
    "durations": DAYS - DAYS[0],
    "periods": DAYS.to_period("D"),
    "missing": DAYS.where(np.arange(6) > 0),
    "objects": pd.Series([None, *DAYS.date[1:]], dtype=object),
    "times": pd.Series([datetime.time(3)] * 6, dtype=object),
}


@pytest.mark.parametrize("dates", DATES.values(), ids=DATES)
@pytest.mark.parametrize("first", [True, False])
def test_a_column_of_dates_is_refused_by_name(dates, first):
    X = pd.DataFrame(np.eye(6, 3)).add_prefix("x")
    X.insert(0 if first else 3, "when", dates)
    message = r"column 'when' of X holds \w+.*: give numbers of it, such as .*X\['when'\].*\.dt\."
    for call in (
        lambda: MultiHeadClassifier().fit(X, list("ababab")),
        lambda: MultiHeadClassifier().partial_fit(X, list("ababab"), classes=["a", "b"]),
        lambda: EAGLETransformer().fit(X, np.eye(6, 2, dtype=int), np.arange(6)),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_other_frames_keep_their_messages():
    X = pd.DataFrame(np.eye(6, 3)).add_prefix("x")
    clf = MultiHeadClassifier(max_epochs=1).fit(X, list("ababab"))
    with pytest.raises(ValueError, match=r"(?s)feature names should match.*- when"):
        clf.predict(X.assign(when=DAYS))
    with pytest.raises(ValueError, match="could not convert string to float: 'a'"):
        MultiHeadClassifier().fit(X.assign(word="a"), list("ababab"))
    with pytest.raises(TypeError, match="float.. argument"):
        MultiHeadClassifier().fit(X.assign(other=[{}] * 6), list("ababab"))
