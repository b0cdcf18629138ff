"""Plain states of fitted estimators, for every way to save them.

A state holds numbers, strings, dicts, parts and NumPy arrays, and no module or tensor. The encoder
is built again by its part, and the head by its class and arguments; both are then filled with the
arrays. What is loaded is checked here, whoever carried it.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.base import BaseEstimator
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from torch import nn

from sklearn_xlc._carrying import states_now, with_large
from sklearn_xlc._checks import check_sparse
from sklearn_xlc._compat import LinksToDocs
from sklearn_xlc._ids import packed, unpacked
from sklearn_xlc._part import Part, check_parameters, is_class, sets_state
from sklearn_xlc._warn import warn
from sklearn_xlc.batches import is_ours, usual_modes
from sklearn_xlc.distributed import as_kind_of, gathered
from sklearn_xlc.encoders import GivenEncoder, InputLinear, encoder_part
from sklearn_xlc.engine.columns import width_of_standardised
from sklearn_xlc.engine.memory import without_weights
from sklearn_xlc.engine.rounding import SMALL, pack, unpack
from sklearn_xlc.engine.settings import check_settings, plain_of
from sklearn_xlc.heads import Head, Loss, with_label_weight
from sklearn_xlc.ranking import BoostedRanker
from sklearn_xlc.training import EncoderHead, check_saved, shared_tensor

#: Version of the states; part of each.
FORMAT = 8
#: Rows of a weight that has some columns only, in states.
_ROW_OF = "encoder.input.row_of"
#: Types of what holds nothing else.
_LEAVES = {bool, bytes, float, int, str, type(None)}
#: Packages with versions in a state, by the names of their modules.
_PACKAGES = {"sklearn_xlc": "sklearn_xlc", "scikit-learn": "sklearn", "torch": "torch"}


# --- attributes -------------------------------------------------------------------------------


class PlainState(LinksToDocs):
    """Mixin of estimators whose state is plain, and checked when it is loaded."""

    def __getstate__(self) -> dict[str, Any]:
        return plain_state(dict(super().__getstate__()))  # type: ignore[call-overload]

    @sets_state
    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(attributes_of(self, state))  # type: ignore[misc]


def plain_state(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of an estimator in plain forms, in a stable order."""
    plain = {name: _plain(value) for name, value in sorted(attributes.items())}
    return plain | {"_versions": versions()}


