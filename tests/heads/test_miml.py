"""The multi-instance head against loops over bags and against padded bags."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.autograd import gradcheck
from torch.nn import functional as F

from sklearn_xlc.batches import Bags, Rows, Targets, make_batch
from sklearn_xlc.heads.miml import MIMLHead, first_of_segments, segment_max, sort_segments
from sklearn_xlc.training import RowOptimizer

N_COLUMNS, N_FEATURES, N_LABELS, N_CONCEPTS = 6, 5, 7, 3
SIZES = [3, 1, 5, 2, 1]
LISTS = [[0, 2, 6], [], [1, 1, 1, 4], [5, 5], [3]]
WEIGHT = torch.tensor([1.0, 2.0, 0.5, 1.0, 3.0], dtype=torch.float64)
masks = pytest.mark.parametrize("mask", ["select", "multiply"])
attentions = pytest.mark.parametrize("attention", [False, True])


def make_targets(lists):
    """Labels of lists, with the number of their repetitions if there are any."""
    distinct = [np.unique(np.array(labels, int), return_counts=True) for labels in lists]
    ids, counts = (torch.as_tensor(np.concatenate(part)) for part in zip(*distinct))
    indptr = torch.as_tensor(np.cumsum([0, *(len(labels) for labels, _ in distinct)]))
    return Targets(indptr, ids, None if (counts == 1).all() else counts.double())


def make(mask="select", attention=True, multilabel=True, sizes=SIZES, **params):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    params = {"n_concepts": N_CONCEPTS, "temperature": 0.5, "mask": mask, **params}
    head = MIMLHead(N_FEATURES, N_LABELS, multilabel, **params).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(normal(*parameter.shape))
    if attention:
        head.attend(normal(N_LABELS, N_COLUMNS))
    indptr = torch.as_tensor(np.cumsum([0, *sizes]))
    bags = Bags(normal(sum(sizes), N_COLUMNS), indptr, normal(sum(sizes), N_FEATURES))
    bags.features.requires_grad_()
    return head, bags


def split(bags):
    """Instances and features of each bag."""
    for start, stop in zip(bags.indptr[:-1].tolist(), bags.indptr[1:].tolist()):
        yield bags.instances[start:stop], bags.features[start:stop]


def one_bag(head, instances, features):
    """Ranking keys and values of a single bag, (g, n_labels), as in Section 6 of the paper."""
    concepts = torch.einsum("if,kqf->iqk", features, head.weight) + head.concept_bias.T
    logits = concepts.max(1).values  # V_2
    mask = torch.ones_like(logits)
    if head.label_embeddings is not None:
        rows = instances / instances.norm(dim=1, keepdim=True) if head.by_cosine else instances
        affinity = rows @ head.label_embeddings / head.temperature
        mask = len(rows) * affinity.softmax(0)  # M = g Softmax(tau X L')
    if head.mask == "multiply":
        masked = mask * logits.clamp(min=0)
        return masked, masked + head.bias
    return logits + mask.log(), logits


def reference_scores(head, bags):
    rows = []
    for instances, features in split(bags):
        keys, values = one_bag(head, instances, features)
        rows.append(values[keys.argmax(0), torch.arange(N_LABELS)])
    return torch.stack(rows)


def reference_counted(head, bags, lists):
    """Loss of each bag: the c-th in rank is positive, the next one negative."""
    losses = []
    for (instances, features), labels in zip(split(bags), lists):
        keys, values = one_bag(head, instances, features)
        total = 0.0
        for k in range(N_LABELS):
            ranked = values[keys[:, k].argsort(descending=True), k]
            c = labels.count(k)
            total = total + (F.softplus(-ranked[c - 1]) if c else 0.0)
            total = total + (F.softplus(ranked[c]) if c < len(ranked) else 0.0)
        losses.append(total)
    return torch.stack(losses)


# --- scores -------------------------------------------------------------------------------


@masks
@attentions
def test_scores_are_those_of_a_loop_over_bags(mask, attention):
    head, bags = make(mask, attention)
    expected = reference_scores(head, bags)
    scores = head.scores(bags)
    torch.testing.assert_close(scores, expected)
    best, ids = head.topk(bags, 4)
    torch.testing.assert_close(best, expected.topk(4)[0])
    torch.testing.assert_close(ids, expected.topk(4)[1])


@masks
def test_attention_by_inner_products_reads_the_norms(mask):
    """M = g Softmax(tau X L') with X as given, Section 6 of the paper."""
    head, bags = make(mask, by_cosine=False)
    expected = reference_scores(head, bags)
    torch.testing.assert_close(head.scores(bags), expected)
    cosines, _ = make(mask)
    assert not torch.allclose(cosines.scores(bags), expected)
    units = Bags(F.normalize(bags.instances, dim=1), bags.indptr, bags.features)
    torch.testing.assert_close(head.scores(units), cosines.scores(bags))
    truth = torch.zeros_like(expected)
    for row, labels in enumerate(LISTS):
        truth[row, labels] = 1
    losses = F.binary_cross_entropy_with_logits(expected, truth, reduction="none").sum(1)
    targets = make_targets(LISTS)
    torch.testing.assert_close(head.loss(bags, targets, WEIGHT), WEIGHT @ losses / len(WEIGHT))

    def loss(features):
        return head.loss(Bags(bags.instances, bags.indptr, features), targets, WEIGHT)

    assert gradcheck(loss, (bags.features,), fast_mode=True)


@masks
def test_ragged_bags_are_padded_bags(mask):
    head, bags = make(mask)
    longest = max(SIZES)
    padded = torch.full((len(bags), longest, N_LABELS), float("-inf"), dtype=torch.float64)
    values = torch.zeros(len(bags), longest, N_LABELS, dtype=torch.float64)
    for i, (instances, features) in enumerate(split(bags)):
        padded[i, : len(instances)], values[i, : len(instances)] = one_bag(
            head, instances, features
        )
    expected = values.gather(1, padded.argmax(1, keepdim=True))[:, 0]
    torch.testing.assert_close(head.scores(bags), expected)


@attentions
def test_deep_miml_is_the_maximum_over_instances(attention):
    head, bags = make(attention=attention, temperature=1e20)
    logits = head.instance_logits(bags, slice(0, N_LABELS))
    expected = torch.stack([part.max(0).values for part in logits.split(SIZES)])
    torch.testing.assert_close(head.scores(bags), expected)
    log_mask = head.log_mask(bags, slice(0, N_LABELS))
    assert log_mask.abs().max() < 1e-12 if attention else log_mask is None


def test_columns_of_the_mask_sum_to_the_size_of_the_bag():
    head, bags = make()
    mask = head.log_mask(bags, slice(0, N_LABELS)).exp()
    for part, size in zip(mask.split(SIZES), SIZES):
        torch.testing.assert_close(part.sum(0), torch.full((N_LABELS,), float(size)).double())
    hard, bags = make(temperature=1e-4)
    assert hard.log_mask(bags, slice(0, N_LABELS)).isfinite().all()


@masks
def test_the_mask_does_nothing_to_bags_of_one(mask):
    attending, bags = make(mask, sizes=[1, 1, 1])
    plain, _ = make(mask, attention=False)
    plain.load_state_dict(attending.state_dict(), strict=False)
    torch.testing.assert_close(attending.scores(bags), plain.scores(bags))


def test_the_selected_score_is_that_of_an_instance():
    """The mask chooses; it does not enter the score, whatever its temperature."""
    for temperature in (10.0, 0.3, 0.01):
        head, bags = make(temperature=temperature)
        logits = head.instance_logits(bags, slice(0, N_LABELS))
        for row, part in zip(head.scores(bags), logits.split(SIZES)):
            assert (part == row).any(0).all()


def test_hard_attention_selects_the_nearest_instance():
    head, bags = make(temperature=1e-6)
    logits = head.instance_logits(bags, slice(0, N_LABELS))
    affinity = F.normalize(bags.instances, dim=1) @ head.label_embeddings
    for row, part, near in zip(head.scores(bags), logits.split(SIZES), affinity.split(SIZES)):
        torch.testing.assert_close(row, part.gather(0, near.argmax(0)[None])[0])


def test_multiplying_never_raises_what_is_attended_away():
    """Scores fall with the mask of the instance that decides, also where logits are negative."""
    head, bags = make("multiply", sizes=[2])
    with torch.no_grad():
        head.weight.zero_()
        head.concept_bias.fill_(-1.0)
    torch.testing.assert_close(head.scores(bags)[0], head.bias)  # below one half where negative
    assert (head.bias < 0).any()


@masks
@attentions
def test_order_of_instances_and_of_bags_does_not_matter(mask, attention):
    head, bags = make(mask, attention)
    expected, rng = head.scores(bags), np.random.default_rng(0)
    order = rng.permutation(len(bags))
    parts = np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])
    rows = torch.as_tensor(np.concatenate([rng.permutation(parts[i]) for i in order]))
    indptr = torch.as_tensor(np.cumsum([0, *(SIZES[i] for i in order)]))
    moved = Bags(bags.instances[rows], indptr, bags.features[rows])
    torch.testing.assert_close(head.scores(moved), expected[order])
    lists = [LISTS[i] for i in order]
    for counts in (False, True):
        head.counts = counts
        torch.testing.assert_close(
            head.loss(moved, make_targets(lists), WEIGHT[order]),
            head.loss(bags, make_targets(LISTS), WEIGHT),
        )


