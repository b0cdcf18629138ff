"""Classifiers that several processes train together: equal to those of one process."""

import atexit
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from _distributed import together

import sklearn_xlc
from _factories import EVERY, quick

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[1] / "examples"
#: Kinds of the default suite: each way to share a head and the encoder.
FEW = [
    ("flat", True, "sparse"),
    ("ensemble", True, "apart"),
    ("product", False, "sparse"),
    ("cascade", True, "sparse"),
    ("etf-frame", False, "sparse"),
]
#: Numbers that a process gives away in a step of 50 samples of 24 features, message by message.
SENT = {
    "flat-True-sparse": [50 * 24 + 1],  # gradient of the features, and the loss
    "cascade-True-sparse": [1, 50 * 9],  # loss, gradient of the queries and their bias
    "etf-frame-False-sparse": [2 * 50, 2 * 50 + 1, 50 * 12],  # normalisers, loss, gradient
    # Features; loss and their gradient; dense gradients; gradient of the input layer's outputs.
    "flat-True-apart": [25 * 24, 50 * 24 + 1, 2 * 24, 25 * 24],
    "ensemble-True-apart": [25 * 48, 50 * 48 + 1, 4 * 24, 25 * 48],
    "product-False-sparse": [299, 25 * 24],  # loss and dense gradients; outputs of the input layer
}


#: Beginnings of the names of classifiers whose labels stay.
FIXED = ("etf", "powerset", "product-groups")


def check_fits(results, ways):
    """Fail unless what each process has found of its fits is what a fit alone finds."""
    n_processes = len(results)
    for found in results:
        for kind, of in found.items():
            assert of["losses"] < 1e-11, kind
            assert max(of["scores"], of["gathered"]) < 1e-8, kind
            assert of["labels"] == 1, kind
            assert of["n_parameters"][0] == of["n_parameters"][1], kind
            has_parts = not kind.startswith(("product", "powerset", "bags", "dft-no"))
            assert of["parts"] == has_parts
            limit = 3e-11 if kind.startswith("dft") else 1e-12  # transforms of all coefficients
            for way in ways:
                stays = way != "grown" or kind.startswith(FIXED)
                assert of[way]["grown"] in ([True] * 2, [not stays] * 2), kind
                assert of[way]["losses"] < 1e-12, (kind, way)
                assert of[way]["scores"] < limit, (kind, way)
                assert of[way]["parts"] == [has_parts, False], (kind, way)
            if n_processes == 2 and kind in SENT:
                assert of["sent"] == [8 * n for n in SENT[kind]], kind
    flat = next(kind for kind in results[0] if kind.startswith("flat-True"))
    flat = [found[flat]["weights"] for found in results]
    assert sum(flat) == pytest.approx(1)
    assert max(flat) < 1 / n_processes + 0.05


def found_by(name, n_processes=2, **arguments):
    """What each process of a program has found, all of which must end well."""
    results = together(name, n_processes, **arguments)
    assert [code for code, _, _ in results] == [0] * n_processes, results[0][2][-2000:]
    return [found for _, found, _ in results]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_processes", "form", "ways"),
    [
        (2, "dense", ["loaded", "mapped", "steps", "warm"]),
        (3, "dense", ["loaded", "mapped", "steps", "warm"]),
        (2, "sparse", ["steps", "grown"]),
        (3, "sparse", ["grown"]),
        (2, "apart", []),
        (3, "apart", []),
    ],
)
def test_every_classifier_fitted_together_as_alone(n_processes, form, ways):
    kinds = [(*kind, form) for kind in EVERY]
    check_fits(found_by("fits", n_processes, kinds=kinds, ways=ways), ways)


@pytest.fixture(scope="module")
def everything():
    """Found by two processes that run all programs of the default suite: each takes seconds."""
    return found_by("everything", kinds=FEW, ways=["grown"])


def test_fitted_together_as_alone(everything):
    check_fits([found["fits"] for found in everything], ["grown"])


def test_files_and_checkpoints_are_those_of_one_process(everything):
    for found in everything:
        assert found["valid"] < 1e-11
        assert found["file"] < 1e-8
        assert abs(found["bytes"]) < 50  # losses that differ by rounding have other digits
        assert found["partial"] < 1e-8
        for name in ("flat", "dft", "etf-frame"):
            assert found[f"nearest-{name}"] == 0
        for name in ("flat", "cascade"):
            assert "stopped by the test" in found[f"stop-{name}"]
            assert max(found[f"resumed-{name}"]) < 1e-11
            assert found[f"epochs-{name}"] == [1, 2, 3, 4]
            assert found[f"begun-{name}"] == [2]  # the others are in the file
        assert len(found["checkpoints"]) >= 2
        assert found["twice"] == 0
        assert found["twice: files"] == [2, True]


