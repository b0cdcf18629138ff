"""The second network of "refit": ranker and decision learn from samples that it has not seen."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.base import clone

from sklearn_xlc._config import config_context, get_config
from sklearn_xlc._part import cloned
from sklearn_xlc.batches import beside, threads_for, usual_modes, usual_threads
from sklearn_xlc.engine.memory import available_memory
from sklearn_xlc.engine.plan import Plan
from sklearn_xlc.engine.resolve import resolve
from sklearn_xlc.engine.settings import RATES
from sklearn_xlc.engine.trainer import Trainer
from sklearn_xlc.training import may_draw

#: Packages whose objects, each of one network, bear two threads; functions are of the first.
_KNOWN = {"builtins", "numpy", "scipy", "sklearn", "sklearn_xlc"}


@contextlib.contextmanager
def second_network(
    plan: Plan, X: Any, y: Any, sample_weight: Any, rng: np.random.RandomState
) -> Iterator[Callable[[], Any]]:
    """Train the second network of "refit" beside the first one, or after it.

    It depends on nothing that the first one learns. Within the block the first network trains. The
    function that the context returns is called after the block: it returns the second classifier,
    with its ranker and its decision, or None if there is none, or the user has interrupted the
    first network. The second network takes one thread in any case, so that results are equal.
    Parts of others train one after the other: their code need not bear two threads.
    """
    classifier = plan.classifier
    if not plan.held_out.refit:
        yield lambda: None
        return
    seed = rng.randint(2**31 - 1)

    def begun(n_epochs: int) -> Trainer:
        part = _classifier_for(plan, seed, n_epochs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # given in the first fit
            own = part._planned(X, y, sample_weight, plan.processes)
            return Trainer(own).begin(own.begin())

    def result() -> Any:
        return None if classifier.net_.interrupted_ else coming()

    def after() -> Any:
        with threads_for(0):
            return _trained(trainer or begun(classifier.n_iter_))

    trainer = None
    if _may_be_beside(plan):
        trainer = begun(classifier.n_iter_ + plan.settings["max_epochs"])
    if trainer is None or not _suits_threads(trainer):
        coming = after
        yield result
        return
    config, trainer.net.cancelled = get_config(), threading.Event()

    def train() -> Any:
        with config_context(**config), usual_modes(training=True):
            return _trained(trainer)

    with beside(train, trainer.net.cancelled.set) as coming:
        yield result
        if classifier.net_.interrupted_:
            trainer.net.cancelled.set()


def _may_be_beside(plan: Plan) -> bool:
    """Return whether there is a thread for each network, and nobody sees their order."""
    settings = plan.settings
    # Messages to other processes have one order.
    is_free = plan.device == "cpu" and plan.processes.size == 1 and usual_threads() > 1
    return is_free and not (settings["callbacks"] or settings["verbose"])


def _suits_threads(trainer: Trainer) -> bool:
    """Return whether all parts are known to bear two threads, and memory holds both networks."""
    module, settings = trainer.net.module, trainer.plan.settings
    parts = [module.head.criterion, *(settings[name] for name in ("ranker", "decision"))]
    sizes = (p.numel() * p.element_size() for p in module.parameters())
    of_both = 2 * 4 * sum(sizes)  # weights, gradients, moments
    return not may_draw(module) and all(map(_is_known, parts)) and of_both < available_memory()


def _is_known(part: Any) -> bool:
    """Return whether a part and the parts in it are of this package or of those it builds on."""
    inner: Any = getattr(part, "get_params", dict)().values()
    return {type(each).__module__.partition(".")[0] for each in (part, *inner)} <= _KNOWN


def _classifier_for(plan: Plan, seed: int, n_epochs: int) -> Any:
    """Return the second classifier, with the parameters of the first one."""
    part: Any = clone(plan.classifier)
    part._is_part = True
    changed = {
        "max_epochs": n_epochs,
        "random_state": seed,
        "checkpoint": None,
        "validation_fraction": 0.1,
        **_by_rule(plan),
    }
    given = part.get_params(deep=False)
    return part.set_params(**{name: value for name, value in changed.items() if name in given})


def _trained(trainer: Trainer) -> Any:
    """Train the network, then ranker and decision, and return the classifier."""
    part = trainer.classifier
    part._decide(trainer.plan, *trainer.train())
    return part


def _by_rule(plan: Plan) -> dict[str, Any]:
    """Return the parameters with the values of the rules, to resolve them again.

    The second network has fewer samples, and so other values of "auto".
    """
    part = plan.settings["optimizer"]
    values = part.get_params(deep=False)
    rates = [name for name in values if name.endswith("learning_rate")]
    free = cloned(part).set_params(**dict.fromkeys(rates))
    found: dict[str, Any] = {}
    for given, decay in (("auto", part.weight_decay), (free, RATES["weight_decay"])):
        auto = {"batch_size": "auto", "learning_rate": "auto", "optimizer": given}
        ruled = resolve(plan.given.replaced(auto), plan.facts)
        rule = ruled["optimizer"]
        by_rule = {**rule.get_params(deep=False), "weight_decay": part.weight_decay}
        if type(part) is type(rule) and by_rule == values:
            found = {"optimizer": given, "learning_rate": "auto", "weight_decay": decay}
            break
    if plan.given["batch_size"] == ruled["batch_size"]:
        found["batch_size"] = "auto"
    return found
