"""Answers equal brute force: rankings with ties, codes, label sets, metrics, and the verifier."""

import itertools
import math
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch

from attack._trials import Trial, attack
from geometry.test_argmaxability import (
    all_assignments,
    assert_proven,
    check_float_case,
    check_random_case,
    exact_answer,
)
from metrics.test_common import METRICS, slow_metrics, slow_ranking
from sklearn_xlc.codes import MixedRadix, confusion_degree, head_lengths, label_order
from sklearn_xlc.decisions import Divergence, LinearLayer, Nearest, Seen, Threshold, TopK
from sklearn_xlc.geometry import (
    count_argmaxable,
    count_sign_changes,
    divergence_label_sets,
    fourier_matrix,
    label_sets_to_csr,
    nearest_label_sets,
    seen_label_sets,
    simplex_etf,
    verify_argmaxable,
)
from sklearn_xlc.heads import (
    CascadeHead,
    ETFHead,
    FlatHead,
    FourierHead,
    ProductHead,
    SamplingHead,
)

# --- heads ------------------------------------------------------------------------------------


def random_lengths(rng, n_labels):
    """Lengths of up to three heads, whose product is at least the number of labels."""
    n_heads = int(rng.integers(1, 4))
    if rng.random() < 0.5:
        return head_lengths(n_labels, n_heads, ["equal", "descending"][rng.integers(2)])
    lengths = [int(length) for length in rng.integers(1, 7, n_heads)]
    lengths[rng.integers(n_heads)] *= -(-n_labels // math.prod(lengths))
    return tuple(lengths)


def random_head(rng):
    """A head of a random kind and size."""
    n_features, n_labels = int(rng.integers(1, 6)), int(rng.integers(2, 24))
    multilabel, limit = bool(rng.integers(2)), int(rng.choice([64, 400, 2**30]))
    lengths = random_lengths(rng, n_labels)
    flat = {"memory_limit": limit}
    if rng.random() < 0.3:
        flat |= {"width": int(rng.integers(1, 5)), "with_bias": False}
    sizes = (n_features, n_labels)
    makers = {
        "flat": partial(FlatHead, *sizes, multilabel, **flat),
        "product": partial(ProductHead, *sizes, False, lengths, n_groups=int(rng.integers(1, 4))),
        "cascade": partial(
            CascadeHead, *sizes, multilabel, lengths, embedding_dim=3, beam_width=n_labels + 1
        ),
        "sampling": partial(SamplingHead, *sizes, False, int(rng.integers(1, n_labels + 1))),
        "fourier": partial(
            FourierHead,
            *sizes,
            multilabel,
            int(rng.integers((n_labels - 1) // 2 + 1)),
            int(rng.integers(1, 4)),
            limit,
            ["auto", "dense", "fft"][rng.integers(3)],
        ),
        "etf": partial(
            ETFHead, *sizes, multilabel, feature_dim=[None, 4][rng.integers(2)], memory_limit=limit
        ),
        "learned": partial(ETFHead, *sizes, multilabel, learned=True, memory_limit=limit),
    }
    name = list(makers)[rng.integers(len(makers))]
    return name, makers[name]


def check_head(name, make, seed, k):
    """`topk` is the head of the stably sorted scores."""
    torch.manual_seed(seed)
    head = make().double().eval()
    generator = torch.Generator().manual_seed(seed)
    whole = bool(seed % 2)  # whole numbers add up exactly, and tie
    with torch.no_grad():
        for parameter in head.parameters():
            values = torch.randint(-2, 3, parameter.shape, generator=generator).double()
            if not whole:
                values += torch.randn(parameter.shape, generator=generator)
            parameter.copy_(values)
        shape = (3, head.n_features)
        features = torch.randint(-2, 3, shape, generator=generator).double()
        k = min(k, head.n_labels)
        scores, best = head.scores(features).numpy(), head.topk(features, k)
    values, ids = (part.numpy() for part in best)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    assert (np.diff(values, axis=1) <= 0).all()
    assert all(len(set(row)) == k for row in ids.tolist())
    assert ids.min() >= 0
    assert ids.max() < head.n_labels
    close = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12)
    close(values, np.take_along_axis(scores, order, 1))
    close(values, np.take_along_axis(scores, ids, 1))
    if whole and name in ("flat", "sampling", "learned"):
        np.testing.assert_array_equal(ids, order)


def heads(rng):
    name, make = random_head(rng)
    seed, k = int(rng.integers(2**31)), int(rng.integers(1, 26))
    return f"{name} {make.args}, k={k}", partial(check_head, name, make, seed, k)


# --- codes ------------------------------------------------------------------------------------


def check_code(n_labels, lengths, scores, k):
    """Digits by division, rankings by the sum of all, equal sums by label."""
    code = MixedRadix(n_labels, lengths)
    table = []
    for label in range(n_labels):
        digits = []
        for length in reversed(lengths):
            label, digit = divmod(label, length)
            digits.insert(0, digit)
        assert label == 0
        table.append(digits)
    np.testing.assert_array_equal(code.encode(np.arange(n_labels)), table)
    np.testing.assert_array_equal(code.decode(table), np.arange(n_labels))
    assert math.prod(lengths) >= n_labels
    sums = [
        [sum(part[row, d] for part, d in zip(scores, digits)) for digits in table]
        for row in range(len(scores[0]))
    ]
    best, ids = code.topk(scores, k)
    for row, values in enumerate(sums):
        expected = slow_ranking(dict(enumerate(values)), k)
        assert ids[row].tolist() == expected
        assert best[row].tolist() == [values[label] for label in expected]
    largest = np.max(sums, axis=1)
    total = largest + np.log(np.exp(np.array(sums) - largest[:, None]).sum(1))
    np.testing.assert_allclose(code.log_normalizer(scores), total, rtol=1e-12, atol=1e-12)


def codes(rng):
    n_labels = int(rng.integers(1, 40))
    lengths = random_lengths(rng, n_labels)
    scores = [rng.integers(-3, 3, (2, length)).astype(float) for length in lengths]
    k = int(rng.integers(1, n_labels + 1))
    return f"code {n_labels} {lengths} k={k}", partial(check_code, n_labels, lengths, scores, k)


def check_lengths(n_labels, n_heads, rule):
    """No head can be shorter by one where lengths are equal, and all labels have a code."""
    lengths = head_lengths(n_labels, n_heads, rule)
    assert math.prod(lengths) >= n_labels
    assert list(lengths) == sorted(lengths, reverse=True)
    if rule == "equal":
        assert max(lengths) - min(lengths) <= 1
        shorter = [*lengths[:-1], lengths[-1] - 1]
        assert math.prod(shorter) < n_labels or lengths[-1] == 1
    assert math.isfinite(confusion_degree(lengths))


def lengths(rng):
    n_labels, n_heads = int(rng.integers(1, 10 ** int(rng.integers(1, 8)))), int(rng.integers(1, 6))
    rule = ["equal", "descending"][rng.integers(2)]
    return f"lengths {n_labels} {n_heads} {rule}", partial(check_lengths, n_labels, n_heads, rule)


def check_order(order, n_labels, X, Y, seed):
    found = label_order(order, n_labels, X, Y, random_state=seed)
    np.testing.assert_array_equal(np.sort(found), np.arange(n_labels))
    np.testing.assert_array_equal(found, label_order(order, n_labels, X, Y, random_state=seed))


def orders(rng):
    n_labels = int(rng.integers(1, 20))
    X = rng.normal(size=(15, 4))
    Y = sp.csr_matrix((rng.random((15, n_labels)) < 0.3).astype(int))
    order = ["given", "random", "clustered"][rng.integers(3)]
    return f"order {order} {n_labels}", partial(check_order, order, n_labels, X, Y, 0)


# --- label sets -------------------------------------------------------------------------------


def all_sets(n_labels, most):
    return [
        labels
        for size in range(1, most + 1)
        for labels in itertools.combinations(range(n_labels), size)
    ]


def check_two_nearest(distances, found, sets, ranked):
    """Sizes name the nearest set, and the two least distances are those found."""
    sizes, nearest = found
    for row, values in enumerate(distances):
        order = np.sort(values)
        second = order[1] if len(order) > 1 else np.inf
        np.testing.assert_allclose(nearest[row], [order[0], second], rtol=1e-9, atol=1e-9)
        chosen = tuple(sorted(np.argsort(-ranked[row], kind="stable")[: sizes[row]].tolist()))
        assert values[sets.index(chosen)] <= order[0] + 1e-9


def check_divergence(logits, temperature, most):
    """Kullback-Leibler divergences of all label sets, from the definition."""
    sets = all_sets(logits.shape[1], most)
    log_p = logits / temperature
    log_p = log_p - np.log(np.exp(log_p).sum(1, keepdims=True))
    divergence = [[-math.log(len(s)) - row[list(s)].mean() for s in sets] for row in log_p]
    constants = np.log(np.exp(logits / temperature).sum(1))
    found = divergence_label_sets(logits, temperature, most, log_normalizers=constants)
    check_two_nearest(divergence, found, sets, logits)
    best = np.argsort(-logits, axis=1, kind="stable")[:, : most + 1]
    ranked = np.take_along_axis(logits, best, 1)
    few = divergence_label_sets(ranked, temperature, most, n_labels=logits.shape[1])
    np.testing.assert_array_equal(few[0], found[0])
    decision = Divergence(temperature, most).fit(None, np.eye(logits.shape[1]), link="softmax")
    decoded = decision.decode(logits).toarray()
    np.testing.assert_array_equal(decoded, label_sets_to_csr(logits, found[0]).toarray())


def check_nearest(features, weights, scales):
    """Squared distances to the prototypes of all label sets, from the definition."""
    n_labels = len(weights)
    sets = all_sets(n_labels, len(scales))
    prototypes = np.array([scales[len(s) - 1] * weights[list(s)].sum(0) for s in sets])
    distances = ((features[:, None] - prototypes) ** 2).sum(2)
    logits = features @ weights.T
    found = nearest_label_sets(logits, scales, squared_norms=(features**2).sum(1))
    check_two_nearest(distances, found, sets, logits)
    Y = np.eye(n_labels, dtype=int)[: len(features)]
    layer = LinearLayer(weights, is_simplex=True)
    decision = Nearest(1).fit(features[: len(Y)], Y[: len(features)], layer=layer)
    assert (decision.decode(features, layer).sum(axis=1) == 1).all()


def check_seen(features, prototypes):
    distances = ((features[:, None] - prototypes) ** 2).sum(2)
    nearest, two = seen_label_sets(features, prototypes)
    order = np.argsort(distances, axis=1, kind="stable")
    np.testing.assert_allclose(
        np.take_along_axis(distances, nearest[:, None], 1)[:, 0], distances.min(1), atol=1e-9
    )
    np.testing.assert_allclose(two[:, 0], distances.min(1), atol=1e-9)
    if len(prototypes) > 1:
        second = np.take_along_axis(distances, order[:, 1:2], 1)[:, 0]
        np.testing.assert_allclose(two[:, 1], second, atol=1e-9)
    sets = (np.arange(len(prototypes))[:, None] >> np.arange(5)) & 1
    decision = Seen().fit(prototypes, sets)
    np.testing.assert_allclose(
        ((features - decision.means_[_rows_of(decision, features)]) ** 2).sum(1),
        distances.min(1),
        atol=1e-9,
    )


def _rows_of(decision, features):
    """Number of the training set that is decoded for each sample."""
    sets = decision.sets_.toarray().tolist()
    return [sets.index(row) for row in decision.decode(features).toarray().tolist()]


def check_threshold(scores, Y, criterion):
    """No other threshold has a better micro-averaged F1; decoding compares with it."""
    decision = Threshold(criterion=criterion).fit(scores, Y, link="sigmoid")
    decoded = decision.decode(scores).toarray()
    np.testing.assert_array_equal(decoded, scores > decision.cut_)
    if criterion == "micro_f1":

        def f1(cut):
            taken = scores > cut
            return 2 * (taken & (Y == 1)).sum() / max(1, taken.sum() + Y.sum())

        best = max(f1(cut) for cut in [*np.unique(scores), scores.min() - 1])
        assert abs(f1(decision.cut_) - best) < 1e-12


def check_topk(scores, k):
    decision = TopK(k).fit(None, np.eye(scores.shape[1]))
    expected = np.zeros(scores.shape, dtype=int)
    np.put_along_axis(expected, np.argsort(-scores, 1, kind="stable")[:, :k], 1, 1)
    np.testing.assert_array_equal(decision.decode(scores).toarray(), expected)


def label_sets(rng):
    n_labels = int(rng.integers(2, 7))
    most = int(rng.integers(1, n_labels + 1))
    # Multiples of 1/2 tie, and their ties are exact.
    logits = rng.integers(-4, 5, (3, n_labels)) / 2 + (rng.random() < 0.5) * rng.normal(
        size=(3, n_labels)
    )
    kind = rng.integers(5)
    if kind == 0:
        temperature = float(rng.choice([0.25, 0.5, 1.0, 2.0]))
        return f"divergence {most}", partial(check_divergence, logits, temperature, most)
    if kind == 1:
        weights = simplex_etf(n_labels, n_labels, random_state=int(rng.integers(99)))
        scales = np.sort(rng.random(most))[::-1] + 0.1
        return f"nearest {most}", partial(check_nearest, logits, weights, scales)
    if kind == 2:
        prototypes = rng.integers(-3, 4, (int(rng.integers(1, 20)), n_labels)).astype(float)
        prototypes += 1e-3 * rng.normal(size=prototypes.shape)  # nearest ones are unique
        return f"seen {len(prototypes)}", partial(check_seen, logits, prototypes)
    if kind == 3:
        Y = (rng.random(logits.shape) < 0.4).astype(int)
        Y[0, 0] = 1
        criterion = ["micro_f1", "macro_f1", "example_f1"][rng.integers(3)]
        return f"threshold {criterion}", partial(check_threshold, logits, Y, criterion)
    return f"topk {most}", partial(check_topk, logits, most)


# --- metrics ----------------------------------------------------------------------------------


def check_metrics(truth, predicted, weight, k, n_labels):
    """All ranking metrics against sets, lists and loops."""
    propensity = np.linspace(0.1, 1, n_labels)[::-1] ** 1.5
    ranked = [slow_ranking(scores, k) for scores in predicted]
    y_true = np.array([[label in true for label in range(n_labels)] for true in truth])
    dense = np.full((len(truth), n_labels), -np.inf)
    for row, scores in enumerate(predicted):
        dense[row, list(scores)] = list(scores.values())
    ids = np.array([top + [-1] * (k - len(top)) for top in ranked])
    for name, expected in slow_metrics(truth, ranked, weight, k, propensity.tolist()).items():
        metric = METRICS[name]
        if isinstance(metric, partial):
            metric = partial(metric, propensities=propensity)
        for y_pred in (dense, ids):
            value = metric(sp.csr_array(y_true), y_pred, k, sample_weight=weight)
            assert abs(value - expected) < 1e-12, name


def metrics(rng):
    n_labels, n_samples = int(rng.integers(1, 13)), int(rng.integers(1, 6))
    k = int(rng.integers(1, n_labels + 3))
    truth = [set(np.flatnonzero(rng.random(n_labels) < 0.3).tolist()) for _ in range(n_samples)]
    predicted = [
        {int(i): int(rng.integers(-3, 4)) for i in np.flatnonzero(rng.random(n_labels) < 0.6)}
        for _ in range(n_samples)
    ]
    weight = rng.choice([0, 0.5, 1, 3], n_samples)
    weight[0] = 1
    weight = weight.tolist()
    return f"metrics k={k}", partial(check_metrics, truth, predicted, weight, k, n_labels)


KINDS = [heads, heads, heads, codes, codes, lengths, orders, label_sets, label_sets, metrics]


@attack(small=120, whole=10_000)
def test_exactness(rng, index):
    """Answers of heads, codes, decisions and metrics against brute force."""
    name, run = KINDS[index % len(KINDS)](rng)
    return Trial(name, run, "result")


# --- the verifier -----------------------------------------------------------------------------


def check_counts(W):
    """As many argmaxable sets as hyperplanes in general position cut out, each one proven."""
    n_labels, n_features = W.shape
    Y = all_assignments(n_labels)
    report = verify_argmaxable(W, Y)
    minors = itertools.combinations(range(n_labels), n_features)
    if n_features <= n_labels and all(round(np.linalg.det(W[list(rows)])) for rows in minors):
        assert report.n_unknown == 0
        assert report.n_argmaxable == count_argmaxable(n_labels, n_features)
    assert_proven(report, W, None, Y)
    opposite = report.status[::-1]  # without biases, x and -x predict opposite sets
    np.testing.assert_array_equal(report.status, opposite)


def check_points(W, b, points):
    """What a layer predicts for a point of whole numbers is argmaxable, with and without hints."""
    logits = points @ W.T + b
    clear = (logits != 0).all(1)
    if clear.any():
        Y = (logits[clear] > 0).astype(int)
        assert (verify_argmaxable(W, Y, b).status != 0).all()
        report = verify_argmaxable(W, Y, b, points=points)
        assert (report.status == 1).all()
        assert_proven(report, W, b, Y)


def check_fourier(n_labels, max_active, Y):
    report = verify_argmaxable(fourier_matrix(n_labels, max_active), Y, max_active=max_active)
    possible = count_sign_changes(Y) <= 2 * max_active
    assert (report.status[possible] == 1).all()
    assert (report.status[~possible] != 1).all()


def check_degenerate(W, b, Y):
    """Sums and multiples of other labels, where conflicts are many: answers by elimination."""
    report = verify_argmaxable(W, Y, b)
    for row, y in enumerate(Y):
        assert report.status[row] in (-1, int(exact_answer(W, b, y)))
    assert_proven(report, W, b, Y)


@attack(small=20, whole=3000)
def test_verifier(rng, index):
    """Verdicts in fractions and whole numbers: elimination, counting, and points of a layer."""
    n_labels, n_features = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    seed = 20_000 + index
    if index % 6 < 2:
        check = check_random_case if index % 6 else check_float_case
        return Trial(f"seed {seed}", partial(check, seed), "result")
    W = rng.integers(-4, 5, (n_labels, n_features)).astype(float)
    b = rng.integers(-3, 4, n_labels).astype(float)
    if index % 6 == 2:
        run = partial(check_counts, W)
    elif index % 6 == 3:
        run = partial(check_points, W, b, rng.integers(-5, 6, (6, n_features)).astype(float))
    elif index % 6 == 4:
        n_labels = int(rng.integers(3, 40))
        most = int(rng.integers((n_labels - 1) // 2 + 1))
        Y = (rng.random((4, n_labels)) < rng.random()).astype(int)
        run = partial(check_fourier, n_labels, most, Y)
    else:
        W[-1] = W[0] * rng.integers(-2, 3) + W[n_labels // 2]
        run = partial(check_degenerate, W, b, rng.integers(0, 2, (2, n_labels)))
    return Trial(f"layer {W.tolist()} {b.tolist()}", run, "result", seconds=60.0)
