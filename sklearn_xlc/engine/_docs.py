"""Documentation of what all classifiers share, written once."""

from __future__ import annotations

PARAMETERS = """encoder : {"auto", "mlp", "text"}, EncoderPart, torch.nn.Module or callable, \
            default="auto"
        Network that maps a batch of samples to features. "auto" and "mlp": a multilayer perceptron
        of dense and sparse X, :class:`~sklearn_xlc.encoders.MLP`; "text": a perceptron of strings,
        :class:`~sklearn_xlc.encoders.Text`. A module is copied, never changed. A class or function
        is called with `n_features_in_`, or with nothing where X holds strings or a mapping; see
        :class:`~sklearn_xlc.encoders.Encoder`.
    loss : str or Loss, default="auto"
        Loss to minimise: "auto", "bce", "asymmetric", "focal", "propensity_bce" or
        "pick_all_labels" for label sets, "auto" or "ce" for class labels, or an object such as
        :class:`~sklearn_xlc.heads.AsymmetricLoss`.{loss}
    ranker : {"auto", "calibration"}, Ranker or None, default="auto"
        Map from scores of label sets to calibrated probabilities, fitted on held-out samples;
        :class:`~sklearn_xlc.ranking.Calibration`. "auto": where each label has a score of its own,
        and there are enough samples. None: probabilities of the network. Without meaning for class
        labels.
    decision : str or Decision, default="auto"
        Rule that turns scores into label sets: "threshold", "topk", "divergence", "nearest",
        "seen", "joint_mode", or an object of :mod:`sklearn_xlc.decisions`. "auto": "divergence" for
        losses with a softmax, the most probable set where sets have probabilities, otherwise a
        threshold tuned on held-out samples; up to 1000 samples, labels with a probability above one
        half. Without meaning for class labels.
    optimizer : {"auto", "adam", "mixed", "adagrad", "sgd"} or Optimizer, default="auto"
        Update rule of the weights, or an object of :mod:`sklearn_xlc.optimizers`. "auto": "mixed"
        on sparse X, otherwise "adam".
    learning_rate : float or "auto", default="auto"
        Peak learning rate, handed to the optimiser: it warms up over the first 5% of the steps,
        then falls to zero along a half cosine.
    weight_decay : float, default=0.0
        Decoupled weight decay of matrices, handed to the optimiser.
    batch_size : int or "auto", default="auto"
        {samples} per step. "auto": all up to 1000 samples, beyond 256 or 512.
    max_epochs : int or "auto", default="auto"
        Passes over the data. "auto": 200 up to 1000 samples, where each is one step; beyond, 3 to
        10 by the number of samples on sparse X, otherwise 10 or more.
    early_stopping : bool, default=False
        Whether to hold out samples, stop when their loss has not fallen for three epochs, and
        restore the weights of the best epoch. A callback
        :class:`skorch.callbacks.EarlyStopping` replaces the rule.
    validation_fraction : float or "refit", default=0.1
        Fraction of the samples held out for early stopping, and for a ranker or decision that is
        tuned; at most 0.05 for "auto". "refit": the network is trained on all samples, and a second
        one, trained on a part of them, gives ranker and decision; it is what "auto" does on 1000 to
        30 000 samples of sparse X, for 1.4 to 1.9 times the time.
    class_weight : dict, {"balanced", "propensity"} or None, default=None
        Weights of labels in the loss. A dict maps labels to weights; others weigh one. "balanced":
        inverse to the label's number of samples. "propensity": one divided by the label's
        :func:`~sklearn_xlc.metrics.propensities`. None: one.
    precision : {"auto", "float32", "float64", "bfloat16"}, default="auto"
        Type of the weights. "bfloat16": float32, with matrix products of training at half
        precision. "auto": "bfloat16" on sparse X where the processor multiplies such matrices
        several times faster; the type of X up to 1000 samples; otherwise "float32".
    callbacks : list of skorch callbacks, default=None
        Callbacks of the training loop, such as :class:`~sklearn_xlc.training.WeightAveraging`. They
        are copied, never changed.
    checkpoint : str or path-like, default=None
        Folder of checkpoints: `fit` writes the state of the training there after epochs, and the
        same `fit`, started again after a kill, goes on from it and ends in the same bytes. None: no
        checkpoints.
    device : str or torch.device, default="auto"
        Device for training and prediction. "auto": a GPU if there is one.
    warm_start : bool, default=False
        Whether the next `fit` continues from the fitted network.
    random_state : int, RandomState instance or None, default=None
        Seed of all that is drawn. The same seed on the same machine with the same number of threads
        gives the same model, bit for bit.
    verbose : int, default=0
        1 prints a line for each epoch, and shows its steps in a terminal or notebook."""

ATTRIBUTES = """classes_ : ndarray of shape (n_labels,)
        Class labels, or the names or numbers of the indicator's columns.
    settings_ : dict
        What "auto" stood for: plain values by parameter, nested ones included. A fit with
        ``set_params(**settings_)`` gives the same model.
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
        Numbers of each epoch: losses, learning rate and scores, as far as they were measured.
    n_parameters_ : int
        Number of trainable parameters.
    net_ : skorch.NeuralNet
        Trained net; ``net_.module_`` holds encoder and head."""


def with_shared(text: str, loss: str = "", samples: str = "Samples") -> str:
    """Fill in the shared parameters and attributes of a class docstring."""
    parameters = PARAMETERS.replace("{loss}", loss).replace("{samples}", samples)
    return text.replace("{parameters}", parameters).replace("{attributes}", ATTRIBUTES)
