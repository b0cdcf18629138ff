"""Fig. 5 of the sigmoid bottleneck paper and Appendix G: sets out of reach, quality, loss curves.

    python benchmarks/papers/sigmoid_training.py DATA --figures docs/figures

Four output layers of d learnt columns on delicious, by ``benchmarks/sigmoid_bottleneck.py``, which
says what they are: the paper's bottleneck, one with biases, and the Fourier layer with the paper's
start and with ours. Rows of an interrupted run are read back.
"""

from _experiment import parser, save
from sigmoid_bottleneck import draw, parse_arguments, run, table

DATA = True
MINUTES = 4
FULL_MINUTES = 12


def main():
    arguments = parser(__doc__, data=True).parse_args()
    seeds = ["0", "1", "2"] if arguments.full else ["0"]
    options = parse_arguments(
        [str(arguments.data / "delicious"), "--out", str(arguments.out), "--seeds", *seeds]
        + ["--sets", "20", "--time-limit", "2"]
    )
    rows = run(options)
    print(table(rows, options.k))
    save(arguments, "sigmoid_training", rows, draw(rows, options.k))


if __name__ == "__main__":
    main()
