"""Where scikit-learn, skorch and torch meet: fitting, prediction, label code, persistence."""
