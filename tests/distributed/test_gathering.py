"""Models that several processes hold in parts, put together."""

import copy
from functools import partial

import numpy as np
import pytest
from _distributed import in_threads
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

import sklearn_xlc
from _factories import make_learnable, quick
from sklearn_xlc.distributed.gathering import gather, gathered, reading_together
from sklearn_xlc.distributed.parts import share_out
from sklearn_xlc.distributed.processes import Processes
from sklearn_xlc.distributed.shards import sharding
from sklearn_xlc.heads import CascadeHead, FlatHead


def test_an_estimator_of_one_process_is_copied():
    X, Y = make_learnable(True)
    clf = make_pipeline(MaxAbsScaler(), quick("flat", max_epochs=2)).fit(X, Y)
    copy = gather(clf)
    assert copy is not clf
    assert copy[-1].net_.module_ is not clf[-1].net_.module_
    np.testing.assert_array_equal(copy.predict_proba(X), clf.predict_proba(X))


@pytest.mark.parametrize(
    "make", [partial(FlatHead, 3, 10, True), partial(CascadeHead, 3, 10, True, (4, 3))]
)
def test_parts_are_gathered_on_request_only(monkeypatch, make):
    def run(processes):
        head = make(shard_of=sharding(processes))
        with reading_together():
            whole = gathered(head, dict(head.named_parameters()))
        return {name: tensor.shape for name, tensor in whole.items()}

    expected = {name: tensor.shape for name, tensor in make().named_parameters()}
    assert in_threads(monkeypatch, 2, run) == [expected, expected]
    head = make(shard_of=sharding(Processes(0, 2)))
    with pytest.raises(ValueError, match="if all processes call it"):
        gathered(head, dict(head.named_parameters()))
    head.forget_shards()
    assert not head.sharded_parameters()


@pytest.mark.parametrize("name", ["flat", "cascade", "sampling", "dft", "pick-all"])
def test_files_are_those_of_one_process(monkeypatch, tmp_path, name):
    X, y = make_learnable(name in ("flat", "cascade"))
    wide = {"encoder__hidden_layer_sizes": (250,)}
    params = {"head__embedding_dim": 199} if name == "cascade" else wide
    params = params if name != "pick-all" else {"feature_dim": 200}
    params = params if name != "dft" else {"n_slack": 200}
    clf = quick(name, max_epochs=1, **params).fit(X, y)
    for exact in (True, False):
        sklearn_xlc.save(clf, tmp_path / f"alone-{exact}", exact=exact)
    assert (tmp_path / "alone-False").stat().st_size < (tmp_path / "alone-True").stat().st_size

    def run(processes):
        own = copy.deepcopy(clf)
        share_out(own.net_.module_, processes)
        for exact in (True, False):
            sklearn_xlc.save(own, tmp_path / f"{exact}", exact=exact)
            alone = (tmp_path / f"alone-{exact}").read_bytes()
            assert (tmp_path / f"{exact}").read_bytes() == alone
        whole = gather(own)
        np.testing.assert_array_equal(whole.decision_function(X), clf.decision_function(X))
        with pytest.raises(ConnectionError if processes.rank else FileNotFoundError):
            sklearn_xlc.save(own, tmp_path / "missing" / "model.skops")

    in_threads(monkeypatch, 3, run)
