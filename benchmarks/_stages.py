"""CPU seconds and memory of the stages of a fit and of predictions, each without those inside."""

import contextlib
import threading
import time

from _measure import memory

from sklearn_xlc.engine import deciding, predictor, ranker, trainer
from sklearn_xlc.ranking import boosted, describing, retrievers

_RETRIEVERS = tuple(
    getattr(retrievers, name)
    for name in ("NearestSamples", "LabelCentroids", "FeatureVotes", "CooccurringLabels")
)
#: Functions of a stage: where they are looked up, and their names.
FIT = {
    "network": [(trainer.Trainer, "begin"), (trainer.Trainer, "train")],
    "index": [
        (ranker, "remembering"),
        (deciding, "remembering"),
        (boosted.BoostedRanker, "_index"),
    ],
    "search": [(describing.Describing, "pairs")],
    "trees": [(boosted.BoostedRanker, "_fitted_pairs")],
    "decision": [(deciding, "decide")],
}
PREDICT = {
    "network": [(predictor.Predictor, "best"), (predictor.Predictor, "_features")],
    "candidates": [(each, name) for each in _RETRIEVERS for name in ("search", "candidates")],
    "numbers": [(each, "numbers") for each in _RETRIEVERS],
    "trees": [(boosted.BoostedRanker, "_scored")],
}


class Stages:
    """Context: what each stage takes; calls inside of a stage count for their own stage.

    Attributes
    ----------
    cpu : dict of str to float
        CPU seconds of each stage; "rest": of everything else.
    peak : dict of str to int
        Peak of memory without mapped files while a stage runs, beyond that at the start; by
        samples.
    """

    def __init__(self, stages):
        self.stages = stages
        self.cpu = dict.fromkeys([*stages, "rest"], 0.0)
        self.peak = dict.fromkeys(self.cpu, 0)

    def __enter__(self):
        self._stack, self._undo = ["rest"], contextlib.ExitStack()
        for stage, places in self.stages.items():
            found = [(owner, name) for owner, name in places if name in vars(owner)]
            if not found:
                raise AttributeError(f"no function of the stage {stage!r} is left: {places}")
            for owner, name in found:
                self._wrap(stage, owner, name)
        self.level, self._then = memory("RssAnon"), time.process_time()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._switch()
        self._undo.close()
        self._stop.set()
        self._thread.join()

    def _look(self):
        while not self._stop.wait(0.02):
            stage = self._stack[-1]
            self.peak[stage] = max(self.peak[stage], memory("RssAnon") - self.level)

    def _switch(self):
        now = time.process_time()
        self.cpu[self._stack[-1]] += now - self._then
        self._then = now

    def _wrap(self, stage, owner, name):
        function = vars(owner)[name]

        @contextlib.contextmanager
        def inside():
            self._switch()
            self._stack.append(stage)
            try:
                yield
            finally:
                self._switch()
                self._stack.pop()

        def timed(*args, **kwargs):
            with inside():
                result = function(*args, **kwargs)
            if not hasattr(result, "__next__"):
                return result
            return stepped(result)

        def stepped(steps):
            while True:
                with inside():
                    try:
                        step = next(steps)
                    except StopIteration:
                        return
                yield step

        setattr(owner, name, timed)
        self._undo.callback(setattr, owner, name, function)
