"""The commands: fit, predict, evaluate, explain, recalibrate, update, serve."""

from __future__ import annotations

import argparse
import ast
import json
import os
import socket
import textwrap
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing

import sklearn_xlc
from sklearn_xlc._compat import imported
from sklearn_xlc._csr import row_blocks
from sklearn_xlc._ids import as_list
from sklearn_xlc._tags import joined_tags
from sklearn_xlc.command_line.models import check_target, columns_of, is_model, loaded
from sklearn_xlc.command_line.progress import Progress, log_apart, told
from sklearn_xlc.command_line.scores import (
    are_sets,
    as_column,
    as_lists,
    as_text,
    indicators,
    scores_of,
)
from sklearn_xlc.command_line.tables import STANDARD, Table, output_format, read_table, write_table
from sklearn_xlc.engine import predictor_of
from sklearn_xlc.metrics import innermost
from sklearn_xlc.serving import Answering, create_app, read_model

#: Rows predicted at a time.
BLOCK = 10_000
#: PSP is defined from this number of training rows on.
LEAST_ROWS = 3
#: Seconds that a worker has to start, and a service that stops to answer open requests.
START, STOP = 120, 20
#: Parameters that `recalibrate` may set.
LEARNT_AGAIN = ("decision", "ranker")

Say = Callable[[str], None]


def fit(args: argparse.Namespace, say: Say) -> None:
    """Fit a model to a table and save it."""
    start = time.monotonic()
    replaces = check_target(args.model)
    columns = sklearn_xlc.TextColumns(**_given(args))
    model = Pipeline(
        [
            ("columns", columns),
            ("classifier", sklearn_xlc.MultiHeadClassifier(encoder="text", random_state=args.seed)),
        ]
    )
    callbacks = None if args.quiet else [Progress()]
    classifier = model[-1].set_params(**_settings(args), callbacks=callbacks)
    table = _table(args.table, args, say)
    y = _located(table, columns.labels_of)
    X = _texts(columns, table)
    if args.ids or args.test_size:
        X = _named(X, _row_names(columns, table, args)[0], say)
    say(f"{table.name}: {described(table, columns, y)}")
    joined = _joined(y)
    if joined:
        say(f"note: {joined}")
    X_test, X_train, y_test, y_train = [], X, [], y
    if args.test_size:
        X_train, X_test, y_train, y_test = train_test_split(
            X, y, test_size=args.test_size, random_state=args.seed
        )
    with log_apart(args.quiet), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="y holds one string a sample")  # said above
        model.fit(X_train, as_column(y_train))
    classifier.set_params(callbacks=None)
    say(told(classifier.settings_))
    sklearn_xlc.save(model, args.model, exact=args.exact)
    _say_saved(args.model, replaces, start, say)
    if y_test:
        say(f"scores of {len(y_test)} rows that were not trained on:")
        of_train = y_train if len(y_train) >= LEAST_ROWS else None
        _print_scores(scores_of(Answering(model), X_test, y_test, of_train), args)


def predict(args: argparse.Namespace, say: Say) -> None:
    """Write the labels of the rows of a table."""
    _refuse_same(args.output, args.model, args.table)
    form = "jsonl" if args.json else output_format(args.output)
    answering = loaded(args.model)
    columns, table = _read(answering, args.table, args, say)
    X = _texts(columns, table)
    names, header = _row_names(columns, table, args)
    kind = "probability" if answering.has_probabilities else "score"
    written = [columns.labels or "labels"] if args.topk is None else ["rank", "label", kind]
    if header in written:
        raise ValueError(
            f"the column {header!r} of --id would be lost, as predictions are written to a column "
            "of this name: rename it"
        )
    replaces = os.path.exists(args.output)

    def rows() -> Iterator[dict[str, Any]]:
        for block in row_blocks(len(X), 1, BLOCK):
            if args.topk is None:
                for name, found in zip(names[block], answering.predict(X[block])):
                    yield {header: name} | _labels_field(found, columns, form == "jsonl")
            else:
                ranked = answering.topk(X[block], args.topk, proba=kind == "probability")
                for name, *of_row in zip(names[block], *ranked):
                    for rank, (label, value) in enumerate(zip(*of_row), 1):
                        shown = float(f"{value:.6g}")
                        yield {header: name, "rank": rank, "label": label, kind: shown}
            if len(X) > BLOCK:
                say(f"{block.stop} of {len(X)} rows")

    write_table(rows(), args.output, form)
    if args.output != STANDARD:
        say(f"wrote {args.output}" + ", which was there before" * replaces)


