"""Models that several processes hold in parts, put together."""

import numpy as np
import pytest
from _distributed import in_threads
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

from _factories import make_learnable, quick
from sklearn_xlc.batches.processes import Processes, training_with
from sklearn_xlc.engine.gathering import gather, gathered, gathering
from sklearn_xlc.heads import CascadeHead, FlatHead


def test_an_estimator_of_one_process_is_copied():
    X, Y = make_learnable(True)
    clf = make_pipeline(MaxAbsScaler(), quick("flat", max_epochs=2)).fit(X, Y)
    copy = gather(clf)
    assert copy is not clf
    assert copy[-1].net_.module_ is not clf[-1].net_.module_
    np.testing.assert_array_equal(copy.predict_proba(X), clf.predict_proba(X))


@pytest.mark.parametrize(
    "make", [lambda: FlatHead(3, 10, True), lambda: CascadeHead(3, 10, True, (4, 3))]
)
def test_parts_are_gathered_on_request_only(monkeypatch, make):
    def run(processes):
        with training_with(processes):
            head = make()
        with gathering() as parts:
            whole = gathered(head, dict(head.named_parameters()))
        assert parts.processes == processes
        return {name: tensor.shape for name, tensor in whole.items()}

    expected = {name: tensor.shape for name, tensor in make().named_parameters()}
    assert in_threads(monkeypatch, 2, run) == [expected, expected]
    with training_with(Processes(0, 2)):
        head = make()
    with pytest.raises(ValueError, match="if all processes call it"):
        gathered(head, dict(head.named_parameters()))
    head.forget_shards()
    assert not head.sharded_parameters()