def attributes_of(estimator: Any, state: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a result of :func:`plain_state`, after checks.

    UserWarning if another version of a package wrote the state.
    """
    state = dict(state)
    warn_of_versions(f"the saved {type(estimator).__name__}", state.pop("_versions", {}))
    check_parameters(estimator, state)
    check_loaded(state)
    requests = state.pop("_metadata_request", None)
    attributes = {name: _value_of(value) for name, value in state.items()}
    if requests is not None:
        attributes["_metadata_request"] = _requests_of(estimator, requests)
    return attributes


def _plain(value: Any) -> Any:
    """Return an attribute in a plain form, if it has one."""
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Loss):
        with contextlib.suppress(AttributeError):  # the user's may hide its parameters
            return {"loss": type(value), "params": value.get_params(deep=False)}
    return value._serialize() if type(value).__name__ == "MetadataRequest" else packed(value)


def _value_of(plain: Any) -> Any:
    """Return the attribute of a plain form."""
    if isinstance(plain, dict) and plain.keys() == {"loss", "params"}:
        if not is_class(plain["loss"], Loss):
            raise ValueError(
                f"the saved classifier has {plain['loss']!r} for a loss, which is none"
            )
        return plain["loss"](**plain["params"])
    return unpacked(plain)


def _requests_of(estimator: Any, plain: dict[str, Any]) -> Any:
    """Return the metadata requests of an estimator."""
    made = estimator._get_metadata_request()
    for method, of_method in plain.items():
        for name, alias in of_method.items():
            getattr(made, method).add_request(param=name, alias=alias)
    return made


# --- networks ---------------------------------------------------------------------------------


def state_of(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a classifier, with its network as arrays and what builds it again."""
    net = attributes.pop("net_", None)
    if of_fit := attributes.get("_of_fit"):  # no object that is set later is one from a file
        attributes["_of_fit"] = {**dict.fromkeys(of_fit, {}), **plain_of(of_fit)}
    if net is not None:
        rounds, states = attributes.get("_is_rounded", False), states_now()
        if not rounds and "decision_" in attributes:  # not yet while it is trained
            states.tell(attributes["decision_"])
        rounds = rounds or states.rounds
        is_given = attributes["encoder_"] is None  # as a module: no part builds it again
        attributes["_net"] = states.of_net(
            net.module_, lambda: _state_of_net(net.module_, rounds, is_given)
        )
    return plain_state(attributes)


@sets_state
def classifier_of(
    classifier: Any, state: dict[str, Any]
) -> tuple[dict[str, Any], EncoderHead | None]:
    """Return attributes and network (None: not fitted) of a result of :func:`state_of`."""
    attributes = attributes_of(classifier, state)
    saved = attributes.pop("_net", None)
    if saved is None:
        if "n_parameters_" in attributes:
            raise ValueError(
                "the saved classifier is damaged: it is fitted, and its network is missing"
            )
        return attributes, None
    saved = {**saved, "weights": with_large(saved["weights"])}
    weights = saved["weights"].values()
    arrays = [value for value in weights if isinstance(value, np.ndarray)]
    # Training needs a copy of weights that are mapped or read-only.
    attributes["_weights_borrowed"] = any(
        isinstance(value, np.memmap) or not value.flags.writeable for value in arrays
    )
    attributes["_is_rounded"] = len(arrays) < len(weights)
    attributes["_code"].classes = attributes["classes_"]
    net = _net_of_state(saved, attributes)
    _check_fitted(attributes)
    check_settings(classifier, attributes)
    _check_labels(attributes, net.head)
    _check_remembered(attributes, net.encoder)
    return attributes, net


def _check_fitted(attributes: dict[str, Any]) -> None:
    """Raise ValueError unless there are fitted parts, whose parameters are valid."""
    for name in ("ranker_", "decision_"):
        if name not in attributes:
            raise ValueError(f"the saved classifier is damaged: it is fitted, and has no {name}")
        part = attributes[name]
        if is_ours(type(part)):
            part.check()
            with np.errstate(all="ignore"):
                odds = part(0.0) if name == "ranker_" else 0.0
            if not math.isfinite(odds):
                raise ValueError(f"the saved {name} maps the score 0 to {odds}")


def _check_labels(attributes: dict[str, Any], head: Head) -> None:
    """Raise ValueError unless label code, decision and head have the same labels."""
    code, n_labels = attributes["_code"], len(attributes["classes_"])
    n_positions = n_labels if code.n_positions is None else code.n_positions
    positions = np.arange(n_positions) if code.positions is None else np.asarray(code.positions)
    fits = n_positions == head.n_labels and positions.shape == (n_labels,)
    fits = fits and getattr(attributes.get("decision_"), "n_labels_", n_labels) == n_labels
    fits = fits and positions.dtype.kind == "i" and bool(np.diff(np.sort(positions)).all())
    if not fits or positions.min(initial=0) < 0 or positions.max(initial=0) >= n_positions:
        raise ValueError(
            f"the saved classifier has {n_labels} labels, and other ones in its decision or in its "
            f"head, which has {head.n_labels}"
        )


def _check_remembered(attributes: dict[str, Any], encoder: nn.Module) -> None:
    """Raise ValueError if a ranker remembers samples of other labels, or of other columns."""
    remembered = getattr(attributes.get("ranker_"), "remembered", None)
    if remembered is None:
        return
    (samples, Y), n_labels = remembered, len(attributes["classes_"])
    if Y.shape[1] != n_labels:
        raise ValueError(
            f"the saved classifier has {n_labels} labels, and its ranker remembers samples with "
            f"{Y.shape[1]}"
        )
    width = width_of_standardised(encoder)
    ranker, n_features = attributes["ranker_"], attributes["_n_features_out"]
    if isinstance(ranker, BoostedRanker) and len(ranker.axes_) not in (0, n_features):
        raise ValueError(
            f"the saved ranker compares {len(ranker.axes_)} features, and the encoder has "
            f"{n_features}"
        )
    if width and "input" in samples and samples["input"].shape[1] != width:
        raise ValueError(
            f"the saved ranker remembers samples of {samples['input'].shape[1]} columns, and the "
            f"network gives it {width} columns: an earlier version wrote it; fit again"
        )


def _state_of_net(module: EncoderHead, rounds: bool, is_given: bool) -> dict[str, Any]:
    """Return the state of a network: what builds it again, and its arrays, each once."""
    args, params = module.head.made_with
    weights: dict[str, Any] = gathered(module.head, _tensors(module))
    if rounds:
        for name, form in _forms(module):
            if weights[name].size >= SMALL:  # of all processes
                weights[name] = _rounded(name, weights[name], form)
    return {
        "format": FORMAT,
        "encoder": _skeleton(module.encoder) if is_given else None,
        "learnt": _learnt(module.encoder),
        "head": {
            "class": type(module.head),
            "args": [_plain(value) for value in args],
            "params": {name: _plain(value) for name, value in params.items()},
            "n_labels": module.head.n_labels,
        },
        "weights": weights,
        "frozen": [name for name, p in module.named_parameters() if not p.requires_grad],
    }


def _net_of_state(saved: dict[str, Any], state: dict[str, Any]) -> EncoderHead:
    """Build a network again, and fill it with its arrays, without a copy."""
    if saved.get("format") != FORMAT:
        raise ValueError(
            f"the saved classifier has format {saved.get('format')}; this version of sklearn_xlc "
            f"reads {FORMAT}; install the version that wrote it"
        )
    with usual_modes(training=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # given in the fit
        encoder = _encoder_of(saved, state)
        if _ROW_OF in saved["weights"]:
            _hold_rows(encoder, saved["weights"][_ROW_OF])
        head = _head_of(saved["head"], saved["weights"])
    module = EncoderHead(encoder, head)
    dtypes = {p.dtype for p in module.parameters()}
    _fill(module, saved["weights"], set(saved["frozen"]))
    head.check_filled(state.get("n_features_in_"))
    found = {p.dtype for p in module.parameters()}
    if len(found) > len(dtypes):
        raise ValueError(f"the weights of the saved classifier have several types: {found}")
    return module.eval()


def _encoder_of(saved: dict[str, Any], state: dict[str, Any]) -> nn.Module:
    if saved["encoder"] is not None:
        return copy.deepcopy(saved["encoder"])
    part = encoder_part(state["encoder_"])
    sizes = state.get("n_features_in_"), state["_sparse_inputs"]
    build = functools.partial(part.rebuild, *sizes, saved["learnt"].get(""))
    encoder = _built(build, is_ours(type(part)) and not isinstance(part, GivenEncoder))
    for name, learnt in saved["learnt"].items():
        encoder.get_submodule(name).set_extra_state(learnt)
    return encoder


def _hold_rows(encoder: Any, row_of: Any) -> None:
    """Let an input layer hold as many rows as the saved one."""
    layer = getattr(encoder, "input", None)
    if not (isinstance(layer, InputLinear) and layer._hold_saved(row_of)):
        raise ValueError(f"the saved model has {_ROW_OF}, as no fit of its network makes it")


def _head_of(saved: dict[str, Any], weights: dict[str, Any]) -> Head:
    kind, n_labels = saved["class"], saved["n_labels"]
    if not is_class(kind, Head):
        raise ValueError(f"the saved classifier has {kind!r} in place of a head")
    params = {name: _value_of(value) for name, value in saved["params"].items()}
    head = _built(functools.partial(kind, *map(_value_of, saved["args"]), **params), is_ours(kind))
    if "head.criterion.label_weight" in weights:
        head.criterion = with_label_weight(head.criterion, torch.empty(0))
    if n_labels > head.n_labels:  # labels have come since
        longer = {id(old): (len(rows), *old.shape[1:]) for old, rows in head.room_for(n_labels)}
        for part in head.modules():
            for name, old in [*part._parameters.items(), *part._buffers.items()]:
                if id(old) in longer:
                    empty = old.new_empty(longer[id(old)], device="meta")
                    setattr(part, name, as_kind_of(old, empty))
        head.set_n_labels(n_labels)
    if "head._free" in weights:
        head.register_buffer("_free", torch.empty(n_labels, dtype=torch.bool, device="meta"))
    return head


def _built(build: Callable[[], Any], is_known: bool) -> Any:
    """Build a module; code of the user is not called to make tensors without values."""
    return (without_weights(build) if is_known else None) or build()


def _fill(module: EncoderHead, weights: dict[str, Any], frozen: set[str]) -> None:
    """Set the tensors of a module; raise ValueError for other names, shapes or types."""
    held = {id(tensor): name for name, tensor in _tensors(module).items()}
    made: dict[str, torch.Tensor] = {}
    unread: dict[str, bool] = {}
    for place, part in module.named_modules(remove_duplicate=False):
        for kind in ("_parameters", "_buffers"):
            for own, old in vars(part)[kind].items():
                name = held.get(id(old), f"{place}.{own}")
                if old is None and name not in weights:
                    continue
                if name not in made:
                    # Masks have infinities.
                    may_be_infinite = kind == "_buffers" and not is_ours(type(part))
                    weight = weights.get(name)
                    array: Any = unpack(weight) if isinstance(weight, dict) else weight
                    _check_shape(name, array, old, part, module.head)
                    if isinstance(array, np.memmap):  # processes share a map: load reads none of it
                        unread[name] = may_be_infinite
                    else:
                        check_saved(name, shared_tensor(array), may_be_infinite)
                    made[name] = _filled(name, old, array)
                    if name in frozen:
                        made[name].requires_grad_(False)
                vars(part)[kind][own] = made[name]
    unused = weights.keys() - made.keys()
    if unused:
        raise ValueError(f"the saved classifier has {min(unused)}, but its module has not")
    module.unread = unread


def _check_shape(name: str, array: Any, old: Any, part: nn.Module, head: Head) -> None:
    """Raise ValueError unless saved values fit the tensor `old` of a part of a network."""
    shape = array.shape if isinstance(array, np.ndarray) else None
    expected = None if old is None else tuple(old.shape)
    if isinstance(part, InputLinear) and old is None:  # columns have units or long tails
        expected = (part.n_features,)
        is_double, own = part.bias.dtype == torch.float64, name.rpartition(".")[2]
        has_type = shape is None or array.dtype == (np.float64 if is_double else np.float32)
        if not has_type or own == "mean" or (own == "scale" and np.any(array <= 0)):
            raise ValueError(f"the saved model has {name}, as no fit of its network makes it")
    # Buffers that learn the labels are empty at first.
    is_free = not isinstance(old, nn.Parameter) and (expected is None or 0 in expected)
    if shape is None or (head.n_labels not in shape if is_free else shape != expected):
        raise ValueError(f"the saved model has {name} of shape {shape}, but its module {expected}")


def _filled(name: str, old: Any, array: np.ndarray) -> torch.Tensor:
    """Return a tensor with saved values in place of `old`."""
    tensor = shared_tensor(array)
    if old is not None and old.is_floating_point() != tensor.is_floating_point():
        raise ValueError(
            f"the saved model has {name} of type {array.dtype}, its module {old.dtype}"
        )
    if old is not None and old.dtype == torch.bfloat16:  # NumPy has no such type
        tensor = tensor.bfloat16()
    return as_kind_of(old, tensor)


def _tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers by name, each once."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _skeleton(encoder: nn.Module) -> nn.Module:
    """Copy a module without values: pickle carries what a given module is made of."""
    # deepcopy takes the memo entry of a tensor for its copy: no weight is ever duplicated.
    memo: dict[int, Any] = {}
    for tensor in _tensors(encoder).values():
        memo[id(tensor)] = as_kind_of(tensor, torch.empty_like(tensor, device="meta"))
    return copy.deepcopy(encoder, memo).eval()


def _learnt(encoder: nn.Module) -> dict[str, Any]:
    """Return what modules have learnt beside their tensors, by the names of the modules."""
    own = nn.Module.get_extra_state
    modules = encoder.named_modules()
    return {n: m.get_extra_state() for n, m in modules if type(m).get_extra_state is not own}


def _forms(module: EncoderHead) -> Iterator[tuple[str, tuple[int, int | None]]]:
    """Yield the parameters to round, with the length of a row and the column of a bias."""
    columns = {p: (length, bias) for p, length, bias in module.head.bias_columns()}
    for name, p in module.named_parameters():
        if p.ndim > 1 and p.dtype in (torch.float32, torch.float64):
            yield name, columns.get(p, (math.prod(p.shape[1:]), None))


def _rounded(name: str, weight: np.ndarray, form: tuple[int, int | None]) -> dict[str, Any]:
    try:
        return pack(weight, *form)
    except ValueError as error:
        raise ValueError(
            f"{name} holds {error}, which six bits cannot hold; use exact=True, which keeps "
            "weights as they are"
        ) from None


# --- checks -----------------------------------------------------------------------------------


def check_loaded(value: Any) -> None:
    """Raise ValueError where a loaded object could crash or mislead its users.

    Compiled code trusts the indices of sparse matrices, of trees and of vocabularies.
    """
    _check(value, {}, math.inf)


def _check(value: Any, seen: dict[int, Any], n_features: float) -> None:
    """Check an object and what it holds; `n_features`: columns that its trees may split by."""
    if type(value) in _LEAVES or id(value) in seen:
        return
    seen[id(value)] = value  # kept: its id must not become that of another
    if sp.issparse(value):
        check_sparse(value, "a saved matrix")
    elif (items := _items_of(value)) is not None:
        for item in items:
            if type(item) not in _LEAVES:  # names of a hundred thousand labels take no call each
                _check(item, seen, n_features)
    elif type(value).__name__ == "Tree" and type(value).__module__ == "sklearn.tree._tree":
        n_features = min(value.n_features, n_features)
        _check_nodes(value.children_left, value.children_right, value.feature, n_features)
    elif isinstance(value, BaseEstimator) or type(value).__module__.startswith("sklearn"):
        attributes = getattr(value, "__dict__", {})
        if isinstance(value, Part) and is_ours(type(value)):
            _check_numbers(value, attributes)
        if "_predictors" in attributes:
            _check_boosted(value)
        if isinstance(value, FeatureHasher | HashingVectorizer):
            value._validate_params()  # they divide by n_features
        if isinstance(value, CountVectorizer | HashingVectorizer) and value.input != "content":
            raise ValueError(
                f"{value!r} reads the files that samples name, on the machine where it predicts; "
                "use joblib for it"
            )
        if isinstance(value, CountVectorizer | DictVectorizer):
            _check_vocabulary(attributes.get("vocabulary_", {}))
        _check(attributes, seen, _n_features_below(value, attributes, n_features))


def _items_of(value: Any) -> Iterable[Any] | None:
    """Return the items of a container; None for anything else."""
    if isinstance(value, np.ndarray):
        return value.ravel().tolist() if value.dtype == object else ()
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple | set) else None


def _n_features_below(value: Any, attributes: dict[str, Any], n_features: float) -> float:
    """Return the number of columns that an estimator passes on to its trees."""
    module, own = type(value).__module__, attributes.get("n_features_in_", math.inf)
    if module.startswith("sklearn.tree."):
        return min(own, n_features)
    is_ensemble = module.startswith("sklearn.ensemble.") and not module.endswith("_stacking")
    return own if is_ensemble else math.inf  # forests leave it to their trees to check X, or not


def _check_numbers(part: Part, attributes: dict[str, Any]) -> None:
    """Raise ValueError if a number that a part has learnt is NaN: all answers would be."""
    for name, value in attributes.items():
        if name.endswith("_") and isinstance(value, float) and math.isnan(value):
            raise ValueError(f"{name} of the saved {type(part).__name__} is NaN")


def _check_boosted(classifier: Any) -> None:
    """Check the trees of scikit-learn's gradient boosting by histograms."""
    is_categorical = np.asarray(classifier._bin_mapper.is_categorical_)
    n_features = min(classifier.n_features_in_, len(is_categorical))
    for predictor in itertools.chain.from_iterable(classifier._predictors):
        nodes = predictor.nodes
        inner = nodes["is_leaf"] == 0
        left, right = (np.where(inner, nodes[name], np.int64(-1)) for name in ("left", "right"))
        _check_nodes(left, right, nodes["feature_idx"], n_features)
        used = nodes["bitset_idx"][inner & (nodes["is_categorical"] != 0)].astype(np.int64)
        n_known = len(predictor.raw_left_cat_bitsets) if is_categorical.any() else 0
        if used.max(initial=-1) >= n_known:
            raise ValueError("a tree splits by categories that it does not hold")


def _check_nodes(left: Any, right: Any, features: Any, n_features: float) -> None:
    """Raise ValueError unless there is a root, and each child exists and follows its parent."""
    if not len(left):
        raise ValueError("a tree has no node")
    ids, inner = np.arange(len(left)), np.asarray(left) >= 0
    for child in (np.asarray(left, np.int64)[inner], np.asarray(right, np.int64)[inner]):
        if (child <= ids[inner]).any() or (child >= len(ids)).any():
            raise ValueError("a tree has children that come before their parents, or not at all")
    used = np.asarray(features, np.int64)[inner]
    if (used < 0).any() or (used >= n_features).any():
        raise ValueError(f"a tree splits by features beyond the {n_features} there are")


def _check_vocabulary(vocabulary: dict[Any, Any]) -> None:
    """Raise ValueError unless words have the columns 0, 1, 2 and so on: CSR is made of them."""
    columns = np.fromiter(vocabulary.values(), np.int64, len(vocabulary))
    if (np.sort(columns) != np.arange(len(columns))).any():
        raise ValueError(f"a vocabulary of {len(columns)} words has other columns than 0, 1, ...")


def versions() -> dict[str, str]:
    """Return the versions of packages, for a state."""
    return {name: str(sys.modules[module].__version__) for name, module in _PACKAGES.items()}


def warn_of_versions(name: str, stored: dict[str, str]) -> None:
    """Warn if another version of this package, of scikit-learn or of torch wrote `name`."""
    for package, here in versions().items():
        wrote = str(stored.get(package, here))
        # Builds of one version for different devices differ after the plus sign.
        if wrote.partition("+")[0] != here.partition("+")[0]:
            warn(
                f"{name} was written with {package} {wrote}, this is {here}: results may differ; "
                "install the other version, or fit and save again"
            )