def evaluate(args: argparse.Namespace, say: Say) -> None:
    """Print the scores of a model on a table with labels."""
    if args.report is not None:
        _refuse_same(args.report, args.model, args.table, args.train)
        form = output_format(args.report)
    answering = loaded(args.model)
    columns, table = _read(answering, args.table, args, say)
    X, y = _texts(columns, table), _located(table, columns.labels_of)
    y_train = None
    if args.train is not None:
        y_train = _located(_table(args.train, args, say), columns.labels_of)
    say(f"{table.name}: {described(table, columns, y)}")
    unknown = _unknown(answering, y)
    if unknown:
        say(f"note: the model does not know {len(unknown)} of the labels, such as {unknown[0]!r}")
    label_sets = answering.label_sets(X)
    _print_scores(scores_of(answering, X, y, y_train, label_sets), args)
    if args.report is not None:
        true, predicted, names = indicators(as_lists(y, answering.classes), label_sets)
        found = sklearn_xlc.label_report(true, predicted, labels=names).to_frame()
        rows = found.astype(object).where(found.notna(), None).to_dict("records")
        write_table(rows, args.report, form)
        say(f"wrote {args.report}, the labels with most errors first")


def explain(args: argparse.Namespace, say: Say) -> None:
    """Print the words and training samples behind the best labels of one text."""
    if (args.string is None) == (args.table is None):
        raise ValueError("explain takes a table, or --string with a text")
    answering = loaded(args.model)
    if args.string is not None:
        text, name = args.string, None
    else:
        columns, table = _read(answering, args.table, args, say)
        if not 0 <= args.row < table.n_rows:
            raise ValueError(
                f"{table.name}: --row {args.row} is none of its rows, 0 to {table.n_rows - 1}"
            )
        text, names = _texts(columns, table)[args.row], _row_names(columns, table, args)[0]
        name = names[args.row]
    known = _texts_by_name(answering, args, say)
    labels = answering.explain([text], args.topk, args.words, args.examples)[0]
    for label in labels:
        for example in label["examples"]:
            if str(example["example"]) in known:
                example["text"] = known[str(example["example"])]
    if args.json:
        found = {"row": name, "text": text, "labels": labels}
        print(json.dumps(found, ensure_ascii=False, default=str))
        return
    print(text if name is None else f"{name}: {text}")
    for label in labels:
        print("\n".join(_explained(label)))


def recalibrate(args: argparse.Namespace, say: Say) -> None:
    """Fit ranker and decision of a model on rows it has not seen."""
    settings = _settings(args)
    wrong = [name for name in settings if name.partition("__")[0] not in LEARNT_AGAIN]
    if wrong:
        raise ValueError(f"recalibrate sets decision and ranker, not {wrong[0]}: fit again")

    def learn(answering: Answering, X: Any, y: list[Any]) -> None:
        X, y = _known_only(answering, X, y, say)
        answering.classifier.set_params(**settings).recalibrate(X, as_column(y))
        say(" ".join(f"decision: {answering.classifier.decision_!r}".split()))

    _changed(args, say, learn)


def update(args: argparse.Namespace, say: Say) -> None:
    """Train a model with further rows; they may have new labels."""

    def learn(answering: Answering, X: Any, y: list[Any]) -> None:
        new = _unknown(answering, y)
        classes = [*answering.classifier.classes_.tolist(), *new] if new else None
        say(f"{len(new)} new labels" + (f", such as {new[0]!r}" if new else ""))
        answering.classifier.partial_fit(X, as_column(y), classes=classes)

    _changed(args, say, learn)


def serve(args: argparse.Namespace, say: Say) -> None:
    """Answer requests over HTTP until stopped."""
    uvicorn = imported(
        "uvicorn",
        "serve needs uvicorn; install the extra serving: pip install 'sklearn-xlc[serving]'",
    )
    kind = socket.AF_INET6 if ":" in args.host else socket.AF_INET
    try:
        socket.create_server((args.host, args.port), family=kind).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f"cannot serve at {args.host}, port {args.port}: {reason}") from None
    os.environ["XLC_MODEL"] = os.path.abspath(args.model)
    several = args.workers > 1
    if several:  # errors of the file and of settings are told before any worker starts
        read_model(args.model)
        no_model: Any = None  # it would stay in the cycles of an application
        create_app(args.model, lambda _: no_model)
    uvicorn.run(
        "sklearn_xlc.serving:create_app" if several else create_app(args.model),
        factory=several,
        host=args.host,
        port=args.port,
        workers=args.workers if several else None,
        timeout_worker_healthcheck=START,
        timeout_graceful_shutdown=STOP,
        access_log=False,
        log_level="error" if args.quiet else None,
    )


