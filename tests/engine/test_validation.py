"""X in the forms that encoders read, and what is said of other forms."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import torch
from torch import nn

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.encoders import Encoder, Text, TextEncoder
from sklearn_xlc.heads import Product

TEXTS = ["to be", "or not", "to be", "not to"] * 5
SMALL = Text(n_buckets=64, hidden_layer_sizes=(8,))
NUMBERS = np.arange(40.0).reshape(20, 2) % 7
y = np.arange(20) % 4


class Pairs(Encoder):
    """Reads a number and a vector."""

    accepts = ("mapping",)

    def __init__(self):
        super().__init__()
        self.day, self.rest = nn.Embedding(7, 5), nn.Linear(2, 5)

    def forward(self, inputs):
        return self.day(inputs["day"]) + self.rest(inputs["rest"])


class Frame(Encoder):
    """Reads two numbers by name."""

    accepts = ("mapping",)

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 5)

    def forward(self, inputs):
        return self.linear(torch.stack([inputs["a"], inputs["b"]], dim=1))


class TextOrNumbers(TextEncoder):
    """Reads strings or two numbers."""

    accepts = ("text", "dense")

    def __init__(self, n_features=50):
        super().__init__(n_features, (4,))

    def collate(self, samples):
        return super().collate(samples) if isinstance(samples, list) else torch.tensor(samples)


def quick(encoder="auto", **params):
    return MultiHeadClassifier(encoder=encoder, max_epochs=3, random_state=0, **params)


def mapping(n_samples=20):
    return {"day": np.arange(n_samples) % 7, "rest": NUMBERS[:n_samples], "id": ["x"] * n_samples}


class Mapped(Pairs):
    """Leaves out what it does not read."""

    def collate(self, samples):
        return super().collate({name: samples[name] for name in ("day", "rest")})


@pytest.mark.parametrize("encoder", [Mapped, Mapped()], ids=["class", "module"])
def test_mapping(encoder):
    X = mapping()
    clf = quick(encoder).fit(X, y)
    assert not hasattr(clf, "n_features_in_")
    assert clf.transform(X).shape == (20, 5)
    scores = clf.decision_function(X)
    more = {"more": np.ones(20), **dict(reversed(X.items()))}
    np.testing.assert_array_equal(clf.decision_function(more), scores)
    clf.partial_fit(X, y)
    assert clf.predict(X).shape == (20,)
    quick(encoder, early_stopping=True).fit(X, y, sample_weight=y)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_columns_of_a_data_frame_are_a_mapping(frame):
    X = {"a": NUMBERS[:, 0], "b": NUMBERS[:, 1]}
    expected = quick(Frame).fit(X, y).decision_function(X)
    np.testing.assert_array_equal(
        quick(Frame).fit(frame(X), y).decision_function(frame(X)), expected
    )
    np.testing.assert_array_equal(quick(Frame).fit(X, y).decision_function(frame(X)), expected)


@pytest.mark.parametrize("options", [{"requires_grad": True}, {"dtype": torch.bfloat16}])
def test_tensors_in_a_mapping(options):
    X = {name: NUMBERS[:, column] for column, name in enumerate("ab")}
    tensors = {name: torch.tensor(values, **options) for name, values in X.items()}
    clf, other = quick(Frame).fit(X, y), quick(Frame).fit(tensors, y)
    np.testing.assert_array_equal(other.decision_function(X), clf.decision_function(tensors))
    with pytest.raises(ValueError, match=r"X\['a'\] is a torch tensor of layout torch.sparse_coo"):
        clf.predict({**X, "a": torch.tensor(NUMBERS).to_sparse()})


def test_mapping_of_other_arrays():
    clf = quick(Mapped).fit(mapping(), y)
    with pytest.raises(ValueError, match=r"X lacks arrays that it had in the first fit: \['day'\]"):
        clf.predict({"rest": NUMBERS, "id": y})
    with pytest.raises(ValueError, match=r"different numbers of samples: \{'day': 20, 'rest': 5"):
        clf.predict({"day": y, "rest": NUMBERS[:5], "id": y})
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[20, 19\]"):
        quick(Mapped).fit(mapping(), y[1:])
    with pytest.raises(ValueError, match="X has 0 samples"):
        clf.predict(mapping(0))


@pytest.mark.parametrize(
    "encoder, X, message",
    [
        ("auto", TEXTS, "X holds strings, but the encoder reads dense rows of numbers or CSR rows.*"
         "TfidfVectorizer in a Pipeline, or pass an encoder that accepts text.* encoder='text'"),
        (nn.Linear(2, 2), np.array(TEXTS), "X holds strings, but the encoder reads dense rows of "),
        ("auto", mapping(), "X holds a mapping of arrays, but the encoder reads .*join the arrays"),
        (TextEncoder, mapping(), "X holds a mapping of arrays, but the encoder reads strings"),
        (TextEncoder, NUMBERS, "X holds rows of numbers, but the encoder reads strings; give X in"),
        (TextEncoder, sp.csr_matrix(NUMBERS), "X holds rows of numbers, but the encoder reads str"),
        (TextEncoder, sp.dok_matrix(NUMBERS), "X holds rows of numbers, but the encoder reads str"),
        (Mapped, TEXTS, "X holds strings, but the encoder reads a mapping of arrays; vectorize"),
        (TextEncoder, [*TEXTS[:3], None, *TEXTS[4:]], r"X\[3\] is None of type NoneType; give one"),
        (TextEncoder, [3, *TEXTS[1:]], r"samples are strings, but X\[0\] is 3 of type int"),
        (TextEncoder, [None] * 20, r"samples are strings, but X\[0\] is None of type NoneType"),
        (TextEncoder, [{"a": 1}] * 20, r"samples are strings, but X\[0\] is {'a': 1} of type dict"),
        (TextEncoder, np.arange(20), r"samples are strings, but X\[0\] is 0 of type"),
        (TextEncoder, NUMBERS.tolist(), "X holds rows of numbers, but the encoder reads strings"),
        (TextEncoder, pd.Series([*TEXTS[1:], pd.NA]), r"X\[19\] is (nan of type float|<NA> of)"),
        (TextEncoder, "to be", "X is one string: 'to be'; give a sequence with one string a"),
        ("auto", "to be", "X is one string: 'to be'; give"),
        (TextEncoder, set(TEXTS), "X is a set; give its samples as a list, in the order of y"),
        (TextEncoder, iter(TEXTS), "X is a list_iterator; give its samples as a list"),
        (TextEncoder, [b"a"] * 20, "X holds bytes; decode them to strings"),
        (TextEncoder, np.array(["a"] * 20, dtype="S"), "X holds bytes; decode them to strings"),
        ("auto", (row for row in NUMBERS), "X is a generator; give its samples as a list"),
        (TextEncoder, [], "X has 0 samples"),
        (TextEncoder, pd.Series([], dtype=object), "X has 0 samples"),
        (TextEncoder, TEXTS[1:], r"inconsistent numbers of samples: \[19, 20\]"),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, str) else type(value).__name__,
)  # fmt: skip
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_forms_that_the_encoder_does_not_read(encoder, X, message, method):
    clf = quick(encoder)
    params = {"classes": y} if method == "partial_fit" else {}
    with pytest.raises(ValueError, match=message):
        getattr(clf, method)(X, y, **params)
    assert vars(clf) == clf.get_params(deep=False)


def test_an_array_without_dimensions_is_refused():
    with pytest.raises(ValueError, match="Expected 2D array, got scalar array"):
        MultiHeadClassifier().fit(np.array(3.0), [0, 1])


def test_another_form_than_in_fit():
    clf = quick(TextOrNumbers).fit(TEXTS, y)
    for method in (clf.predict, lambda X: clf.partial_fit(X, y)):
        with pytest.raises(
            ValueError, match="holds rows of numbers, but held strings in the first"
        ):
            method(NUMBERS)
        for wrong in ([None], [{"a": 1}], [3], pd.Series([None])):
            said = re.escape(f"samples are strings, but X[0] is {wrong[0]!r} of type")
            with pytest.raises(ValueError, match=said):
                method(wrong)
    with pytest.raises(ValueError, match="holds strings, but held rows of numbers in the first"):
        quick().fit(NUMBERS, y).predict(TEXTS)


def test_a_new_fit_may_have_another_form():
    clf = quick(TextOrNumbers).fit(pd.DataFrame(NUMBERS, columns=["a", "b"]), y)
    assert clf.n_features_in_ == 2
    clf.fit(TEXTS, y)
    assert not hasattr(clf, "n_features_in_")
    assert not hasattr(clf, "feature_names_in_")
    clf.fit(NUMBERS, y)
    assert clf.n_features_in_ == 2


def test_clustered_label_order_needs_numbers():
    with pytest.raises(ValueError, match="label_order='clustered' .*X holds rows of numbers"):
        quick(SMALL, head=Product(label_order="clustered")).fit(TEXTS, y)
    quick(SMALL, head=Product(label_order="random")).fit(TEXTS, y)


def test_a_frame_in_place_of_its_column_of_strings_is_refused():
    frame = pd.DataFrame({"text": TEXTS})
    message = r"X is a data frame, but samples are strings; give one column, such as X\['text'\]"
    clf = quick(SMALL)
    with pytest.raises(ValueError, match=message):
        clf.fit(frame, y)
    with pytest.raises(ValueError, match=r"shape \(\d+, 1\), but .* such as X\[:, 0\]"):
        clf.fit(frame.to_numpy(dtype=object), y)
    clf.fit(frame["text"], y)
    with pytest.raises(ValueError, match=message):
        clf.predict(frame)


def test_label_sets_as_classes_are_refused():
    y = [{"a"}, {"b", "c"}] * 4
    with pytest.raises(ValueError, match=r"single labels; give classes=sorted\(set"):
        MultiHeadClassifier().partial_fit(np.eye(8), y, classes=np.unique(np.array(y)))
