"""A file may name what belongs to the package and its relatives; the rest needs trust."""

import functools
import os

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.metrics import accuracy_score
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler
from torch import nn

from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.encoders.text import words
from sklearn_xlc.engine.label_code import LabelCode
from sklearn_xlc.engine.names import Finder, is_known, name_of
from sklearn_xlc.metrics import precision_at_k
from sklearn_xlc.training import CosineSchedule


class Own(BaseEstimator):
    class Inner:
        pass


KNOWN = [
    MultiHeadClassifier,
    LabelCode,
    CosineSchedule,
    StandardScaler,
    StratifiedKFold,
    nn.Linear,
    nn.ModuleList,
]
KNOWN += [np.float32, float, accuracy_score, precision_at_k, words]


@pytest.mark.parametrize("value", KNOWN, ids=name_of)
def test_known(value):
    assert is_known(value)
    assert Finder([name_of(value)]).find(name_of(value)) is value


@pytest.mark.parametrize(
    "name",
    [
        *("os.system", "builtins.eval", "builtins.object", "subprocess.Popen", "numpy.load"),
        *(
            "sklearn.datasets._base.fetch_file",
            "sklearn.datasets._svmlight_format_io.dump_svmlight_file",
        ),
        *("sklearn.utils.Bunch", "sklearn.tests.test_base.MyEstimator", "torch.load"),
        *("sklearn_xlc.training.net.XLCNet", "sklearn_xlc.training.optimizer.RowOptimizer"),
        *(
            "sklearn_xlc.engine.files.load",
            "numpy.testing.assert_equal",
            "torch.nn.modules.module.Module",
            "numpy.lib",
            "",
        ),
        f"{__name__}.Own",
    ],
)
def test_unknown(name):
    with pytest.raises(ValueError, match="it uses"):
        Finder([name])


def test_trust_by_class_and_by_name():
    names = [name_of(Own), name_of(Own.Inner)]
    with pytest.raises(ValueError, match=r"Own, .*Own\.Inner, .* load\(path, trusted=\[") as raised:
        Finder(names)
    assert all(name in str(raised.value) for name in names)
    assert Finder(names, [Own, Own.Inner]).find(names[1]) is Own.Inner
    assert (
        Finder([*names, "os.getcwd"][:2], trusted=(n for n in [Own, Own.Inner])).find(names[0])
        is Own
    )
    assert Finder(["os.PathLike"], ["os.PathLike"]).find("os.PathLike") is os.PathLike
    with pytest.raises(ValueError, match="does not exist here"):
        Finder(["no_such.Thing"], ["no_such.Thing"])
    with pytest.raises(ValueError, match="another name of"):
        Finder(["sklearn.preprocessing.StandardScaler"])


@pytest.mark.parametrize("trusted", ["a.b", Own, [3], [functools.partial(print)]])
def test_trust_must_be_a_list_of_classes_and_names(trusted):
    with pytest.raises(TypeError, match="trusted must"):
        Finder([], trusted)


def test_names_of_what_cannot_be_found_again():
    class Local:
        pass

    for value, kind in ((Local, "class"), (lambda: 0, "function")):
        with pytest.raises(ValueError, match=f"the {kind} .* cannot be found again by its name"):
            name_of(value)
