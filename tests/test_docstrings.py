"""Docstrings: numpydoc's form, the parameters of the signature, one text for one parameter."""

import dataclasses
import functools
import importlib
import inspect
import pkgutil
import re
from collections import defaultdict

import numpy as np
import pytest
from numpydoc.docscrape import NumpyDocString
from numpydoc.validate import Validator, validate

import sklearn_xlc
from sklearn_xlc.batches.rows import ALL_SAMPLES, WHOLE_BATCHES
from sklearn_xlc.distributed.processes import ALONE
from sklearn_xlc.heads import whole

#: Codes of numpydoc that no object is asked to fulfil, and why.
IGNORED = {
    "GL01": "the summary begins right after the quotes",
    "ES01": "an extended summary is given where there is more to say",
    "SA01": "See Also is given where there is something to see",
    "EX01": "doctests run where there is an example; a method is part of its class's example",
    "SS05": 'it takes plurals for verbs: "Labels and scores", "Weights of the output layer"',
    "RT02": "what is returned may have a name",
}
#: Codes that the methods of the inner rooms are excused of: torch, skorch or the base class of the
#: room prescribe them, and one line beside the annotations says what they do.
IGNORED_OF_INNER_METHODS = ("PR01", "RT01")
INNER_ROOMS = ("aggregation", "batches", "encoders", "engine", "groups", "heads", "training")


def documented(value, section="Parameters"):
    """Names that a section describes: their types and texts, on one line each."""
    found = {}
    for names, kind, text in NumpyDocString(inspect.getdoc(value) or "")[section]:
        names = [name.strip().lstrip("*") for name in names.split(",")]
        # "margin, scale : float, default=0.5 and 64.0"
        base, _, defaults = " ".join(kind.split()).partition(", default=")
        defaults = defaults.split(" and ") if len(names) > 1 else [defaults]
        defaults = defaults * len(names) if len(defaults) == 1 else defaults
        for name, default in zip(names, defaults, strict=True):
            kind = f"{base}, default={default}" if default else base
            found[name] = (kind, " ".join(" ".join(text).split()))
    return found


def public_modules():
    """The package and its rooms; modules of a room are private to it."""
    names = [info.name for info in pkgutil.iter_modules(sklearn_xlc.__path__)]
    yield sklearn_xlc
    for name in names:
        if not name.startswith("_"):
            module = importlib.import_module(f"sklearn_xlc.{name}")
            if hasattr(module, "__all__") or not hasattr(module, "__path__"):
                yield module


def public_objects():
    """Names and objects: classes and functions, each once, and the public methods of classes."""
    found = {}
    for module in public_modules():
        own = [name for name, value in vars(module).items() if is_own(value, module)]
        for name in getattr(module, "__all__", own):
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                path = f"{value.__module__}.{value.__qualname__}"
                if path in found or name.startswith("_"):
                    continue
                found[path] = value
                if inspect.isclass(value):
                    for method, function in vars(value).items():
                        if (
                            not method.startswith("_")
                            and inspect.isfunction(function)
                            and function.__doc__
                        ):
                            found[f"{path}.{method}"] = function
    return found


def is_own(value, module):
    return getattr(value, "__module__", None) == module.__name__ and not value.__name__.startswith(
        "_"
    )


#: Objects that stand for one process, by the names that docstrings give them.
OBJECTS_AS_DEFAULTS = {
    "ALL_SAMPLES": ALL_SAMPLES,
    "ALONE": ALONE,
    "WHOLE_BATCHES": WHOLE_BATCHES,
    "whole": whole,
}
OBJECTS = public_objects()
OF_MODULES = defaultdict(list)
for path, value in OBJECTS.items():
    OF_MODULES[value.__module__].append(path)
every_module = pytest.mark.parametrize("paths", OF_MODULES.values(), ids=OF_MODULES)
ESTIMATORS = [getattr(sklearn_xlc, name) for name in sklearn_xlc.__all__ if name[0].isupper()]


@pytest.fixture(scope="module")
def read_once():
    """Titles of sections are read once an object, and the line where it begins is left alone."""
    titles = functools.cached_property(Validator.section_titles.fget)
    titles.__set_name__(Validator, "section_titles")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Validator, "section_titles", titles)
        patched.setattr(Validator, "source_file_def_line", None)
        yield


