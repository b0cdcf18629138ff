"""The report of versions names everything that matters."""

from importlib.metadata import version

from sklearn_xlc import __version__, show_versions


def test_show_versions(capsys):
    show_versions()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("python: 3.")
    assert f"sklearn-xlc: {__version__}" in lines
    for name in ("scikit-learn", "numpy", "scipy", "torch", "skorch", "joblib", "skops"):
        assert f"{name}: {version(name)}" in lines


def test_a_package_that_is_missing(capsys, monkeypatch):
    monkeypatch.setattr("sklearn_xlc._config._DEPENDENCIES", ("no-such-package",))
    show_versions()
    assert "no-such-package: not installed" in capsys.readouterr().out