@pytest.mark.parametrize("by_cosine", [True, False])
def test_sparse_instances_attend_like_dense_ones(by_cosine):
    head, bags = make(by_cosine=by_cosine)
    X = bags.instances.numpy() * (np.random.default_rng(1).random(bags.instances.shape) < 0.5)
    X[4] = 0
    dense = Bags(torch.from_numpy(X), bags.indptr)
    sparse = make_batch(Rows(sp.csr_matrix(X), sparse=True, bags=bags.indptr.numpy())).inputs
    for chunk in (slice(0, N_LABELS), slice(2, 5)):
        torch.testing.assert_close(head.log_mask(sparse, chunk), head.log_mask(dense, chunk))


def test_length_of_rows_and_of_embeddings_does_not_matter():
    head, bags = make()
    expected = head.log_mask(bags, slice(0, N_LABELS))
    lengths = torch.rand(len(bags.instances), 1, dtype=torch.float64) + 0.1
    longer = Bags(bags.instances * lengths, bags.indptr)
    torch.testing.assert_close(head.log_mask(longer, slice(0, N_LABELS)), expected)
    embeddings = head.label_embeddings.T.clone()
    head.attend(7 * embeddings)
    torch.testing.assert_close(head.log_mask(bags, slice(0, N_LABELS)), expected)
    head.attend(0 * embeddings)
    assert not head.log_mask(bags, slice(0, N_LABELS)).any()


