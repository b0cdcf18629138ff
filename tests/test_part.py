"""Parts: nested parameters where an estimator has a name or an object, copies, plain values."""

from numbers import Real

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from sklearn_xlc._compat import Interval, StrOptions
from sklearn_xlc._part import (
    Parameters,
    Part,
    called,
    check_parameters,
    check_parts,
    cloned,
    name_of_part,
    named_by,
    named_part,
    nested_parts,
    plain,
    refuse_unusable,
    sets_state,
)


class Sharp(Part):
    _parameter_constraints = {"edge": [Interval(Real, 0, 1, closed="both")]}
    in_repr = ("edge_",)

    def __init__(self, edge=0.5):
        self.edge = edge


class Blunt(Part):
    def __init__(self, width=3, order=None):
        self.width = width
        self.order = order


class Loud(Parameters):
    """A part that a BaseEstimator cannot be: its constructor does more than to store."""

    def __init__(self, volume=1.0, pitch=440):
        self.volume, self.pitch = float(volume), pitch
        self.squared = self.volume**2


NAMES = {"sharp": Sharp, "blunt": Blunt}


class Owner(BaseEstimator):
    def __init__(self, tool="auto", size=1):
        self.tool = tool
        self.size = size

    def set_params(self, **params):
        return super().set_params(**nested_parts(self, {"tool": NAMES}, params))


# --- parts ------------------------------------------------------------------------------------


def test_a_part_checks_its_own_parameters():
    Sharp(0.5).check()
    Blunt(width="any").check()  # without constraints
    message = "The 'edge' parameter of Sharp must be a float in the range .* Got 2.0 instead"
    with pytest.raises(ValueError, match=message):
        Sharp(2.0).check()


def test_repr_shows_what_was_fitted():
    part = Sharp(0.25)
    assert repr(part) == "Sharp(edge=0.25)"
    part.edge_ = np.float64(0.123456)
    assert repr(part) == "Sharp(edge=0.25): edge_=0.1235"
    part.edge_ = np.array([0.25, 0.123456, 2.0])
    assert repr(part) == "Sharp(edge=0.25): edge_=0.1235 to 2"
    part.edge_ = Sharp(0.5)
    assert repr(part) == "Sharp(edge=0.25): edge_=Sharp()"
    for other in (None, True, np.ones((2, 2)), np.ones(0), np.array(["a"]), "auto"):
        part.edge_ = other
        assert repr(part) == "Sharp(edge=0.25)"


def test_copies_have_the_parameters_and_nothing_that_was_fitted():
    part = Sharp(0.25)
    part.edge_ = 3.0
    copy = cloned(part)
    assert type(copy) is Sharp
    assert copy is not part
    assert vars(copy) == {"edge": 0.25}


def test_parameters_of_what_is_no_estimator():
    part = Loud(volume=3)
    assert part.get_params() == {"volume": 3.0, "pitch": 440}
    assert part.set_params(volume=2) is part
    assert (part.volume, part.pitch, part.squared) == (2.0, 440, 4.0)
    with pytest.raises(ValueError, match=r"'tone' is no parameter of Loud.*'pitch', 'volume'"):
        part.set_params(tone=1)
    assert part.volume == 2.0


# --- names ------------------------------------------------------------------------------------


def test_what_a_constructor_names():
    assert named_by(Blunt, {"order": 1, "edge": 2, "width": 3}) == {"width": 3, "order": 1}
    assert list(named_by(Blunt, {"order": 1, "width": 3})) == ["width", "order"]

    class Passing(Blunt):
        def __init__(self, *args, edge=1, **params):
            super().__init__(*args, **params)

    assert named_by(Passing, {"order": 1, "edge": 2, "depth": 3}) == {"edge": 2, "order": 1}


def test_names_become_parts():
    assert type(named_part("blunt", NAMES)) is Blunt
    assert named_part("blunt", NAMES) is not named_part("blunt", NAMES)
    part = Sharp()
    for value in (part, "auto", None, 3, Sharp):
        assert named_part(value, NAMES) is value


def test_parts_have_the_names_of_their_classes():
    class Sharper(Sharp):
        pass

    assert name_of_part(Sharp(0.1), NAMES) == "sharp"
    assert name_of_part(Sharper(), NAMES) is None
    assert name_of_part("sharp", NAMES) is None
    assert name_of_part(None, NAMES) is None


# --- nested parameters ------------------------------------------------------------------------


def test_a_nested_parameter_makes_the_part_of_a_name():
    owner = Owner("sharp").set_params(tool__edge=0.75, size=2)
    assert type(owner.tool) is Sharp
    assert (owner.tool.edge, owner.size) == (0.75, 2)
    owner.set_params(tool="blunt", tool__width=7)
    assert type(owner.tool) is Blunt
    assert owner.tool.width == 7
    owner.set_params(tool="sharp")  # without one, the name stays
    assert owner.tool == "sharp"


def test_a_nested_parameter_is_set_in_the_object_that_is_there():
    part = Blunt()
    owner = Owner(part).set_params(tool__width=4, tool__order="given")
    assert owner.tool is part
    assert (part.width, part.order) == (4, "given")


@pytest.mark.parametrize("value", ["auto", None, "other"])
def test_what_has_no_parameters_is_said(value):
    owner = Owner(value)
    message = rf"tool__edge sets a parameter of a part, but tool={value!r} .*\['blunt', 'sharp'\]"
    with pytest.raises(ValueError, match=message):
        owner.set_params(tool__edge=0.1)
    assert owner.tool == value


