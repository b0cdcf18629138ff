"""The command line: tables in, models, predictions, scores and explanations out."""

import sys


def say(text: str) -> None:
    """Print a line to the standard error, if there is one."""
    if sys.stderr is not None:
        print(text, file=sys.stderr, flush=True)
