"""Threads: fits, predictions and settings of one thread do not touch those of another."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import joblib
import torch
from sklearn.model_selection import KFold, cross_val_score

import sklearn_xlc
from _factories import MULTI_CLASS
from attack._fits import NAMES, answers_of, data_of, digest_of, fitted, model_of
from attack._processes import counted

FOLDS = KFold(3)
SOME = ["flat", "cascade", "sampling-corrected", "dft", "etf", "bags"]


def together(n_threads, function, jobs):
    """Values of `function` for all jobs, from threads that start at the same moment."""
    start = threading.Barrier(n_threads)

    def run(job):
        if job < n_threads:
            start.wait(60)
        return function(jobs[job])

    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(run, range(len(jobs))))


def fits(names, seeds, n_threads=4):
    """Failures among fits in threads, each compared with its serial twin."""
    jobs = [(name, seed) for name in names for seed in seeds]

    def one(job):
        return digest_of(fitted(*job), data_of(job[0])[0])

    serial = [one(job) for job in jobs]
    torch.manual_seed(17)
    state = torch.random.get_rng_state()
    threaded = together(n_threads, one, jobs)
    failures = [
        f"{name} with seed {seed} differs from the serial fit"
        for (name, seed), first, second in zip(jobs, serial, threaded)
        if first != second
    ]
    if not torch.equal(state, torch.random.get_rng_state()):
        failures.append("torch's global generator has moved")
    return len(jobs), failures


def predictions(names, n_calls, n_threads=8):
    """Failures among predictions of one model from several threads, in batches of any size."""
    count, failures = 0, []
    for name in names:
        model, X = fitted(name), data_of(name)[0]
        cuts = [(start, 1 + 7 * start % 40) for start in range(n_calls)]
        expected = [answers_of(model, X[start : start + n]) for start, n in cuts]
        given = together(n_threads, lambda cut: answers_of(model, X[cut[0] : sum(cut)]), cuts)
        count += n_calls
        failures += [
            f"{name}: samples {start} to {start + n} are answered otherwise"
            for (start, n), first, second in zip(cuts, expected, given)
            if first != second
        ]
    return count, failures


def fits_beside_predictions(names):
    """Failures among models that answer while another thread fits."""
    failures = []
    for name in names:
        model, X = fitted(name), data_of(name)[0]
        expected, alone = answers_of(model, X), digest_of(fitted(name, 1), X)
        with ThreadPoolExecutor(1) as pool:
            fit = pool.submit(lambda: digest_of(fitted(name, 1), X))
            right = [answers_of(model, X) == expected]
            while not fit.done():
                right.append(answers_of(model, X) == expected)
        if not all(right):
            failures.append(f"{name}: {right.count(False)} of {len(right)} answers changed")
        if fit.result() != alone:
            failures.append(f"{name}: the fit differs from the one alone")
    return len(names), failures


def settings(n_threads):
    """Failures among threads of which each sets a limit of its own and reads it for a while."""

    def one(number):
        sklearn_xlc.set_config(dense_limit=1000 + number)
        seen = set()
        for _ in range(20):
            time.sleep(0.001)
            seen.add(sklearn_xlc.get_config()["dense_limit"])
            with sklearn_xlc.config_context(dense_limit=5000 + number):
                seen.add(sklearn_xlc.get_config()["dense_limit"] - 4000)
        return seen

    before = sklearn_xlc.get_config()
    seen = together(n_threads, one, range(n_threads))
    failures = [f"thread {i} saw {given}" for i, given in enumerate(seen) if given != {1000 + i}]
    if sklearn_xlc.get_config() != before:
        failures.append("the settings of the main thread have changed")
    return n_threads, failures


def searches(names, backends):
    """Failures among cross-validations whose folds run in threads or processes of joblib."""
    jobs = [(name, backend) for name in names for backend in backends]
    failures = []
    for name, backend in jobs:
        X, y = data_of(name)
        scores = [cross_val_score(model_of(name), X, y, cv=FOLDS)]
        with joblib.parallel_config(backend, n_jobs=3):
            scores.append(cross_val_score(model_of(name), X, y, cv=FOLDS))
        if scores[0].tobytes() != scores[1].tobytes():
            failures.append(f"{name}, {backend}: {scores[1]} is not {scores[0]}")
    return len(jobs), failures


test_fits_in_threads = counted(
    "fits in threads", fits, small=(SOME[2:], range(1)), whole=(NAMES, range(6))
)
test_predictions_in_threads = counted(
    "predictions in threads", predictions, small=(SOME[:3], 10), whole=(NAMES, 27)
)
test_fits_beside_predictions = counted(
    "fits beside predictions", fits_beside_predictions, small=(SOME[:2],), whole=(NAMES,)
)
test_settings_in_threads = counted("settings in threads", settings, small=(8,), whole=(64,))
test_folds_in_threads = counted(
    "folds in threads and processes",
    searches,
    small=(["etf"], ["threading"]),
    whole=(MULTI_CLASS, ["threading", "loky"]),
)
