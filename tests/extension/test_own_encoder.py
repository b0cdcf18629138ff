"""Encoders from the literature, written with public names only: of numbers, and of strings.

Y. Gorishniy, I. Rubachev, A. Babenko. On Embeddings for Numerical Features in Tabular Deep
Learning. NeurIPS 2022 (periodic embeddings).
X. Zhang, J. Zhao, Y. LeCun. Character-level Convolutional Networks for Text Classification.
NeurIPS 2015.
"""

import math

import numpy as np
import pytest
import torch
from _strangers import check_carried, hit_rate, scikit_learn_checks
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import load_wordnet_glosses, make_extreme_multilabel
from sklearn_xlc.encoders import Encoder


class PeriodicEncoder(Encoder):
    """Each number is embedded by sines and cosines of frequencies that learn at a rate of 1e-3."""

    def __init__(self, n_features, n_frequencies=4, width=32):
        super().__init__()
        self.frequencies = nn.Parameter(0.1 * torch.randn(n_features, n_frequencies))
        self.linear = nn.Linear(2 * n_features * n_frequencies, width)
        self.n_outputs = width

    def parameter_groups(self):
        return [{"params": [self.frequencies], "lr": 1e-3, "weight_decay": 0.0}]

    def forward(self, rows):
        angles = (2 * math.pi * rows[:, :, None] * self.frequencies).flatten(1)
        return self.linear(torch.cat([angles.sin(), angles.cos()], dim=1)).relu()


class CharacterEncoder(Encoder):
    """Convolution over the bytes of a text, largest value of each channel."""

    accepts = ("text",)

    def __init__(self, n_outputs=64, n_bytes=60):
        super().__init__()
        self.embedding = nn.Embedding(256, 16)
        self.convolution = nn.Conv1d(16, n_outputs, kernel_size=5, padding=2)
        self.n_outputs, self.n_bytes = n_outputs, n_bytes

    def collate(self, samples):
        codes = np.zeros((len(samples), self.n_bytes), dtype=np.int64)
        for row, text in enumerate(samples):
            found = np.frombuffer(text.encode()[: self.n_bytes], dtype=np.uint8)
            codes[row, : len(found)] = found
        return torch.from_numpy(codes)

    def forward(self, codes):
        return self.convolution(self.embedding(codes).transpose(1, 2)).relu().amax(2)


QUICK = {"max_epochs": 20, "learning_rate": 0.03, "random_state": 0}


test_scikit_learn_checks = scikit_learn_checks(
    MultiHeadClassifier(encoder=PeriodicEncoder, **QUICK)
)


def test_numbers_learn_are_saved_and_go_on(tmp_path):
    X, Y = make_extreme_multilabel(300, 40, 12, random_state=0)
    X = StandardScaler().fit_transform(X.toarray())
    clf = MultiHeadClassifier(encoder=PeriodicEncoder, **QUICK).fit(X, Y)
    assert hit_rate(clf, X, Y) > 0.8
    rates = {group["lr"] for group in clf.net_.optimizer_.param_groups}
    assert rates == {1e-3, 0.03}
    check_carried(clf, X, Y, tmp_path)


@pytest.mark.integration
def test_strings_in_a_pipeline_and_a_search(tmp_path):
    glosses = load_wordnet_glosses()
    texts, y = list(glosses.data[:100]), glosses.target[:100, :200]
    y = np.asarray(y.argmax(axis=1)).ravel() % 3
    longer = {**QUICK, "max_epochs": 20, "learning_rate": 0.1}
    model = make_pipeline(MultiHeadClassifier(encoder=CharacterEncoder, **longer))
    search = GridSearchCV(model, {"multiheadclassifier__weight_decay": [0.0, 0.1]}, cv=2)
    search.fit(texts, y)
    clf = search.best_estimator_[-1]
    assert not hasattr(clf, "n_features_in_")
    assert clf.score(texts, y) > 0.9
    check_carried(clf, texts, y, tmp_path)