# --- what commands share -----------------------------------------------------------------------


def _given(args: argparse.Namespace) -> dict[str, Any]:
    """Return the parameters of TextColumns; None for those that are not given."""
    return {name: getattr(args, name, None) for name in ("columns", "labels", "separator", "ids")}


def _read(answering: Answering, path: str, args: argparse.Namespace, say: Say) -> tuple[Any, Table]:
    """Return the columns that a model reads, and a table."""
    return columns_of(answering, _given(args)), _table(path, args, say)


def _table(path: str, args: argparse.Namespace, say: Say) -> Table:
    say(f"reading {'the standard input' if path == STANDARD else path}")
    return read_table(path, args.format, args.delimiter, args.encoding)


def _located(table: Table, function: Callable[[Table], Any]) -> Any:
    """Call a function of a table; errors name the file."""
    try:
        return function(table)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{table.name}: {error}") from None


def _texts(columns: Any, table: Table) -> Any:
    return _located(table, columns.transform)


def _row_names(
    columns: Any, table: Table, args: argparse.Namespace, others: Any = None
) -> tuple[list[Any], str]:
    """Return names of rows and of their column: ids, if given or in the table, else numbers."""
    if args.ids is not None or columns.ids in table:
        return _located(table, columns.ids_of), columns.ids
    return list(range(table.n_rows) if others is None else others), "row"


