"""The command line: tables in, models, predictions, scores and explanations out."""