@pytest.mark.parametrize("value", ["blunt", Blunt(), 3])
def test_parameters_of_another_part_are_refused(value):
    owner = Owner(value)
    with pytest.raises(ValueError, match="has no parameter 'edge', but .* a list of dicts"):
        owner.set_params(tool__edge=0.1, tool__width=2)
    assert owner.tool is value


def test_what_takes_no_names_is_said():
    with pytest.raises(ValueError, match="tool='sharp' has none; set tool to an object"):
        nested_parts(Owner("sharp"), {}, {"tool__edge": 3})
    with pytest.raises(ValueError, match="size=1 has no parameter 'edge'"):
        nested_parts(Owner(), {}, {"size__edge": 3})


def test_other_parameters_are_left_to_the_estimator():
    assert nested_parts(Owner(), {"tool": NAMES}, {"toll__edge": 3}) == {"toll__edge": 3}


def test_parts_within_parts():
    class Box(Part):
        _parts = {"tool": NAMES}

        def __init__(self, tool="auto"):
            self.tool = tool

    box = Box("sharp").set_params(tool__edge=0.75)
    assert box.tool.edge == 0.75
    owner = Owner(Box("blunt")).set_params(tool__tool__width=7)
    assert owner.tool.tool.width == 7


# --- values -----------------------------------------------------------------------------------


def test_values_that_cannot_be_used():
    reasons = {"width": "without a handle", "order": "here", "no_parameter": "ever"}
    refuse_unusable(Blunt(), reasons)
    refuse_unusable(Blunt(width=3), reasons)
    refuse_unusable(Sharp(0.1), reasons)  # has no such parameters
    message = "^width=4 cannot be used without a handle; leave it at its default, 3"
    with pytest.raises(ValueError, match=message):
        refuse_unusable(Blunt(width=4), reasons)
    for order in ("given", np.arange(3), [1]):
        with pytest.raises(ValueError, match="^order=.* cannot be used here;.* default, None"):
            refuse_unusable(Blunt(order=order), reasons)


def test_parameters_without_a_default_may_be_anything():
    class Wrapper(BaseEstimator):
        def __init__(self, inner, width=3):
            self.inner = inner
            self.width = width

    refuse_unusable(Wrapper(Sharp()), {"width": "here"})
    with pytest.raises(ValueError, match="width=4 cannot be used here"):
        refuse_unusable(Wrapper(Sharp(), width=4), {"width": "here"})


@pytest.mark.parametrize(
    "value, expected",
    [
        (None, None),
        (True, True),
        ("auto", "auto"),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        ([1, np.int8(2)], (1, 2)),
        (((4, 5), "a"), ((4, 5), "a")),
        (np.arange(3), (0, 1, 2)),
    ],
    ids=str,
)
def test_plain_values(value, expected):
    found = plain(value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("value", [print, Sharp(), np.ones((2, 2)), np.ones(101), [Sharp()]])
def test_what_is_not_plain(value):
    with pytest.raises(TypeError, match=r"\w+ is not plain"):
        plain(value)


def test_options_are_named():
    class Named(Part):
        _parameter_constraints = {"edge": [StrOptions({"smooth"})]}

        def __init__(self, edge="smooth"):
            self.edge = edge

    with pytest.raises(ValueError, match="'edge' parameter of Named must be a str among"):
        Named("rough").check()


# --- states -----------------------------------------------------------------------------------


def test_a_saved_part_without_a_parameter_is_refused():
    part = Sharp(0.5)
    part.__setstate__({"edge": 0.25})
    assert part.edge == 0.25
    for wrong in ({}, {"edge_": 1.0}):
        with pytest.raises(ValueError, match="the saved Sharp is damaged: it lacks edge"):
            part.__setstate__(wrong)
    for wrong in (None, 3):
        with pytest.raises(ValueError, match="the saved Sharp is damaged: TypeError"):
            part.__setstate__(wrong)


def test_a_parameter_may_be_a_property():
    class Hidden(Part):
        def __init__(self, edge=1):
            self.edge = edge

        edge = property(
            lambda self: self.hidden, lambda self, value: vars(self).update(hidden=value)
        )

    check_parameters(Hidden(), {"hidden": 2})


def test_only_what_damage_raises_becomes_a_value_error():
    @sets_state
    def fail(owner, error):
        raise error

    for error in (KeyError("a"), IndexError("a"), AttributeError("a"), AssertionError("a")):
        with pytest.raises(
            ValueError, match=f"the saved Sharp is damaged: {type(error).__name__}: "
        ):
            fail(Sharp(), error)
    for error in (MemoryError, ValueError("untouched"), KeyboardInterrupt):
        with pytest.raises(
            error if isinstance(error, type) else ValueError, match="^(untouched)?$"
        ):
            fail(Sharp(), error)


def test_a_class_of_parts_is_no_part():
    for tool in ("auto", "sharp", Sharp(1)):
        check_parts(Owner(tool), {"tool": NAMES})
    with pytest.raises(TypeError, match=r"tool=Sharp is a class of parts: give .* tool=Sharp\(\)"):
        check_parts(Owner(Sharp), {"tool": NAMES})
    with pytest.raises(ValueError, match="'edge' parameter of Sharp"):
        check_parts(Owner(Sharp(2)), {"tool": NAMES})


def test_functions_of_other_arguments_are_refused():
    size = {"n_features": 3, "n_labels": 4}
    assert called("head", lambda a, b=1, *rest: (a, b), size) == (3, 4)
    assert called("head", int, {"n_features": 3.5}) == 3
    with pytest.raises(TypeError, match=r"head must be a function of \(n_features, n_labels\)"):
        called("head", lambda a: a, size)

    def fails(a, b):
        raise TypeError("inside")

    with pytest.raises(TypeError, match="^inside$"):
        called("head", fails, size)
