"""Types, devices, and threads: for little work, and after a fork."""

import pickle
import threading
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from _accelerator import DEVICE, OnDevice, Pretending, pretended
from _distributed import in_threads
from torch import nn

import sklearn_xlc
from _factories import EVERY, make_learnable, quick
from sklearn_xlc.batches import Rows, make_batch
from sklearn_xlc.distributed.processes import ALONE
from sklearn_xlc.engine import trainer
from sklearn_xlc.heads.screening import largest_input
from sklearn_xlc.training import RowOptimizer
from sklearn_xlc.training.devices import (
    multiplies_bfloat16,
    numpy_dtype,
    resolve_device,
    shared_tensor,
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numpy_dtype(dtype):
    assert numpy_dtype(nn.Linear(1, 1).to(dtype)) == np.zeros(0, str(dtype)[6:]).dtype


def test_devices(monkeypatch):
    assert resolve_device("cpu") == resolve_device(torch.device("cpu")) == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == "cpu"
    with pytest.warns(UserWarning, match="device='cuda:1' needs a GPU, but there is none"):
        assert resolve_device("cuda:1") == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto") == "cuda"
    for wrong in ("gpu", "meta", "cpu:x", "", None):
        with pytest.raises(ValueError, match=f"device={wrong!r} is neither 'auto' nor a torch dev"):
            resolve_device(wrong)


@pytest.mark.parametrize("name", ["xpu", "mtia", "hpu"])
def test_a_device_of_another_kind_of_machine(name):
    """torch refuses each in another way."""
    with pytest.raises(ValueError, match=f"device={name!r} is neither 'auto' nor a torch device"):
        resolve_device(name)


def test_a_model_of_another_machine_is_loaded_on_the_cpu(tmp_path):
    X, _ = make_learnable(False, dtype=np.float32)
    with pretended():
        clf, scores = fitted("flat", False, torch.device(DEVICE))
        sklearn_xlc.save(clf, tmp_path / "model.skops", exact=True)
        content = pickle.dumps(clf)
        near = pickle.loads(content)
        assert near.device == str(DEVICE) == str(near.net_.module_.head.weight.device)
    for load in (lambda: sklearn_xlc.load(tmp_path / "model.skops"), lambda: pickle.loads(content)):
        with pytest.warns(UserWarning, match="device='lazy:0' is neither .* of this .*; using the"):
            loaded = load()
        assert {each.device.type for each in loaded.net_.module_.parameters()} == {"cpu"}
        np.testing.assert_array_equal(loaded.predict_topk(X, 3)[1], scores)


def test_no_device_of_any_machine_is_loaded():
    clf, _ = fitted("flat", False, "cpu")
    clf.device = "gpu"
    with pytest.raises(ValueError, match="device='gpu' is neither 'auto' nor a torch device"):
        pickle.loads(pickle.dumps(clf))


# --- a device with memory of its own ------------------------------------------------------------


def test_the_pretended_device_refuses_what_a_gpu_refuses():
    with pretended() as waits:
        held, ones = torch.arange(3.0, device=DEVICE), torch.ones(3)
        with pytest.raises(RuntimeError, match="mixes the CPU with the device"):
            held + ones
        with pytest.raises(TypeError, match="copy them to the CPU first"):
            held.numpy()
        assert (held * 2 + torch.ones(()) + ones.to(DEVICE)).cpu().tolist() == [2.0, 4.0, 6.0]
        held[torch.tensor([0, 2])] = torch.ones(2, device=DEVICE)  # indices may lie on the CPU
        with pytest.raises(RuntimeError, match="mixes the CPU with the device"):
            held[torch.tensor([0, 2])] = torch.zeros(2)
        held.data = held.data.clone() + 1
        assert held.numpy(force=True).tolist() == [2.0, 2.0, 2.0]
        assert not waits  # of lines of this package, which have not read anything
        fitted("flat", False, DEVICE.type)
        assert {place.split(":")[0] for place in waits} >= {"training/finite.py"}
        batch = make_batch(Rows(sp.csr_matrix(np.eye(4)), sparse=True)).to(DEVICE)
        batch.inputs.transpose
        assert any(place.startswith("batches/sparse_rows.py") for place in waits)


def fitted(name, multilabel, device, **params):
    """Classifier after a few steps, with the scores of its best labels."""
    X, y = make_learnable(multilabel, dtype=np.float32)
    given = {"groups": np.arange(150) // 2} if name.startswith("bags") else {}
    y = y[::2] if given else y
    small = {"max_epochs": 2, "batch_size": 40, "device": device}
    small["encoder__hidden_layer_sizes"] = (24,)
    small["precision"] = "float32"  # "auto" depends on the device
    small |= {"ranker": None, "decision": "topk"}  # one network
    clf = quick(name, **small | params).fit(X, y, **given)
    scores = clf.predict_topk(X, 3, **given)[1]
    clf.predict(X, **given)
    return clf, scores


SOME = [("flat", True), ("cascade", False), ("sampling", False), ("dft", False)]
SLOW = [pytest.param(*case, marks=pytest.mark.slow) for case in EVERY if case not in SOME]


@pytest.mark.parametrize("name, multilabel", [*SOME, *SLOW])
def test_everything_that_meets_in_a_kernel_is_on_one_device(name, multilabel):
    expected, expected_scores = fitted(name, multilabel, "cpu")
    with pretended() as waits:
        clf, scores = fitted(name, multilabel, DEVICE.type)
    assert {each.device for each in clf.net_.module_.parameters()} == {DEVICE}
    if name != "sampling-own":  # draws on the device
        assert clf.loss_curve_ == expected.loss_curve_
        np.testing.assert_array_equal(scores, expected_scores)
    # Batches come with all that a step reads, and a step of a plain head waits three times, once
    # more for the mean square of the input layer's gradient.
    assert not [place for place in waits if place.startswith(("batches/", "encoders/"))]
    n_steps = sum(len(row["batches"]) for row in clf.net_.history)
    del waits[next(place for place in waits if place.endswith("is_finite"))]  # at the end
    often = sum(n for n in waits.values() if n >= n_steps)
    assert often <= (4 if name in ("flat", "dft", "etf", "pick-all") else 24) * n_steps


@pytest.mark.parametrize("named", [DEVICE.type, str(DEVICE)])
def test_what_a_device_draws_follows_random_state(named):
    """Dropout and negatives; `device="cuda"` gives generators without the number of the GPU."""
    drawing = {"encoder__dropout": 0.5, "head__n_negatives": 2}
    found = {}
    for turn, seed in enumerate((0, 0, 1)):
        with pretended():
            torch.empty(1, device=named).uniform_()  # the caller's own draws are no matter
            clf, _ = fitted("flat", True, named, random_state=seed, **drawing)
        found[turn] = clf.loss_curve_
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("name", ["flat", "cascade"])
def test_half_precision_leaves_weights_and_features_in_float32(name):
    with pretended():
        clf, scores = fitted(name, True, DEVICE.type, precision="bfloat16")
        kept = [*clf.net_.module_.parameters(), *clf.net_.optimizer_.state_dict()["state"].values()]
    assert clf.net_.module_.head.low_precision
    kept = [each for one in kept for each in (one.values() if isinstance(one, dict) else [one])]
    assert {each.dtype for each in kept} == {torch.float32}
    single, single_scores = fitted(name, True, "cpu", precision="float32")
    np.testing.assert_allclose(clf.loss_curve_, single.loss_curve_, rtol=0.01)
    assert not np.array_equal(scores, single_scores)


def test_a_loss_that_is_not_finite_leaves_the_weights_of_a_device_as_they_were(monkeypatch):
    with pretended():
        clf, _ = fitted("flat", True, DEVICE.type)
        net, state = clf.net_, {k: v.cpu() for k, v in clf.net_.module_.state_dict().items()}
        X, Y = make_learnable(True, dtype=np.float32)
        batch = make_batch(Rows(X.toarray(), Y)).to(DEVICE)
        plain = net.module_.head.loss
        monkeypatch.setattr(net.module_.head, "loss", lambda *args: plain(*args[:3]) * torch.nan)
        with pytest.raises(ValueError, match="the training loss became nan in epoch"):
            net.train_step(batch)
        for name, values in net.module_.state_dict().items():
            assert torch.equal(values.cpu(), state[name])


@pytest.mark.parametrize("rule", ["adam", "adagrad", "sgd"])
@pytest.mark.parametrize(
    "gradient, lr, decay",
    [(np.nan, 0.1, 0.1), (np.inf, 0.1, 0.1), (1.0, 1e20, 0.0), (1.0, 1.0, 3.0)],
)
@pytest.mark.parametrize("rows", [slice(1, 3), [1, 2]], ids=str)
def test_an_update_that_would_overflow_leaves_weights_and_moments(rows, gradient, lr, decay, rule):
    """Nobody waits for its norm: a fused head updates its rows while the loss is computed."""
    with pretended():
        weight = nn.Parameter(torch.ones(4, 2, device=DEVICE))
        group = {"params": [weight], "rule": rule, "weight_decay": 0.1, "fused": True}
        optimizer = RowOptimizer([group], lr=0.1, momentum=0.9)
        at = torch.tensor(rows, device=DEVICE) if isinstance(rows, list) else rows

        def take_step(gradient):
            optimizer.update(weight, at, torch.full((2, 2), gradient, device=DEVICE))
            optimizer.step()

        def numbers():
            return [each.tolist() for each in (weight, *optimizer.state[weight].values())]

        take_step(1.0)
        before = numbers()
        assert before[0][1] != [1.0, 1.0] == before[0][3]
        optimizer.param_groups[0].update(lr=lr, weight_decay=decay)
        with pytest.raises(FloatingPointError, match="step of the optimizer"):
            take_step(gradient)
        assert numbers() == before


def test_numbers_become_float64_on_the_cpu(monkeypatch):
    """Apple's GPUs have no float64."""

    def refuse(tensor):
        raise TypeError("the device has no float64")

    monkeypatch.setattr(OnDevice, "double", refuse)
    X, Y = make_learnable(True, dtype=np.float32)
    with pretended():
        fitted("flat", True, DEVICE.type)[0].partial_fit(
            X, sp.hstack([Y, Y[:, :1]]), classes=np.arange(24)
        )
        clf, _ = fitted("dft", True, DEVICE.type)
        assert clf.verify(Y[:5], whole_network=True).status.shape == (5,)


@pytest.mark.integration
def test_processes_exchange_what_lies_on_their_devices(monkeypatch):
    X, Y = make_learnable(True, dtype=np.float32)
    mine = threading.local()
    monkeypatch.setattr(
        trainer, "processes_for", lambda wanted: mine.processes if wanted else ALONE
    )

    def run(processes):
        mine.processes = processes
        with Pretending():
            clf, scores = fitted("cascade", True, DEVICE.type)
            assert clf.net_.module_.head.sharded_parameters()
            return clf.loss_curve_, scores

    with pretended():
        (losses, scores), other = in_threads(monkeypatch, 2, run)
    assert losses == other[0]
    np.testing.assert_array_equal(scores, other[1])
    with sklearn_xlc.config_context(distributed=False):
        expected = fitted("cascade", True, "cpu")
    np.testing.assert_allclose(losses, expected[0].loss_curve_, rtol=1e-4)
    np.testing.assert_allclose(scores, expected[1], rtol=1e-3, atol=1e-4)


def test_read_only_weights_need_no_filter_of_warnings():
    """torch warns of the first read-only array of a process; a filter is shared by all threads."""
    values = np.arange(6.0).reshape(2, 3)[:, ::2]
    values.flags.writeable = False
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tensor = shared_tensor(values)
    finally:
        torch.set_warn_always(False)
    np.testing.assert_array_equal(tensor.numpy(), values)
    assert tensor.data_ptr() == values.__array_interface__["data"][0]


@pytest.mark.parametrize(
    "found, is_fast",
    [
        ({"cpu_name": "AMD EPYC", "avx512_bf16": True}, True),
        ({"cpu_name": "AMD EPYC", "avx512_bf16": False, "avx2": True}, False),
        ({"cpu_name": "Intel Xeon", "avx512_bf16": True, "amx_bf16": False}, False),
        ({"cpu_name": "Intel Xeon", "avx512_bf16": True, "amx_bf16": True}, True),
        ({"sve_bf16": True}, True),
        ({}, False),
    ],
    ids=str,
)
def test_processors_that_multiply_bfloat16_faster(found, is_fast, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found, raising=False)
    assert multiplies_bfloat16.__wrapped__("cpu") is is_fast
    assert multiplies_bfloat16.__wrapped__("xpu") is False  # whatever the processor beside it


def test_an_older_torch_that_says_nothing_of_the_processor(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert multiplies_bfloat16.__wrapped__("cpu") is False
    assert largest_input.__wrapped__() == 0
