"""Public estimators, one a file; import them from `sklearn_xlc`."""