def _named(texts: Any, names: list[Any], say: Say) -> Any:
    """Return texts with the names of their rows, for explanations: a Series of pandas."""
    try:
        import pandas as pd
    except ImportError:
        say("note: without pandas, explanations name training rows by their position in training")
        return texts
    return pd.Series(texts, index=pd.Index(names, dtype=object))


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return parameters of the classifier from --decision and --set."""
    found = {} if args.decision is None else {"decision": args.decision}
    for entry in args.set:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise ValueError(f"--set takes name=value, such as head=cascade, got {entry!r}")
        if name == "callbacks":
            raise ValueError(f"--set has no value for callbacks, which are objects, got {entry!r}")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def _joined(y: list[Any]) -> str | None:
    """Return a warning about classes like several joined labels."""
    found = None if are_sets(y) else joined_tags(sorted(set(map(str, y))))
    name, separator = found or (None, None)
    if separator is None:
        return None
    return (
        f"each row has one class, such as {name!r}; if these are several labels, give "
        f"--separator {separator.strip() or separator!r}"
    )


def described(table: Table, columns: Any, y: list[Any]) -> str:
    """Return rows, texts and labels of a table in words."""
    text = f"{table.n_rows} rows, texts of {', '.join(as_list(columns.columns))}; "
    if not are_sets(y):
        return text + f"{len(set(y))} classes, one a row"
    n_labels, n_without = sum(map(len, y)), sum(not each for each in y)
    distinct = {label for each in y for label in each}
    text += f"{len(distinct)} labels, {n_labels / len(y):.1f} a row"
    return text + (f", {n_without} rows without any" if n_without else "")


def _labels_field(found: Any, columns: Any, as_json: bool) -> dict[str, Any]:
    """Return predicted labels, or a class, in the form of the training table."""
    if isinstance(found, list) and columns.separator is not None and not as_json:
        torn = next((label for label in found if columns.separator in str(label)), None)
        if torn is not None:
            raise ValueError(
                f"the label {torn!r} holds the separator {columns.separator!r}, and would be read "
                "as several: write JSON lines (--json)"
            )
        found = columns.separator.join(map(str, found))
    return {columns.labels or "labels": found}


def _refuse_same(output: str, *inputs: str | None) -> None:
    """Raise ValueError if the output is one of the inputs, or a model."""
    if output == STANDARD or not os.path.exists(output):
        return
    for path in inputs:
        if path not in (None, STANDARD) and os.path.exists(path) and os.path.samefile(path, output):
            raise ValueError(f"{output} is read, and would be replaced: name another output")
    if is_model(output):
        raise ValueError(f"{output} is a model, and is not replaced by a table")


def _unknown(answering: Answering, y: list[Any]) -> list[Any]:
    """Return labels unknown to the model, sorted."""
    classes = answering.classes
    found = {label for each in as_lists(y, classes) for label in each}
    return sorted(found - set(classes.tolist()))


def _known_only(answering: Answering, X: Any, y: list[Any], say: Say) -> tuple[Any, list[Any]]:
    """Leave out labels unknown to the model, and rows with an unknown class."""
    unknown = _unknown(answering, y)
    if not unknown:
        return X, y
    say(
        f"note: the model does not know {len(unknown)} of the labels, such as {unknown[0]!r}; "
        "they are left out, and sklearn-xlc update would add them"
    )
    without = set(unknown)
    known = [[label for label in each if label not in without] for each in as_lists(y)]
    if not any(known):
        raise ValueError("the model knows none of the labels")
    if are_sets(y):
        return X, known
    rows = [row for row, labels in enumerate(known) if labels]
    return _safe_indexing(X, rows), [y[row] for row in rows]


def _changed(
    args: argparse.Namespace, say: Say, learn: Callable[[Answering, Any, list[Any]], None]
) -> None:
    """Load a model, let it learn from a table, and save it."""
    start, target = time.monotonic(), args.output or args.model
    answering = loaded(args.model)
    if not hasattr(answering.classifier, "recalibrate"):
        raise ValueError(
            f"{args.command} takes a model of sklearn_xlc with a network, such as that of "
            f"MultiHeadClassifier, and {args.model} holds a {type(answering.classifier).__name__}"
        )
    replaces = check_target(target)
    columns, table = _read(answering, args.table, args, say)
    y = _located(table, columns.labels_of)
    # Numbers would be those of rows that the model knows from another table.
    places = [f"{table.name}, {place}" for place in table.index]
    X = _named(_texts(columns, table), _row_names(columns, table, args, places)[0], say)
    say(f"{table.name}: {described(table, columns, y)}")
    is_sets = predictor_of(answering.classifier).code.multilabel
    y = as_lists(y, answering.classifier.classes_)
    if not is_sets:
        wrong = next((each for each in y if len(each) != 1), None)
        if wrong is not None:
            raise ValueError(f"{table.name}: a row of this model has one class, got {wrong}")
        y = [each[0] for each in y]
    _, X = innermost(answering.estimator, X)
    with log_apart(args.quiet):
        learn(answering, X, y)
    sklearn_xlc.save(answering.estimator, target, exact=args.exact)
    _say_saved(target, replaces, start, say)


def _say_saved(path: str, replaces: bool, start: float, say: Say) -> None:
    size, seconds = os.path.getsize(path) / 2**20, time.monotonic() - start
    said = f"saved {path}, {size:.1f} MiB" + ", in place of the model before" * replaces
    say(f"{said}; {seconds:.0f} s in all")


def _print_scores(scores: dict[str, float], args: argparse.Namespace) -> None:
    print(json.dumps(scores) if args.json else as_text(scores), flush=True)


def _texts_by_name(answering: Answering, args: argparse.Namespace, say: Say) -> dict[str, str]:
    """Return the training texts by their names in explanations."""
    if args.train is None:
        return {}
    columns, table = _read(answering, args.train, args, say)
    texts = _texts(columns, table)
    names = [str(name) for name in _row_names(columns, table, args)[0]]
    times = Counter(names)
    if repeated := [name for name, n_rows in times.items() if n_rows > 1]:
        say(
            f"note: {len(repeated)} names are those of several rows of {args.train}, such as "
            f"{repeated[0]!r}: their texts are not shown"
        )
    return {name: text for name, text in zip(names, texts) if times[name] == 1}


def _explained(label: dict[str, Any]) -> list[str]:
    """Return lines about a label: its words, and training samples."""
    number = f"{label['probability']:.3f}" if "probability" in label else f"{label['score']:.3g}"
    words = [f"{each['column']} {each['contribution']:+.2f}" for each in label["columns"]]
    lines = [f"{number}  {label['label']}: {', '.join(words)}"]
    for each in label["examples"]:
        text = textwrap.shorten(each.get("text", ""), 100)
        lines.append(f"       like {each['example']} ({each['cosine']:.2f}) {text}".rstrip())
    return lines
