"""Checkpoints that are damaged or hostile: refused with a warning, and the fit ends as it must.

Whoever can write into the folder can give a file its right digest. Every trial resumes a fit in a
process of its own, which a wrong write by a kernel of torch would end.
"""

import hashlib
import io
import os
import pickle
import shutil
import tempfile
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from attack._fits import data_of, digest_of, model_of
from attack._processes import counted, forked
from attack._trials import SEED
from attack.test_kills import _fit
from sklearn_xlc.optimizers import SGD
from sklearn_xlc.training import WeightAveraging, checkpoints

FITS = {
    "flat": {"callbacks": [WeightAveraging("ema")]},
    "cascade": {"optimizer": "mixed"},
    "etf": {"optimizer": "adagrad"},
    "sampling-corrected": {"optimizer": SGD(momentum=0.9)},
}
_KNOWN = {}


def _killed(name):
    """Contents of the files that a killed fit leaves, and the digest of the whole fit."""
    if name not in _KNOWN:
        with tempfile.TemporaryDirectory() as folder:
            whole = forked(_fit, name, FITS[name], None)
            assert forked(_fit, name, FITS[name], folder, ("replace", 4, True)).killed
            files = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
            _KNOWN[name] = files, whole.value
    return _KNOWN[name]


def _resume(name, folder):
    """Digest of a resumed fit, and what it warns of."""
    checkpoints.PAUSE = 0
    X, y = data_of(name)
    model = model_of(name, **{"max_epochs": 8, **FITS[name], "checkpoint": folder})
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.fit(X, y)
    return digest_of(model, X), [str(each.message) for each in found]


def _trial(name, change, refused=True):
    """Failure of a fit whose files were changed, or None."""
    contents, right = _killed(name)
    with tempfile.TemporaryDirectory() as folder:
        for file, content in contents.items():
            Path(folder, file).write_bytes(change(content))
        outcome = forked(_resume, name, folder)
    is_python = not outcome.error or "Traceback (most recent call last)" in outcome.error
    if outcome.error or not refused:
        return None if is_python and not refused else outcome.error
    digest, said = outcome.value
    is_told = any("training begins anew" in each for each in said)
    return None if is_told and digest == right else f"{said}, {digest == right}"


def _failures(trials):
    """Number and failures of trials: (description, arguments of `_trial`)."""
    found = [(what, _trial(*args)) for what, args in trials]
    return len(found), [f"{what}: {failure}" for what, failure in found if failure]


def _signed(content):
    return content + hashlib.sha256(content).digest()


def _rewritten(change):
    """Change what a file holds, and give it the right digest."""

    def rewrite(content):
        document, file = torch.load(io.BytesIO(content), weights_only=True), io.BytesIO()
        document = change(document) or document
        torch.save(document, file)
        return _signed(file.getvalue())

    return rewrite


# --- moments ----------------------------------------------------------------------------------

