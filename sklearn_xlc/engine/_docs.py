"""Docstrings of the parameters and attributes shared by all classifiers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PARAMETERS = """encoder : {"auto", "mlp", "text"}, EncoderPart, torch.nn.Module or callable, \
            default="auto"
        Network from samples to features. "auto" and "mlp": :class:`~sklearn_xlc.encoders.MLP`.
        "text": :class:`~sklearn_xlc.encoders.Text`. A module is copied. A callable gets
        `n_features_in_` (strings, mappings: nothing); see :class:`~sklearn_xlc.encoders.Encoder`.
    loss : str or Loss, default="auto"
        Loss to minimise, such as :class:`~sklearn_xlc.heads.FocalLoss`. For label sets: "bce",
        "asymmetric", "focal", "propensity_bce", "pick_all_labels". For class labels: "ce".{loss}
    ranker : {"auto", "boosted", "calibration"}, Ranker or None, default="auto"
        Order and probabilities of labels, fitted on held-out samples. "auto": with enough samples,
        "boosted" for label sets with a score for each label, and for 100 classes and more, else
        "calibration". None: those of the network.
    decision : str or Decision, default="auto"
        Rule from scores to label sets: "threshold", "topk", "divergence", "nearest", "seen",
        "joint_mode", "risk_control", or an object of :mod:`sklearn_xlc.decisions`. "auto":
        "joint_mode" if label sets have probabilities, otherwise "threshold"; "divergence" with a
        softmax and too few samples to tune on.
    optimizer : {"auto", "adam", "mixed", "adagrad", "sgd"} or Optimizer, default="auto"
        Update rule, see :mod:`sklearn_xlc.optimizers`. "auto": "mixed" on sparse X, else "adam".
    learning_rate : float or "auto", default="auto"
        Peak learning rate. It warms up over 5% of the steps, then falls along a half cosine.
    weight_decay : float, default=0.0
        Decoupled weight decay of matrices.
    batch_size : int or "auto", default="auto"
        {samples} per step. "auto": at most 256, or 512, in equal batches.
    max_epochs : int or "auto", default="auto"
        Passes over the data. "auto": 200 up to 64 samples, then 3 or more by their number.
    early_stopping : bool, default=False
        Whether to stop after three epochs without a lower loss of held-out samples, and restore the
        best weights; replaced by a callback :class:`skorch.callbacks.EarlyStopping`.
    validation_fraction : float or "refit", default=0.1
        Fraction of the samples held out for early stopping, ranker and decision; at most 0.05 if
        these are "auto". A decision with a guarantee gets a fraction of its own. "refit": train on
        all samples, and fit ranker and decision with a second network trained on a part of them;
        "auto" does so on 248 to 30 000 samples of sparse X.
    class_weight : dict, {"balanced", "propensity"} or None, default=None
        Weights of labels in the loss: a dict by label (others weigh 1), "balanced" (inverse to the
        counts) or "propensity" (inverse to :func:`~sklearn_xlc.metrics.propensities`).
    precision : {"auto", "float32", "float64", "bfloat16"}, default="auto"
        Type of the weights; "bfloat16" is float32 with half-precision products in training. "auto":
        "float64" if X has it, up to 1000 samples; else "float32", or "bfloat16" if much faster on
        sparse X.
    callbacks : list of skorch callbacks, default=None
        Callbacks, such as :class:`~sklearn_xlc.training.WeightAveraging`; `fit` copies them.
    checkpoint : str or path-like, default=None
        Folder of checkpoints, from which the same `fit` resumes to the same model, if killed.
    device : str or torch.device, default="auto"
        Device for training and prediction. "auto": a GPU if there is one.
    warm_start : bool, default=False
        Whether the next `fit` continues from the fitted network.
    random_state : int, RandomState instance or None, default=None
        Seed. The same seed, machine and number of threads give the same model, bit for bit.
    verbose : int, default=0
        1 says what begins: network, ranker, decision. It prints a line for each epoch, with the
        seconds that are left, and shows its steps in a terminal or notebook."""

ATTRIBUTES = """classes_ : ndarray of shape (n_labels,)
        Class labels, or the names or numbers of the indicator's columns.
    settings_ : dict
        Values used for "auto"; a fit with ``set_params(**settings_)`` gives the same model.
    encoder_, ranker_, decision_ : object
        Encoder with its resolved parameters; fitted ranker (or None) and decision. The trained copy
        of a module given as `encoder` is ``net_.module_.encoder``, and `encoder_` is None.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, where X had names.
    n_iter_ : int
        Number of epochs trained.
    loss_curve_ : list of float
        Training loss of each epoch.
    history_ : list of dict
        Losses, learning rate and scores of each epoch.
    n_parameters_ : int
        Number of trainable parameters.
    net_ : skorch.NeuralNet
        Trained net; ``net_.module_`` holds encoder and head."""


def with_shared(text: str, loss: str = "", samples: str = "Samples") -> str:
    """Fill in the shared parameters and attributes of a class docstring."""
    parameters = PARAMETERS.replace("{loss}", loss).replace("{samples}", samples)
    return text.replace("{parameters}", parameters).replace("{attributes}", ATTRIBUTES)


def documented_by(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decorator that copies the docstring of another method."""

    def documented(method: Callable[..., Any]) -> Callable[..., Any]:
        method.__doc__ = original.__doc__
        return method

    return documented
