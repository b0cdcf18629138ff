"""Refit ranker and decision, forget samples, and track unlearnt parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from sklearn_xlc._ids import as_list
from sklearn_xlc._part import is_auto, is_word
from sklearn_xlc._warn import warn
from sklearn_xlc.batches import Rows, one_thread_of_blas
from sklearn_xlc.decisions import DECISIONS
from sklearn_xlc.engine.deciding import check_decision, decide, is_learnt_by_auto, note_learnt
from sklearn_xlc.engine.plan import Plan
from sklearn_xlc.engine.ranker import can_rank, check_ranker, fit_ranker, in_use, remembers
from sklearn_xlc.engine.resolve import LEAST_HELD, Facts
from sklearn_xlc.engine.settings import Settings, parameters_of, plain_part
from sklearn_xlc.engine.trainer import Trainer
from sklearn_xlc.ranking import RANKERS

#: Parts that are learnt after the network, or from other samples.
_LEARNT_AGAIN = {"ranker", "decision"}


@one_thread_of_blas()
def recalibrate(classifier: Any, X: Any, y: Any, given: dict[str, Any], processes: Any) -> None:
    """Learn ranker and decision of a classifier anew; `given` may say "keep"."""
    is_dropped = classifier.ranker is None and "ranker" in classifier._unlearnt
    if is_dropped and is_word(given["ranker"], "keep"):
        given = {**given, "ranker": None}  # no sample is needed
    is_keep = {name: is_word(value, "keep") for name, value in given.items()}
    _check_given(classifier, X, y, all(is_keep.values()))
    classifier.set_params(**{name: v for name, v in given.items() if not is_keep[name]})
    classifier._validate_params()
    settings = Settings(parameters_of(classifier), classifier._parts)
    head, code = classifier.net_.module_.head, classifier._code
    own, held, facts, Y = None, None, None, sp.csr_matrix((0, code.n_labels), dtype=np.int8)
    if X is not None:
        data = classifier._validate_fit(X, y, None, code, reset=False)
        plan = Plan(classifier, data, going_on=True, processes=processes)
        held, Y = Trainer(plan).prepared(data.rows, classifier.net_.module_), data.rows.Y
        is_softmax, before = can_rank(head, multilabel=False), in_use(classifier)
        facts = replace(  # the head is built, also that of a user's function
            plan.facts,
            pointwise=head.link == "sigmoid",
            one_softmax=is_softmax and (head.searches_all or not code.multilabel),
            retrieves=before is not None and bool(before.reads),
            counts=held.sparse and held.holds_counts(),  # as the network reads them
        )
    decision, is_kept, ranker = settings["decision"], is_keep["ranker"], settings["ranker"]
    stays = is_kept and "ranker" not in classifier._unlearnt
    if decision != "auto" and decision.needs_own_samples and held is not None:
        is_kept = stays
        rng = processes.random_state(check_random_state(classifier.random_state))
        held, own = _halves(held, rng) if not is_kept and ranker is not None else (None, held)
    if held is None and is_kept:
        ranker = "keep"
    elif stays and getattr(ranker, "reads", None):
        in_place = in_use(classifier)
        has_forgotten = in_place is None or not in_place.reads
        ranker = in_place if has_forgotten else ranker
    check_decision(classifier, decision, Y, code)
    check_decision(classifier, decision, Y, code, head)
    if ranker not in (None, "auto", "keep"):
        check_ranker(ranker, head, code, classifier.loss)
    _decide_again(classifier, ranker, decision, facts, held, own)
    note_learnt(classifier, "decision", *([] if is_word(ranker, "keep") else ["ranker"]))
    classifier.settings_ = described(classifier, classifier.settings_)


def _check_given(classifier: Any, X: Any, y: Any, keeps_all: bool) -> None:
    """Raise ValueError if samples lack labels, or if there is nothing to learn anew."""
    if (X is None) != (y is None):
        raise ValueError("X and y belong together: give both, or none")
    is_learnt = is_auto(classifier.decision) and "decision" not in classifier._unlearnt
    if X is None and keeps_all and is_learnt:
        raise ValueError(
            "there is nothing to learn anew: give X and y, samples that the network has not seen, "
            "or a decision that needs none, such as decision=TopK(3)"
        )


def _halves(samples: Rows, rng: np.random.RandomState) -> tuple[Rows, Rows]:
    """Split samples at random: for the ranker, and for a decision with samples of its own."""
    order, half = rng.permutation(len(samples)), len(samples) // 2
    return samples.select(np.sort(order[:half])), samples.select(np.sort(order[half:]))


@one_thread_of_blas()
def forget(classifier: Any, ids: Any) -> None:
    """Let the ranker forget training samples, all if `ids` is None."""
    changed = remembers(classifier).forget(None if ids is None else as_list(ids))
    if classifier.ranker_ is None:
        classifier._waiting = changed if changed.reads else None
    else:
        classifier.ranker_ = changed
        classifier.decision_.scores_changed("forget")
    classifier.settings_ = described(classifier, classifier.settings_)


@contextmanager
def noting_unlearnt(classifier: Any, trained: Set[str]) -> Iterator[None]:
    """Note parts of a fitted classifier, other than `trained`, that the block changes as unlearnt.

    What has its value of the fit is learnt. `trained`: parameters that each training reads.
    """
    before = _values(classifier, trained) if classifier._is_fitted else {}
    try:
        yield
    finally:
        if before:
            _note_unlearnt(classifier, before, _values(classifier, trained))


def _values(classifier: Any, left_out: Set[str]) -> dict[str, Any]:
    """Return the parameters of a classifier and of its parts; of an estimator, its class."""
    values = classifier.get_params().items()  # what an estimator holds has a name of its own
    return {
        name: str(type(value)) if isinstance(value, BaseEstimator) else value
        for name, value in values
        if _part_of(name) not in left_out
    }


def _note_unlearnt(classifier: Any, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    named = classifier._unlearnt
    # Of parts that a state of an earlier version notes, nobody knows the values of the fit.
    unknown = named.keys() - set(map(_part_of, classifier._of_fit))
    of_fit = {**before, **dict.fromkeys(unknown, {}), **classifier._of_fit}
    same = _same(of_fit, now)
    classifier._of_fit = {name: of_fit[name] for name in sorted(of_fit.keys() - same)}
    # "auto" has chosen what stays in the network; ranker and decision are learnt again.
    chosen = {name for name in _same(classifier.settings_, now) if is_auto(of_fit.get(name))}
    same |= {name for name in chosen if _part_of(name) not in _LEARNT_AGAIN}
    changed = set(map(_part_of, before.keys() - _same(before, now)))
    parts = sorted(set(map(_part_of, of_fit.keys() & now.keys() - same)))
    classifier._unlearnt = {part: part not in changed and named.get(part, False) for part in parts}


def _part_of(name: str) -> str:
    """Return the part of a parameter; a parameter of the classifier itself is one."""
    return name.partition("__")[0]


def _same(first: Mapping[str, Any], second: Mapping[str, Any]) -> set[str]:
    """Return the names of parameters that have the same value in both."""
    return {name for name in first.keys() & second.keys() if _is_same(first[name], second[name])}


def _is_same(before: Any, value: Any) -> bool:
    """Return whether two values are one object, or equal words, numbers, or sequences of such.

    So are parts of one class with the same values: a ranker makes its default retrievers anew
    whenever it is asked for them.
    """
    if isinstance(before, BaseEstimator) and type(before) is type(value) and before is not value:
        old, new = before.get_params(deep=False), value.get_params(deep=False)
        return old.keys() == new.keys() and all(_is_same(old[name], new[name]) for name in old)
    both = before, value
    if all(isinstance(each, list | tuple) for each in both):
        return len(before) == len(value) and all(map(_is_same, before, value))
    return before is value or (
        all(isinstance(each, str | Real) for each in both) and before == value
    )


def refuse_another_network(classifier: Any) -> None:
    """Raise ValueError if parameters ask for another network than ``warm_start=True`` trains on."""
    names = set(classifier._unlearnt) - _LEARNT_AGAIN
    if classifier.precision not in ("auto", classifier.settings_["precision"]):
        names.add("precision")
    if names:
        raise ValueError(
            f"warm_start=True trains the fitted network further, and these were set after the fit: "
            f"{', '.join(sorted(names))}; set warm_start=False, which builds another network"
        )


def _decide_again(
    classifier: Any, ranker: Any, decision: Any, facts: Any, held: Rows | None, own: Rows | None
) -> None:
    """Fit ranker and decision of a fitted classifier anew, without its training samples.

    `held`: prepared samples that the network has not seen; None: there are none. `ranker` and
    `decision` are parts or "auto"; the ranker "keep" stays. `own`: samples for the decision alone.
    `facts`: those of the samples; None without any.
    """
    if held is None and ranker not in (None, "keep"):
        raise ValueError(f"ranker={ranker!r} is learnt from samples: give X and y")
    parts, lists = {"ranker": ranker, "decision": decision}, None
    few = [] if held is None else _too_few(classifier, parts, held, facts)
    if held is not None and "ranker" not in few:
        lists = fit_ranker(classifier, parts, facts, None, held)
    elif ranker is None:
        classifier.ranker_ = classifier._waiting = None
    if "decision" not in few:
        decide(classifier, decision, facts, None, held if own is None else own, lists=lists)


def _too_few(classifier: Any, parts: dict[str, Any], held: Rows, facts: Facts) -> list[str]:
    """Return the fitted "auto" parts to keep where samples are too few, with a warning."""
    least = LEAST_HELD if facts.retrieves else facts.least_apart
    if len(held) >= least and held.Y.nnz:
        return []
    stay = {
        "ranker": in_use(classifier) is not None,
        "decision": is_learnt_by_auto(classifier.decision_, classifier.net_.module_.head),
    }
    names = [name for name, part in parts.items() if is_auto(part) and stay[name]]
    if names:
        warn(
            f"'auto' learns from at least {least} samples, some with labels, and X has "
            f"{len(held)}; these stay as they were: {', '.join(names)}; name them to learn anew"
        )
    return names


def described(classifier: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings with what ranker and decision have become."""
    found = {k: v for k, v in settings.items() if not k.startswith(("decision", "ranker"))}
    found |= plain_part("ranker", classifier.ranker_, RANKERS)
    return found | plain_part("decision", classifier.decision_, DECISIONS)


def warn_of_unlearnt(unlearnt: Mapping[str, bool]) -> Mapping[str, bool]:
    """Warn of parameters set after the fit that no warning has named yet; return all as named."""
    remedies = {
        name: "recalibrate" if name in _LEARNT_AGAIN else "fit again"
        for name, is_named in unlearnt.items()
        if not is_named
    }
    if not remedies:
        return unlearnt
    parts = ", ".join(f"{name} ({remedy})" for name, remedy in remedies.items())
    warn(f"parameters were set after fit and have no effect until they are learnt: {parts}")
    return dict.fromkeys(unlearnt, True)