SHAPES = {
    "half": lambda t: t[: len(t) // 2].clone(),
    "empty": lambda t: t[:0].clone(),
    "transposed": lambda t: t.T.contiguous() if t.ndim == 2 and len(t) != len(t.T) else t[:1],
    "twice": lambda t: torch.cat([t, t]),
    "a number": lambda t: t.sum(),
    "of another type": lambda t: t.to(torch.float64 if t.dtype != torch.float64 else torch.int8),
    "bfloat16": lambda t: t.to(torch.bfloat16),
    "one number repeated": lambda t: torch.zeros(1).expand(t.shape),
    "vast": lambda t: torch.zeros(1).expand(10**6, 10**6),
    "not a number": lambda t: torch.full_like(t, torch.nan),
    "no tensor": lambda t: t.tolist(),
}


def _moments_changed(change, key=None):
    def of_document(document):
        for state in document["state"]["optimizer"]["state"].values():
            for name, value in state.items():
                if value.ndim and key in (None, name):
                    state[name] = change(value)

    return _rewritten(of_document)


def hostile_moments(names, shapes):
    """Failures among fits whose checkpoints have moments of another shape or type."""
    return _failures(
        (f"{name}, {shape}", (name, _moments_changed(SHAPES[shape])))
        for name in names
        for shape in shapes
    )


# --- everything else ---------------------------------------------------------------------------


def _set(*path):
    """Change of a document: the last of these in place of the item at the others."""

    def change(document):
        *parents, name, value = path
        for parent in parents:
            document = document[parent]
        document[name] = value(document[name]) if callable(value) else value

    return change


def _group(name, value):
    return _set("state", "optimizer", "param_groups", -1, name, value)  # weights of the head


def _weight(change):
    return _set("state", "module", "state_dict", "head.weight", change)


def _average(change):
    def of_document(document):
        for state in document["state"]["callbacks"].values():
            if "average_" in state:
                state["average_"]["head.weight"] = change(state["average_"]["head.weight"])

    return of_document


def _last_state(document):
    states = document["state"]["optimizer"]["state"]
    return states[max(states)]


def _last(key, change):
    return lambda document: _set(key, change)(_last_state(document))


def _without_squares(document):
    del _last_state(document)["exp_avg_sq"]


DOCUMENTS = {
    "a list": lambda document: [document],
    "no state": _set("state", []),
    "no history": _set("state", "history", []),
    "long history": _set("state", "history", lambda rows: rows * 1000),
    "history of texts": _set("state", "history", lambda rows: ["row"] * len(rows)),
    "epoch": _set("state", "history", 0, "epoch", 10**9),
    "loss": _set("state", "history", 0, "train_loss", float("nan")),
    "batches": _set("state", "history", 0, "batches", None),
    "seed": _set("seed", -1),
    "seed of text": _set("seed", "0"),
    "start": _set("start", 3),
    "finished": _set("finished", "yes"),
    "weights transposed": _weight(lambda t: t.T.contiguous()),
    "weights cut": _weight(lambda t: t[:-1].clone()),
    "weights half": _weight(lambda t: t.half()),
    "weights repeated": _weight(lambda t: torch.zeros(1).expand(t.shape)),
    "weights infinite": _weight(lambda t: t / 0),
    "weights of text": _weight("weights"),
    "weights sparse": _weight(lambda t: t.to_sparse()),
    "weights without numbers": _weight(lambda t: t.to("meta")),
    "weights gone": _set("state", "module", "state_dict", {}),
    "more weights": _set("state", "module", "state_dict", "more", torch.zeros(3)),
    "frozen": _set("state", "frozen", ["nothing"]),
    "frozen number": _set("state", "frozen", 3),
    "average": _average(lambda t: t[:-1].clone()),
    "average half": _average(lambda t: t.half()),
    "rng": _set("state", "rng", "bit_generator", "MT19937"),
    "rng too large": _set("state", "rng", "state", "state", 2**200),
    "rng gone": _set("state", "rng", None),
    "no generators": _set("state", "generators", []),
    "short generator": _set("state", "generators", 0, lambda t: t[:100].clone()),
    "generator of floats": _set("state", "generators", 0, lambda t: t.float()),
    "full generator": _set("state", "generators", 0, lambda t: torch.full_like(t, 255)),
    "rule": _group("rule", "sgd"),
    "rule of text": _group("rule", "none"),
    "fused": _group("fused", lambda is_fused: not is_fused),
    "rate": _group("lr", float("nan")),
    "rate of text": _group("lr", "fast"),
    "betas": _group("betas", (2.0, 2.0)),
    "one beta": _group("betas", (0.9,)),
    "parameters": _group("params", [10**6]),
    "no groups": _set("state", "optimizer", "param_groups", []),
    "steps before the first": _last("step", lambda t: t - 10**6),
    "endless steps": _last("step", lambda t: t / 0),
    "steps of a vector": _last("step", lambda t: t.repeat(3)),
    "squares below zero": _last("exp_avg_sq", lambda t: t - 1),
    "a moment more": _last("more", torch.zeros(())),
    "a moment less": _without_squares,
    "moments of nothing": _set("state", "optimizer", "state", 10**6, {}),
    "method": _set("state", "callbacks", "WeightAveraging", "on_epoch_end", 3),
    "class": _set("state", "callbacks", "WeightAveraging", "__class__", 3),
    "callbacks": _set("state", "callbacks", 3),
}


def hostile_documents(names, documents):
    """Failures among fits whose checkpoints hold what no fit has written."""
    return _failures(
        (f"{name}, {what}", (name, _rewritten(DOCUMENTS[what])))
        for name in names
        for what in documents
    )


# --- bytes ------------------------------------------------------------------------------------


def _flipped(rng, content):
    where = int(rng.integers(len(content)))
    return content[:where] + bytes([content[where] ^ 1 << rng.integers(8)]) + content[where + 1 :]


def _cut(rng, content):
    return content[: rng.integers(len(content))]


def _swapped(rng, content):
    """Swap two members of the archive; the others are where zipfile puts them."""
    source, target = zipfile.ZipFile(io.BytesIO(content)), io.BytesIO()
    members = {name: source.read(name) for name in source.namelist()}
    a, b = rng.choice(list(members), 2, replace=False)
    members[a], members[b] = members[b], members[a]
    with zipfile.ZipFile(target, "w") as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return target.getvalue()


CHANGES = {"flip": _flipped, "cut": _cut, "swap": _swapped}


def damaged_files(name, n_trials, signed, seed=SEED):
    """Failures among fits with flipped bits, cuts and swapped members.

    `signed`: by an attacker, who gives files their right digest. Fits may then end otherwise, or by
    an error of Python; no process may crash.
    """
    trials = []
    for number in range(n_trials):
        how, rng = list(CHANGES)[number % 3], [seed, number]

        def change(content, how=how, rng=rng):
            content = content[:-32] if signed else content
            changed = CHANGES[how](np.random.default_rng(rng), content)
            return _signed(changed) if signed else changed

        trials.append((f"{how} {rng}", (name, change, not signed)))
    return _failures(trials)


test_hostile_moments = counted(
    "checkpoints with hostile moments",
    hostile_moments,
    small=(["cascade"], ["half", "empty", "transposed"]),
    whole=(list(FITS), list(SHAPES)),
    limit=3600,
)
test_hostile_documents = counted(
    "hostile checkpoints",
    hostile_documents,
    small=(["flat"], list(DOCUMENTS)[::13]),
    whole=(["flat"], list(DOCUMENTS)),
    limit=3600,
)
test_damaged_files = counted(
    "damaged checkpoints",
    damaged_files,
    small=("flat", 3, False),
    whole=("flat", 400, False),
    limit=3600,
)
test_damaged_files_with_a_right_digest = counted(
    "damaged checkpoints with a right digest",
    damaged_files,
    small=("cascade", 3, True),
    whole=("cascade", 400, True),
    limit=3600,
)


class _Runs:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_code_is_not_run(tmp_path):
    def with_code(content):
        source, target = zipfile.ZipFile(io.BytesIO(content)), io.BytesIO()
        with zipfile.ZipFile(target, "w") as archive:
            for name in source.namelist():
                is_pickle = name.endswith("data.pkl")
                code = pickle.dumps(_Runs(str(tmp_path / "ran")), protocol=2)
                archive.writestr(name, code if is_pickle else source.read(name))
        return _signed(target.getvalue())

    assert _trial("flat", with_code) is None
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_passed_over(make, tmp_path):
    contents, right = _killed("flat")
    (older, content), *_, (newer, _) = contents.items()
    (tmp_path / older).write_bytes(content)
    make(tmp_path / newer)
    outcome = forked(_resume, "flat", tmp_path)
    assert "not an ordinary file" in outcome.error  # the fit comes there, and says so
    shutil.rmtree(tmp_path / newer) if make is os.mkdir else (tmp_path / newer).unlink()
    assert forked(_resume, "flat", tmp_path).value == (right, [])
