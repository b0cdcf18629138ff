"""
Pretrain on many classes, use the features elsewhere
====================================================

Recognising faces, voices or products is learnt from a great many people or articles, of which
hardly any matters later: the encoder does. The head "sampling" trains it with one output a class.
A step touches only the groups of outputs that hold a class of the batch. Afterwards
`transform` gives features for a small task with classes that the pretraining never saw.
"""

# %%
# Data
# ----
# A simulation of portraits. A person is 20 numbers; light, pose and camera are 20 others, which are
# twice as strong and differ from picture to picture. Both are mixed into 100 pixels by a function
# that is not linear.

import numpy as np

rng = np.random.default_rng(0)
N_TRAITS, N_CONDITIONS, N_PIXELS = 20, 20, 100
trait_patterns = rng.normal(size=(N_TRAITS, N_PIXELS)) / np.sqrt(N_TRAITS)
condition_patterns = 2 * rng.normal(size=(N_CONDITIONS, N_PIXELS)) / np.sqrt(N_CONDITIONS)


def portraits(people, n_pictures):
    """Pictures of each of the people, and whom they show."""
    y = np.repeat(np.arange(len(people)), n_pictures)
    conditions = rng.normal(size=(len(y), N_CONDITIONS))
    pixels = np.tanh(people[y] @ trait_patterns + conditions @ condition_patterns)
    return (pixels + 0.1 * rng.normal(size=pixels.shape)).astype(np.float32), y


X, y = portraits(rng.normal(size=(20_000, N_TRAITS)), n_pictures=5)
print(f"{len(X)} pictures of {y.max() + 1} people to pretrain on")

# %%
# Pretrain
# --------
# The 20 000 people are 2000 groups of ten. A batch of 256 pictures shows people of about 240
# groups, so that a step computes and updates an eighth of the output layer.

import time

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.encoders import MLP
from sklearn_xlc.heads import Sampling

start = time.perf_counter()
pretrained = MultiHeadClassifier(
    Sampling(lengths=(2000, 10)),
    encoder=MLP((256, 64)),
    max_epochs=5,
    random_state=0,
).fit(X, y)
print(f"Pretrained in {time.perf_counter() - start:.0f} s")

# %%
# A small task
# ------------
# A hundred other people, of whom we have a few pictures each. A logistic regression learns to tell
# them apart, once from the pixels and once from the features. The second is an ordinary pipeline:
# `FrozenEstimator` keeps it from fitting the pretrained step again.

from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

strangers = rng.normal(size=(100, N_TRAITS))
X_test, y_test = portraits(strangers, n_pictures=20)
from_pixels = LogisticRegression(max_iter=1000)
from_features = make_pipeline(FrozenEstimator(pretrained), LogisticRegression(max_iter=1000))

n_pictures = [2, 5, 10, 20]
accuracy = {"pixels": [], "features": []}
print(f"\n{'pictures of each':18}{'pixels':>10}{'features':>10}")
for n in n_pictures:
    X_small, y_small = portraits(strangers, n)
    accuracy["pixels"].append(from_pixels.fit(X_small, y_small).score(X_test, y_test))
    accuracy["features"].append(from_features.fit(X_small, y_small).score(X_test, y_test))
    print(f"{n:<18}{accuracy['pixels'][-1]:10.3f}{accuracy['features'][-1]:10.3f}")

# %%
# With the features, two pictures of a person are as good as twenty without.

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
for name, marker in [("features", "o"), ("pixels", "s")]:
    axes.plot(n_pictures, accuracy[name], marker=marker, label=f"logistic regression on {name}")
axes.set(
    xlabel="pictures of each person",
    ylabel="accuracy on new pictures",
    xticks=n_pictures,
    ylim=(0, 1.05),
)
axes.legend(loc="lower right")
plt.show()

# sphinx_gallery_thumbnail_path = '_static/example_pretraining_sampling.png'
