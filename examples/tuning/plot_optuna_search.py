"""
Optuna: fits that fall behind end early
=======================================

Optuna proposes settings from the results of those before, and ends a fit that does worse than
others did after as many epochs (pruning). All it needs of a classifier is a callback that reports
after each epoch. This example needs Optuna (``pip install optuna``).
"""

# %%
# Data
# ----
# A third of the definitions of the quick start. The search sees its training part only.

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

# %%
# A callback that reports
# -----------------------
# With ``early_stopping=True`` a fit holds samples out, and their loss is in the history of the
# net after each epoch. An estimator copies its callbacks, so this one holds a function, which is
# not copied. The exception of a pruned trial ends the fit, and Optuna takes note of it.

from skorch.callbacks import Callback

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.encoders import MLP


class Report(Callback):
    """Hand the held-out loss to a function after each epoch."""

    def __init__(self, report):
        self.report = report

    def on_epoch_end(self, net, **kwargs):
        self.report(len(net.history), float(net.history[-1, "valid_loss"]))


def classifier(params, report):
    return MultiHeadClassifier(
        "flat",
        encoder=MLP(128),
        max_epochs=8,
        early_stopping=True,
        callbacks=[Report(report)],
        random_state=0,
    ).set_params(**params)


# %%
# Search
# ------
# Twelve trials. A trial is pruned after an epoch if its loss is above the median of the others; one
# whose loss has not fallen for three epochs has come to its end, by `early_stopping`.

try:
    import optuna
except ImportError:
    optuna = None
    print("Install optuna to run this example: pip install optuna")

curves = {}


def objective(trial):
    curve = curves[trial.number] = []

    def report(epoch, loss):
        curve.append(loss)
        trial.report(loss, epoch)
        if trial.should_prune():
            raise optuna.TrialPruned

    params = {
        "learning_rate": trial.suggest_float("learning_rate", 3e-4, 3e-2, log=True),
        "encoder__dropout": trial.suggest_float("encoder__dropout", 0.0, 0.8),
    }
    classifier(params, report).fit(X_train, Y_train)
    return min(curve)


if optuna is not None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        sampler=optuna.samplers.TPESampler(n_startup_trials=4, seed=0),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=2),
    )
    study.optimize(objective, n_trials=12)
    states = [trial.state.name for trial in study.trials]
    n_epochs = sum(map(len, curves.values()))
    print(
        f"{states.count('COMPLETE')} trials ran to their end, {states.count('PRUNED')} were pruned"
    )
    print(f"{n_epochs} epochs were trained, of {12 * 8}")
    print("Best:", ", ".join(f"{name}={value:.3g}" for name, value in study.best_params.items()))

# %%
# Results
# -------
# The best setting, trained on all of the training part, and what was tried on the way.

from sklearn_xlc.metrics import precision_at_k

if optuna is not None:
    best = MultiHeadClassifier("flat", encoder=MLP(128), max_epochs=8, random_state=0)
    best.set_params(**study.best_params)
    labels, _ = best.fit(X_train, Y_train).predict_topk(X_test, k=5)
    print(f"P@5 on the test part: {precision_at_k(Y_test, labels, k=5):.3f}")

    try:
        import matplotlib.pyplot as plt
    except ImportError:
        print("Install matplotlib to see the picture.")
    else:
        figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
        for number, curve in curves.items():
            pruned = states[number] == "PRUNED"
            style = {"color": "0.6", "linestyle": "--"} if pruned else {"color": "C0"}
            ax.plot(range(1, len(curve) + 1), curve, marker="o", markersize=3, **style)
        ax.plot([], [], color="C0", label="to the end")
        ax.plot([], [], color="0.6", linestyle="--", label="pruned")
        ax.set(xlabel="epoch", ylabel="loss of held-out texts", title="Trials of the study")
        ax.legend()
        plt.show()
