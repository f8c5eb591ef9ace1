"""Values of options, as typed by users, by scripts, or by accident."""

from __future__ import annotations

import random

import click

NUMBERS = (
    *(
        "0",
        "1",
        "-1",
        "0.5",
        "0.01",
        "2",
        "3",
        "1e-5",
        "1e-300",
        "1e300",
        "1e308",
        "-1e308",
        "1e400",
        "5e-324",
    ),
    *("inf", "-inf", "nan", "x", "", " 1", "1_0", "0x10", "١", "1,5", "--", "1e", "0.1 0.2"),
)
FEW = ("0", "1", "2", "3", "1", "2", "-1", "-2", "1.5", "nan", "x", "", "1e2", "٣")
MANY = (*FEW, "10000000", "2147483648", "9223372036854775808", "1" + "0" * 400)
PATHS = (
    *(
        "run",
        "run",
        "other",
        "own",
        "web",
        "half",
        "new",
        "new/deep/er",
        "run/certificate",
        "images",
        "idx",
    ),
    *(
        "data.csv",
        "link.csv",
        "dangling",
        "loop",
        "pipe",
        "locked",
        "locked/x",
        "empty",
        "run/run.json",
        "net.py",
    ),
    *("run/certificate/certificate.json", "weights.safetensors", "new.png", "new.pdf", "new.svg", "new.xyz"),
    *(
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "",
        ".",
        "..",
        "/",
        "~",
        "~nouser/x",
        "-",
        "a\0b",
        "é",
        "\udcff",
    ),
    *("x" * 300, "a\nb", "\x1b[31mred", "*", "con:", "run/", "./run", "missing", "proof/x/y"),
)
DATA = (
    *("csv:data.csv", "npz:data.npz", "folder:images", "idx:idx", "wine", "rings", "csv:link.csv", "mnist"),
    *("csv:pipe", "npz:pipe", "csv:/dev/zero", "npz:/dev/zero", "csv:/dev/null", "csv:empty", "npz:data.csv"),
    *(
        "csv:~nouser/x",
        "csv:",
        ":",
        "",
        "nonsense",
        "folder:.",
        "folder:run",
        "idx:images",
        "csv:run",
        "csv:a\0b",
    ),
    *("csv:data.csv@test", "csv:data.csv@train", "csv:data.csv@nowhere", "wine@test", "@", "csv:\x1b[2J"),
)
MODELS = (
    *(
        "mlp:4:elu",
        "mlp:4:tanh",
        "toy",
        "toy-relu",
        "mlp:4:nope",
        "mlp:0",
        "mlp:",
        "mlp::",
        "mlp:-1",
        "mlp:4:",
    ),
    *(
        "mlp:1000000,1000000",
        "mlp:99999999999999999999",
        "certified-mlp:4",
        "certified-cnn:2",
        "certified-mlp:x",
    ),
    *(
        "net.py:make",
        "web.py:Web",
        "web.py:torch",
        "net.py:missing",
        "net.py",
        "missing.py:make",
        "data.csv:make",
        "pipe:make",
        ":",
        "a\0b:x",
    ),
)
WORDS = {
    "method": (
        "wrm",
        "erm",
        "fgsm",
        "bim",
        "pgd",
        "pgm",
        "betting",
        "bernstein",
        "hoeffding",
        "nonsense",
        "",
    ),
    "attacks": ("fgsm", "bim", "pgd", "fgm", "wrm", "nonsense", ""),
    "norm": ("1", "2", "inf", "3", "nan", "-1", ""),
    "cost": ("natural", "linf", "l1", "l2", ""),
    "split": ("test", "train", "calibration", "all", "later", "", "run"),
    "optimizer": ("adam", "sgd", "lion", ""),
    "loss": ("cross-entropy", "bounded", "nonsense", ""),
    "inequality": ("betting", "bernstein", "hoeffding", "nonsense", ""),
    "schedule": ("constant", "cosine", "linear", ""),
    "target": ("y", "a", "nope", "", "a,b", "\x1b[0m"),
    "epsilon": (*NUMBERS, "from:run", "from:other", "from:half", "from:", "from:missing", "from:pipe"),
    "name": ("mnist", "fashion-mnist", "cifar10", "employment", "wine", "nonsense", "", "../x"),
    "data": DATA,
    "first": DATA,
    "second": DATA,
    "model": MODELS,
}
CAPPED = {
    *(
        "epochs",
        "episodes",
        "seeds",
        "trials",
        "steps",
        "restarts",
        "local_radii",
        "gamma_rounds",
        "attack_steps",
        "draws",
        "votes",
    ),
}
"""Options that ask for work: a large value is no mistake, and no hang either."""


def draw_value(rng: random.Random, parameter: click.Parameter) -> str:
    """Something for a parameter, most of it wrong."""
    name, kind = parameter.name, parameter.type.name
    if name in WORDS:
        return rng.choice(WORDS[name])
    if "path" in kind:
        return rng.choice(PATHS)
    if "int" in kind:
        return rng.choice(FEW if name in CAPPED else MANY)
    return rng.choice(NUMBERS if "float" in kind else (*NUMBERS, *PATHS))
