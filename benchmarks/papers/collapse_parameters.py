"""Table 2 of multi-label neural collapse: parameters that a fixed simplex saves, by network.

    python benchmarks/papers/collapse_parameters.py

The four networks, built layer by layer for images of one channel (a first convolution of three
pixels, no hidden layers after the convolutions), with the heads of this package: a learnt layer on
the usual features, and a fixed simplex on as many features as there are labels, which the last
convolution computes. In a residual network its shortcut then needs a projection.
"""

import torch
from _experiment import parser, print_table, save
from torch import nn

from sklearn_xlc.heads import ETFHead

MINUTES = 1
N_LABELS = 10
#: What the paper's Table 2 has, in per cent.
PAPER = {"ResNet18": 20.7, "ResNet50": 4.5, "VGG16": 15.8, "VGG19": 11.6}


class Residual(nn.Module):
    """Convolutions (width, pixels, stride), and what they are added to."""

    def __init__(self, n_inputs, convolutions):
        super().__init__()
        layers, width, stride = [], n_inputs, 1
        for wider, kernel, step in convolutions:
            layers += [
                nn.Conv2d(width, wider, kernel, step, padding=kernel // 2, bias=False),
                nn.BatchNorm2d(wider),
                nn.ReLU(),
            ]
            width, stride = wider, stride * step
        self.layers = nn.Sequential(*layers[:-1])
        same = stride == 1 and width == n_inputs
        projection = nn.Conv2d(n_inputs, width, 1, stride, bias=False), nn.BatchNorm2d(width)
        self.shortcut = nn.Identity() if same else nn.Sequential(*projection)

    def forward(self, images):
        return torch.relu(self.layers(images) + self.shortcut(images))


def resnet(numbers, bottleneck, n_features):
    """Residual network of four stages with so many blocks each."""
    layers = [nn.Conv2d(1, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    width = 64
    for stage, number in enumerate(numbers):
        inner = 64 * 2**stage
        for block in range(number):
            is_last = stage == len(numbers) - 1 and block == number - 1
            outer = n_features if is_last and n_features else inner * (4 if bottleneck else 1)
            stride = 2 if stage and not block else 1
            if bottleneck:
                convolutions = [(inner, 1, 1), (inner, 3, stride), (outer, 1, 1)]
            else:
                convolutions = [(inner, 3, stride), (outer, 3, 1)]
            layers.append(Residual(width, convolutions))
            width = outer
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), width


def vgg(numbers, n_features):
    """Plain convolutions of three pixels, so many in each of five stages."""
    layers, width = [], 1
    for stage, number in enumerate(numbers):
        for layer in range(number):
            is_last = stage == len(numbers) - 1 and layer == number - 1
            wider = n_features if is_last and n_features else min(64 * 2**stage, 512)
            layers += [nn.Conv2d(width, wider, 3, padding=1), nn.BatchNorm2d(wider), nn.ReLU()]
            width = wider
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), width


NETWORKS = {
    "ResNet18": lambda n_features: resnet((2, 2, 2, 2), False, n_features),
    "ResNet50": lambda n_features: resnet((3, 4, 6, 3), True, n_features),
    "VGG16": lambda n_features: vgg((2, 2, 3, 3, 3), n_features),
    "VGG19": lambda n_features: vgg((2, 2, 4, 4, 4), n_features),
}


def n_trainable(build, learned):
    """Trainable parameters of the network and its head."""
    network, width = build(None if learned else N_LABELS)
    head = ETFHead(width, N_LABELS, multilabel=True, learned=learned)
    assert head.layer_products(network.eval()(torch.zeros(1, 1, 56, 56))).shape == (1, N_LABELS)
    return sum(p.numel() for part in (network, head) for p in part.parameters())


def main():
    arguments = parser(__doc__).parse_args()
    rows = []
    for name, build in NETWORKS.items():
        learned, fixed = n_trainable(build, True), n_trainable(build, False)
        saved = 100 * (1 - fixed / learned)
        rows.append({"network": name, "learnt": f"{learned:,}", "fixed simplex": f"{fixed:,}"})
        rows[-1] |= {"saved, %": round(saved, 2), "the paper's": PAPER[name]}
    print_table(rows)
    save(arguments, "collapse_parameters", rows)


if __name__ == "__main__":
    main()