# --- loss ---------------------------------------------------------------------------------


@masks
@attentions
def test_loss_of_bags_is_the_cross_entropy_of_their_scores(mask, attention):
    head, bags = make(mask, attention)
    scores = reference_scores(head, bags)
    truth = torch.zeros_like(scores)
    for row, labels in enumerate(LISTS):
        truth[row, labels] = 1
    losses = F.binary_cross_entropy_with_logits(scores, truth, reduction="none").sum(1)
    targets = make_targets(LISTS)
    torch.testing.assert_close(head.loss(bags, targets), losses.mean())
    torch.testing.assert_close(head.loss(bags, targets, WEIGHT), WEIGHT @ losses / len(WEIGHT))


@masks
@attentions
def test_counted_labels_hold_in_so_many_instances(mask, attention):
    head, bags = make(mask, attention, counts=True)
    losses = reference_counted(head, bags, LISTS)
    loss = head.loss(bags, make_targets(LISTS), WEIGHT)
    torch.testing.assert_close(loss, WEIGHT @ losses / len(WEIGHT))


def test_counting_no_label_is_the_plain_loss():
    plain, bags = make()
    counted, _ = make(counts=True)
    nothing = make_targets([[]] * len(SIZES))
    torch.testing.assert_close(plain.loss(bags, nothing), counted.loss(bags, nothing))


def test_one_class_a_bag_is_the_softmax_cross_entropy():
    head, bags = make(multilabel=False)
    classes = torch.tensor([2, 0, 6, 6, 1])
    expected = F.cross_entropy(reference_scores(head, bags), classes)
    torch.testing.assert_close(head.loss(bags, make_targets(classes[:, None].tolist())), expected)


FORMS = {
    "labels": {},
    "counts": {"counts": True},
    "classes": {"multilabel": False},
}


@masks
@attentions
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("memory_limit", [1, 2**30])
def test_gradient(monkeypatch, mask, attention, form, memory_limit):
    monkeypatch.setattr(MIMLHead, "forward", MIMLHead.loss, raising=False)  # for functional_call
    head, bags = make(mask, attention, **FORMS[form], memory_limit=memory_limit)
    assert len(head._chunks(bags)) == (N_LABELS if memory_limit == 1 else 1)
    targets = make_targets([[2], [0], [6], [6], [1]] if form == "classes" else LISTS)
    names, parameters = zip(*head.named_parameters())

    def call(features, *tensors):
        moved = Bags(bags.instances, bags.indptr, features)
        return torch.func.functional_call(head, dict(zip(names, tensors)), (moved, targets, WEIGHT))

    tensors = [p.detach().clone().requires_grad_() for p in parameters]
    # Every entry of one form; chunks give the same gradient (see the next test).
    fast = memory_limit == 1 or form != "labels"
    assert gradcheck(call, (bags.features, *tensors), fast_mode=fast)


