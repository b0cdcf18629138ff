"""
Many settings for the time of a few: successive halving over epochs
===================================================================

A search that trains every setting to the end spends most of its time on poor ones. Successive
halving trains many settings for one epoch, keeps the best third, trains these for three epochs, and
so on. scikit-learn has it; the resource is the parameter `max_epochs`.
"""

# %%
# Data
# ----
# A third of the definitions of the quick start, and the labels that occur among them often enough.
# The labels are a sparse matrix, which the search takes as it is.

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from sklearn_xlc.datasets import load_wordnet_glosses

glosses = load_wordnet_glosses()
train, test = glosses.train_indices[::3], glosses.test_indices
frequent = np.flatnonzero(np.asarray(glosses.target[train].sum(axis=0)).ravel() >= 3)
vectorizer = TfidfVectorizer(sublinear_tf=True, dtype=np.float32)
X_train = vectorizer.fit_transform(glosses.data[train])
X_test = vectorizer.transform(glosses.data[test])
Y_train, Y_test = glosses.target[train][:, frequent], glosses.target[test][:, frequent]
print(f"{X_train.shape[0]} texts to learn from, {len(frequent)} labels")

# %%
# Search
# ------
# The learning rate of a fit falls to zero over its epochs, however few they are. So a setting that
# leads after three epochs has been trained as one would train for three epochs, and what halving
# compares is fair. Width and dropout are parameters of the encoder "mlp". The network ranks alone
# here: with lists of similar texts (the default), all settings would look alike.

from scipy.stats import loguniform, uniform
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import HalvingRandomSearchCV, KFold

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.metrics import get_scorer

search = HalvingRandomSearchCV(
    MultiHeadClassifier("flat", encoder="mlp", ranker="calibration", random_state=0),
    {
        "encoder__hidden_layer_sizes": [64, 128, 256],
        "encoder__dropout": uniform(0, 0.8),
        "learning_rate": loguniform(3e-4, 3e-2),
    },
    resource="max_epochs",
    min_resources=1,
    max_resources=9,
    factor=3,
    n_candidates=9,
    scoring=get_scorer("precision_at_5"),
    cv=KFold(2, shuffle=True, random_state=0),
    random_state=0,
)
search.fit(X_train, Y_train)

# %%
# Results
# -------
# Nine settings of one epoch, three of three epochs and one of nine cost as much as three fits of
# nine epochs.

results = search.cv_results_
for iteration in range(search.n_iterations_):
    of = results["iter"] == iteration
    print(
        f"{of.sum()} settings, {search.n_resources_[iteration]} epochs: "
        f"P@5 from {results['mean_test_score'][of].min():.3f} "
        f"to {results['mean_test_score'][of].max():.3f}"
    )
print("Best:", ", ".join(f"{name}={value:.3g}" for name, value in search.best_params_.items()))
print(f"P@5 on the test part: {search.score(X_test, Y_test):.3f}")

# %%
# Picture
# -------
# A line is a setting, from the epochs of its first round to those of its last.

try:
    import matplotlib.pyplot as plt
except ImportError:
    print("Install matplotlib to see the picture.")
else:
    figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
    settings = [str({**params, "max_epochs": None}) for params in results["params"]]
    for setting in dict.fromkeys(settings):
        rows = [row for row, other in enumerate(settings) if other == setting]
        epochs, scores = results["n_resources"][rows], results["mean_test_score"][rows]
        kept = epochs[-1] == search.n_resources_[-1]
        ax.plot(epochs, scores, "o-", color="C0" if kept else "0.6", zorder=2 + kept)
    ax.set(xscale="log", xlabel="epochs", ylabel="P@5 of held-out texts")
    ax.set_xticks(search.n_resources_, map(str, search.n_resources_))
    ax.minorticks_off()
    ax.set_title("Successive halving: who goes on")
    plt.show()
