"""
Training over processes
=======================

The same program trains in one process, in two, or on many machines::

    python examples/large/train_together.py model.skops
    torchrun --nproc-per-node 2 examples/large/train_together.py model.skops
    accelerate launch --multi_gpu --num_processes 2 examples/large/train_together.py model.skops

Each process reads its part of every batch, and holds the output weights of its part of the labels.
"""

import sys

import sklearn_xlc
from sklearn_xlc import MultiHeadClassifier
from sklearn_xlc.datasets import make_extreme_multilabel
from sklearn_xlc.encoders import MLP


def main(path):
    rank, n_processes = sklearn_xlc.distributed.init()
    X, Y = make_extreme_multilabel(2000, 300, 100, random_state=0)
    classifier = MultiHeadClassifier("flat", encoder=MLP((64,)), random_state=0)
    classifier.fit(X[:1600], Y[:1600])

    # All processes predict together, and each has the whole result.
    precision = classifier.score(X[1600:], Y[1600:])
    # All call save, and the first one writes the file that one process would write.
    sklearn_xlc.save(classifier, path)

    if rank == 0:
        head = classifier.net_.module_.head
        print(f"{n_processes} process(es), each with the weights of {len(head.weight)} labels")
        print(f"P@1 {precision:.3f}")


if __name__ == "__main__":
    main(sys.argv[1])

# sphinx_gallery_thumbnail_path = '_static/example_train_together.png'
