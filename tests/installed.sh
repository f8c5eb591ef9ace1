#!/bin/sh
# Trains, certifies, attacks and verifies with an installed certus, outside of the repository:
#     tests/installed.sh ENVIRONMENT CONSTRAINTS
# makes the environment, builds the wheel, and installs it there without extras.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
environment=$1 constraints=$2
rm -rf "$environment"
"${PYTHON:-python3}" -m venv "$environment"
environment=$(cd "$environment" && pwd)
pip="$environment/bin/python -m pip --disable-pip-version-check --quiet"
$pip wheel --no-deps --wheel-dir "$environment/wheel" "$root"
$pip install -c "$root/$constraints" "$environment"/wheel/certus-*.whl
for extra in foolbox matplotlib plotly ot gymnasium pyarrow pytest; do
    if "$environment/bin/python" -c "import $extra" 2>/dev/null; then
        echo "error: $extra is installed, and this is about certus without extras" >&2
        exit 1
    fi
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$environment/bin/python" -m pip freeze | grep -v '^certus '
certus="$environment/bin/certus"
"$environment/bin/python" -c "import certus; print(certus.__file__)" | grep "^$environment"
$certus train wine --rho 0.1 --epochs 3 -o run
$certus train wine --method erm --epochs 3 -o other
$certus certify run --rho 0.01 --confidence 0.9 --balls 1
$certus certify run --rho 0.01 --smoothing 0.5 --draws 20 --votes 11
cat > own.py <<'CODE'
import torch
from torch import nn


class Own(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.first, self.last = nn.Linear(shape[0], 4), nn.Linear(4 + shape[0], classes)

    def forward(self, inputs):
        return self.last(torch.cat([nn.functional.elu(self.first(inputs)), inputs], dim=1))
CODE
$certus train wine --model own.py:Own --gamma 2 --epochs 1 -o own
$certus certify own --model own.py:Own --epsilon 0.1 --balls 0 --refine 0
$certus attack run --epsilon 0.1 --steps 3
$certus compare run other --epsilon 0.1 --steps 3
$certus verify run/certificate/certificate.json
$certus bound run --samples 16
$certus runs .
$certus data list
echo "certus works from its wheel: $("$environment/bin/python" -V), $constraints"
