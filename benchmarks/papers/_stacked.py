"""Stacked digits, a small network and its training: what the collapse experiments share."""

import numpy as np
from torch import nn

from sklearn_xlc import ETFNeuralCollapseClassifier
from sklearn_xlc.datasets import make_label_set_images
from sklearn_xlc.heads import ETF, Learned

#: Pixels of a side of the canvas: digits of MNIST at half of their size, on a doubled canvas.
SIDE = 28
BATCH = 128
#: Feature decay of the paper: 5e-4 times the sum over a batch of 128.
PAPER_DECAY = 5e-4 * BATCH
#: Fixed and learnt last layer.
OUTPUTS = {"etf": ETF, "learned": Learned}


class Encoder(nn.Module):
    """Three convolutions, the maximum over places, and a hidden layer, on rows of pixels."""

    def __init__(self, n_outputs):
        super().__init__()
        self.n_outputs = n_outputs
        layers, width = [], 1
        for wider, kernel in ((16, 5), (32, 3), (64, 3)):
            convolution = nn.Conv2d(width, wider, kernel, stride=2, padding=kernel // 2)
            layers += [convolution, nn.BatchNorm2d(wider), nn.ReLU()]
            width = wider
        layers += [nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(width, 256)]
        layers += [nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, n_outputs)]
        self.layers = nn.Sequential(*layers)

    def forward(self, rows):
        return self.layers(rows.view(-1, 1, SIDE, SIDE))


def load_digits(folder, part):
    """Digits of MNIST at half of their size ("train" or "test"), and their classes."""
    with np.load(folder / "mnist" / "mnist.npz") as data:
        images, y = data[f"X_{part}"], data[f"y_{part}"]
    halves = images.reshape(len(images), SIDE // 2, 2, SIDE // 2, 2).mean(axis=(2, 4))
    return halves.astype(np.float32) / 255, y


def stack(images, y, **options):
    """Rows of pixels and indicator of stacked images."""
    stacked, Y = make_label_set_images(images, y, **options)
    return stacked.reshape(len(stacked), -1), Y


def classifier(output, n_features, epochs, seed, feature_decay=PAPER_DECAY, **options):
    """The paper's loss and feature decay before a fixed or a learnt layer, without biases."""
    return ETFNeuralCollapseClassifier(
        OUTPUTS[output](feature_decay=feature_decay, fit_intercept=False),
        loss="pick_all_labels",
        encoder=lambda n_inputs: Encoder(n_features),
        batch_size=BATCH,
        max_epochs=epochs,
        random_state=seed,
        **{"learning_rate": 5e-3, "weight_decay": 0.5, **options},
    )