@every_module
@pytest.mark.usefixtures("read_once")
def test_numpydoc(paths):
    for path in paths:
        check_numpydoc(path)


def check_numpydoc(path):
    value, ignored = OBJECTS[path], set(IGNORED)
    if path.split(".")[1] in INNER_ROOMS and "." in value.__qualname__:
        ignored.update(IGNORED_OF_INNER_METHODS)
    if dataclasses.is_dataclass(value):
        # Results are read, not made: their fields are attributes.
        fields = {field.name for field in dataclasses.fields(value)}
        names = {*documented(value), *documented(value, "Attributes")}
        assert fields <= names, f"{path}: not documented: {fields - names}"
        ignored.add("PR01")
    if inspect.isclass(value) and issubclass(value, tuple):
        assert documented(value, "Attributes"), path  # a result, too
        ignored.add("PR01")
    if list(inspect.signature(value).parameters) == ["args", "kwargs"]:
        ignored.add("PR01")  # a class without an __init__ of its own
    errors = [error for error in validate(path)["errors"] if error[0] not in ignored]
    assert not errors, "\n".join(f"{path}: {code} {message}" for code, message in errors)


@every_module
def test_defaults_are_those_of_the_signature(paths):
    for path in paths:
        check_defaults(path)


def check_defaults(path):
    value = OBJECTS[path]
    parameters = inspect.signature(value).parameters
    for name, (kind, _) in documented(value).items():
        default = parameters[name].default if name in parameters else inspect.Parameter.empty
        stated = re.search(r"default=(.+)$", kind)
        if default is inspect.Parameter.empty:
            assert stated is None, f"{path}: {name} has no default, not {stated and stated[1]}"
        else:
            assert stated is not None, f"{path}: {name} has no default={default!r} in the docstring"
            assert eval(stated[1], {"numpy": np, "np": np, **OBJECTS_AS_DEFAULTS}) == default, (
                f"{path}: {name}: default={stated[1]}, not {default!r}"
            )


#: Names whose text differs, and why.
OWN_TEXT = {
    "Parameters": {
        "output": "each names the output layers that it has",
        "loss": "each names the losses of its own, and what auto is",
        "batch_size": "bags, not samples",
        "n_jobs": "each names what it computes in parallel",
        "random_state": "each names what it draws",
        "device": "one has nothing to train",
        "temperature": "of an iteration, of attention",
        "multiplicity": "of an assignment, of a loss",
        "decision": "of samples, of groups",
        "validation_fraction": "of samples, of groups",
    },
    "Attributes": {
        "classes_": "of `estimator_`, of a 1-D y",
        "decision_": "of samples, of groups",
        "label_embeddings_": "one follows the format of X, the other may be None",
    },
}


def texts_of(section):
    """Texts of the parameters that several estimators have: name -> text -> estimators."""
    texts = defaultdict(lambda: defaultdict(list))
    for estimator in ESTIMATORS:
        for name, text in documented(estimator, section).items():
            texts[name][text].append(estimator.__name__)
    return {name: dict(found) for name, found in texts.items() if len(found) > 1}


@pytest.mark.parametrize("section", ["Parameters", "Attributes"])
def test_one_name_has_one_text_in_every_estimator(section):
    assert texts_of(section).keys() == OWN_TEXT[section].keys()


WITHOUT_A_PAPER = (sklearn_xlc.SentenceVectorizer, sklearn_xlc.TextColumns)
#: What implements a method of one of the four papers.
OF_A_PAPER = [
    *(each for each in ESTIMATORS if each not in WITHOUT_A_PAPER),
    sklearn_xlc.heads.CascadeHead,
    sklearn_xlc.heads.ETFHead,
    sklearn_xlc.heads.FourierHead,
    sklearn_xlc.heads.MIMLHead,
    sklearn_xlc.heads.ProductHead,
    sklearn_xlc.heads.SamplingHead,
    sklearn_xlc.metrics.neural_collapse,
    sklearn_xlc.geometry.verify_argmaxable,
]


@pytest.mark.parametrize("value", OF_A_PAPER, ids=lambda value: value.__name__)
def test_differences_from_the_paper_stand_under_one_heading(value):
    notes = NumpyDocString(inspect.getdoc(value))["Notes"]
    position = notes.index("**Differences from the paper**")
    assert notes[position + 1] == ""
    assert notes[position + 2].startswith("- ")