def test_processes_draw_apart_and_stay_equal(everything):
    first, second = everything
    assert [first["joined"], second["joined"]] == [[0, 2], [1, 2]]
    for name in ("drawing", "weights of users", "random states"):
        assert first[name] == second[name], name


def test_lists_are_those_of_one_process():
    for found in found_by("lists"):
        assert len(found) == 8
        for kind, of in found.items():
            assert of["ranker"] == ["BoostedRanker"] * 4, kind
            assert min(of["labels"]) == 1, kind
            assert max(of["scores"]) < 1e-8, kind
            assert of["one"] < 1e-8, kind
            assert of["examples"] == [1, 1, 2], kind
            assert of["samples"][0] == of["samples"][1], kind


def test_what_cannot_be_done_in_parts_says_so(everything):
    for found in everything:
        for name in ("pickle", "explained"):
            assert "sklearn_xlc.distributed.gather(estimator)" in found[name]
        assert (
            "the shape of X in process 1 is (89, 60), and in process 0 (90, 60)"
            in (found["other data"])
        )
        for said in found["other samples"]:
            assert "but the digest of samples, labels and weights in process 1 is" in said
        for said in found["alone after"]:
            assert "sklearn_xlc.distributed.gather(estimator)" in said
        for said in found["other labels"]:
            assert "all processes must give the same" in said
        for said in found["group gone"]:
            assert "held in parts by 2 processes" in said
            assert "now it is alone" in said
        assert "use checkpoint=" in found["writing"]
        assert "callbacks cannot read gradients" in found["clipped"]
        assert "2 processes cannot share 1 labels" in found["one label"]


def test_one_process_is_alone(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert sklearn_xlc.distributed.init() == (0, 1)
    with (
        sklearn_xlc.config_context(distributed=True),
        pytest.raises(ValueError, match="start the program with torchrun"),
    ):
        quick("flat").fit([[0.0], [1.0]], [0, 1])


@pytest.mark.parametrize(
    ("n_gpus", "number", "backend", "taken"),
    [
        (0, 1, "gloo", []),
        (2, 1, "cpu:gloo,cuda:nccl", [1]),
        (1, 1, "cpu:gloo,cuda:nccl", []),  # a GPU for each process, which sees no other
    ],
)
def test_a_group_is_made_for_both_kinds_of_tensors(monkeypatch, n_gpus, number, backend, taken):
    made, chosen = [], []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: n_gpus)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *a, **k: made.extend(a))
    monkeypatch.setattr(atexit, "register", lambda function: None)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", str(number))
    assert sklearn_xlc.distributed.init() == (0, 1)
    assert made == [backend]
    assert chosen == taken


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flat", "cascade"])
@pytest.mark.parametrize("how", ["killed", "hangs"])
def test_a_process_that_ends_in_mid_step(name, how, tmp_path):
    (code, found, _), (other, _, _) = together("ends_early", folder=tmp_path, kind=name, how=how)
    assert code == 0
    assert "waits in vain for another" in found["said"]
    assert "with checkpoint= training goes on" in found["said"]
    assert found["seconds"] < 60
    assert other == (9 if how == "killed" else other)
    files = list((tmp_path / "checkpoints").iterdir())
    assert any(file.suffix == ".pt" for file in files)
    for n_processes in (1, 2, 3):
        folder = tmp_path / str(n_processes)
        shutil.copytree(tmp_path / "checkpoints", folder / "checkpoints")
        for _, again, _ in together("resumed", n_processes, folder=folder, kind=name):
            assert again["n_epochs"] == 6
            assert again["losses"] < 1e-11
            assert again["scores"] < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["python", "torchrun", "accelerate"])
def test_the_same_program_by_every_launcher(launcher, tmp_path):
    start = {
        "python": [],
        "torchrun": ["-m", "torch.distributed.run", "--nproc-per-node", "2"],
        "accelerate": ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"],
    }[launcher]
    if launcher == "accelerate":
        pytest.importorskip("accelerate")
        start += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    path = tmp_path / "model.skops"
    env = os.environ | {"PYTHONPATH": str(EXAMPLES.parent)}
    done = subprocess.run(
        [sys.executable, *start, str(EXAMPLES / "large" / "train_together.py"), str(path)],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    n = 1 if launcher == "python" else 2
    assert f"{n} process(es), each with the weights of {100 // n} labels" in done.stdout
    assert float(done.stdout.split("P@1")[1]) > 0.5
    assert sklearn_xlc.load(path).net_.module_.head.weight.shape == (100, 64)
