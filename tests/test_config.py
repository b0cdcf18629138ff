"""Settings: kept per thread, checked, and put back."""

import threading

import pytest
import sklearn

import sklearn_xlc
from sklearn_xlc import config_context, get_config, set_config
from sklearn_xlc._config import memory_limit


@pytest.fixture(autouse=True)
def _restore():
    before = get_config()
    yield
    set_config(**before)


def test_set_and_get():
    set_config(dense_limit=123)
    assert get_config()["dense_limit"] == 123
    set_config()
    assert get_config()["dense_limit"] == 123


def test_settings_of_sklearn_are_passed_on():
    before = sklearn.get_config()
    assert before.items() <= get_config().items()
    with config_context(transform_output="pandas", dense_limit=5):
        assert sklearn.get_config()["transform_output"] == "pandas"
        assert get_config()["transform_output"] == "pandas"
    assert sklearn.get_config() == before
    set_config(assume_finite=True)
    assert sklearn.get_config()["assume_finite"]


@pytest.mark.parametrize("value", [True, False, "auto"])
def test_processes_may_train_together(value):
    assert get_config()["distributed"] == "auto"
    with config_context(distributed=value):
        assert get_config()["distributed"] == value
    assert get_config()["distributed"] == "auto"


@pytest.mark.parametrize("value", ["yes", 2])
def test_other_values_of_distributed_are_refused(value):
    with pytest.raises(
        ValueError, match=f"distributed must be 'auto', True or False, got {value!r}"
    ):
        set_config(distributed=value)
    assert get_config()["distributed"] == "auto"


def test_an_unknown_setting_changes_nothing():
    before = get_config()
    with pytest.raises(TypeError, match="unexpected keyword argument 'dense_limits'"):
        set_config(dense_limit=5, dense_limits=6)
    assert get_config() == before


def test_the_copy_given_out_is_not_the_settings():
    before = get_config()
    get_config()["dense_limit"] = 1
    assert get_config() == before


def test_context_puts_back_also_after_an_error():
    before = get_config()
    with config_context(dense_limit=5):
        assert get_config()["dense_limit"] == 5
        with config_context(dense_limit=6):
            assert get_config()["dense_limit"] == 6
        assert get_config()["dense_limit"] == 5
    with pytest.raises(RuntimeError, match="inside"), config_context(dense_limit=5):
        raise RuntimeError("inside")
    assert get_config() == before


def test_settings_belong_to_their_thread():
    seen = []
    before = get_config()
    with config_context(dense_limit=5):
        thread = threading.Thread(target=lambda: seen.append(get_config()))
        thread.start()
        thread.join()
    assert [settings["dense_limit"] for settings in seen] == [2 * 2**30]
    assert get_config() == before


@pytest.mark.parametrize(
    "value, message",
    [
        (0, "dense_limit must be at least 1 byte, got 0"),
        (-5, "got -5"),
        (1.5, "dense_limit must be a whole number of bytes, got 1.5"),
        ("2 GiB", "got '2 GiB'"),
        (True, "got True"),
    ],
)
@pytest.mark.parametrize("change", [set_config, lambda **kw: config_context(**kw).__enter__()])
def test_wrong_values_change_nothing(change, value, message):
    before = get_config()
    with pytest.raises(ValueError, match=message):
        change(dense_limit=value)
    assert get_config() == before


@pytest.mark.parametrize("value", ["x", float("nan"), float("inf"), None, [1]])
def test_working_memory_that_is_no_number(value):
    """scikit-learn stores any value."""
    with sklearn.config_context(working_memory=8):
        sklearn.set_config(working_memory=value)
        if value is None:  # leaves the setting unchanged
            assert memory_limit() == 2**23
        else:
            with pytest.raises(ValueError, match="working_memory must be a finite number of MiB"):
                memory_limit()


def test_public_names():
    assert set(sklearn_xlc.__all__) <= set(dir(sklearn_xlc))
    for name in sklearn_xlc.__all__:
        assert getattr(sklearn_xlc, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Classifier'"):
        sklearn_xlc.Classifier
