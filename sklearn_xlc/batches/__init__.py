"""Batches of samples for encoders, with labels and weights."""

from sklearn_xlc.batches.bags import Bags, features_of
from sklearn_xlc.batches.bags import instances_of as instances_of
from sklearn_xlc.batches.prefetching import to_device
from sklearn_xlc.batches.randomness import (
    GLOBAL_LOCK,
    Generators,
    as_global,
    drawing_from,
    drawing_rows,
    generator_for,
    is_ours,
    new_generators,
    rows_drawn,
    usual_modes,
    with_device,
)
from sklearn_xlc.batches.rows import (
    WHOLE_BATCHES,
    AllSamples,
    Batch,
    BatchIterator,
    Rows,
    WholeBatches,
    make_batch,
    n_batches,
)
from sklearn_xlc.batches.samples import Columns, collate
from sklearn_xlc.batches.sparse_rows import (
    SparseRows,
    Transpose,
    bytes_to_lengthen,
    lengthened,
    products,
    sparse_gradient,
    stable_sort,
)
from sklearn_xlc.batches.targets import Targets
from sklearn_xlc.batches.threads import (
    ONE_THREAD,
    Threads,
    beside,
    instructions,
    one_thread_after_fork,
    one_thread_of_blas,
    threads_for,
    usual_threads,
)

__all__ = [
    "Bags",
    "Batch",
    "BatchIterator",
    "Columns",
    "Rows",
    "SparseRows",
    "Targets",
    "collate",
    "generator_for",
    "instructions",
    "make_batch",
    "n_batches",
    "to_device",
]