@masks
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_chunks", [2, 7])
def test_memory_limit_changes_nothing(mask, form, n_chunks):
    targets = make_targets([[2], [0], [6], [6], [1]] if form == "classes" else LISTS)
    results = []
    for limit in (2**30, 2 * sum(SIZES) * (N_CONCEPTS + 4) * 8 * -(-N_LABELS // n_chunks)):
        head, bags = make(mask, **FORMS[form], memory_limit=limit)
        assert len(head._chunks(bags)) == (1 if limit == 2**30 else n_chunks)
        loss = head.loss(bags, targets, WEIGHT)
        loss.backward()
        gradients = [p.grad for p in head.parameters()]
        results.append([loss, head.scores(bags), *head.topk(bags, 3), bags.features.grad])
        results[-1] += gradients
    for one, other in zip(*results):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("rule", ["adam", "adagrad", "sgd"])
def test_every_optimiser_lowers_the_loss(rule):
    head, bags = make()
    optimizer = RowOptimizer([{"params": list(head.parameters()), "rule": rule}], lr=0.02)
    targets, losses = make_targets(LISTS), []
    for _ in range(30):
        optimizer.zero_grad()
        loss = head.loss(bags, targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]


@masks
def test_prior_is_where_labels_start(mask):
    head, bags = make(mask, sizes=[2, 3])
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.concept_bias)
    head.set_prior(torch.tensor([1e-9, 1e-6, 0.01, 0.2, 0.5, 0.9, 4.0]))
    expected = torch.tensor([1e-7, 1e-6, 0.01, 0.2, 0.5, 0.5, 0.5], dtype=torch.float64)
    for row in head.scores(bags).sigmoid():
        torch.testing.assert_close(row, expected)


# --- segments -----------------------------------------------------------------------------


def test_segment_functions_are_loops():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 6, 20)
    owner = torch.as_tensor(np.repeat(np.arange(20), sizes))
    keys = torch.as_tensor(rng.integers(0, 4, (len(owner), 3)).astype(float))  # with ties
    largest, first = segment_max(keys, owner, 20), first_of_segments(keys, owner, 20)
    ranked = sort_segments(keys, owner)
    start = 0
    for number, size in enumerate(sizes):
        part = keys[start : start + size].numpy()
        np.testing.assert_array_equal(largest[number], part.max(0))
        np.testing.assert_array_equal(first[number], start + part.argmax(0))
        expected = start + np.argsort(-part, axis=0, kind="stable")
        np.testing.assert_array_equal(ranked[start : start + size], expected)
        start += size


def test_not_a_number_is_passed_on():
    """Weights that went to infinity must end in a loss that says so, not in a wrong index."""
    head, bags = make(sizes=[2, 1])
    with torch.no_grad():
        head.weight.fill_(float("nan"))
    assert head.scores(bags).isnan().all()


def test_bags_move_and_change_type():
    _, bags = make()
    moved = bags.to(torch.device("meta"))
    assert moved.features.is_meta
    assert moved.indptr.is_meta
    assert moved.instances.is_meta
    lower = bags.to(torch.float32)
    assert (lower.features.dtype, lower.instances.dtype) == (torch.float32, torch.float64)
    assert len(lower) == len(SIZES)
    np.testing.assert_array_equal(lower.owner, np.repeat(np.arange(len(SIZES)), SIZES))


@pytest.mark.parametrize("sparse", [False, True])
def test_bags_stay_together_in_batches(sparse):
    X = np.arange(24.0).reshape(12, 2)
    Y = sp.csr_matrix(np.eye(5, dtype=np.int8))
    indptr = np.cumsum([0, *SIZES])
    rows = Rows(sp.csr_matrix(X) if sparse else X, Y, np.arange(5.0), sparse, indptr)
    order = np.array([4, 0, 2])
    batch = make_batch(rows.take(order))
    expected = np.concatenate([X[indptr[i] : indptr[i + 1]] for i in order])
    assert len(rows) == 5
    assert len(batch.inputs) == 3
    np.testing.assert_array_equal(batch.inputs.indptr, [0, 1, 4, 9])
    assert len(batch.inputs.instances) == 9
    if not sparse:
        np.testing.assert_array_equal(batch.inputs.instances, expected)
    np.testing.assert_array_equal(batch.targets.ids, order)
    np.testing.assert_array_equal(batch.sample_weight, order)
    np.testing.assert_array_equal(rows.take(slice(1, 3)).X.shape, (6, 2))
