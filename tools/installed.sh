#!/bin/sh
# Trains, certifies, attacks and verifies with an installed certus, outside of the repository:
#     tools/installed.sh ENVIRONMENT CONSTRAINTS
# makes the environment, builds the wheel, and installs it there without extras; at the end with them.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
environment=$1 constraints=$2
rm -rf "$environment"
"${PYTHON:-python3}" -m venv "$environment"
environment=$(cd "$environment" && pwd)
pip="$environment/bin/python -m pip --disable-pip-version-check --quiet"
$pip wheel --no-deps --wheel-dir "$environment/wheel" "$root"
$pip install -c "$root/$constraints" "$environment"/wheel/certus-*.whl
for extra in foolbox matplotlib ot gymnasium numba polars pyarrow pytest; do
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
$certus certify run --rho 0.01 --confidence 0.9 --local-radii 1
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
$certus certify own --model own.py:Own --epsilon 0.1 --local-radii 0 --gamma-rounds 0
$certus attack run --epsilon 0.1 --steps 3
$certus compare run other --epsilon 0.1 --steps 3
$certus verify run/certificate/certificate.json
$certus gate run --require 'error<=100%@rho=0.01'
for part in 1 2; do $certus certify run --rho 0.01 --local-radii 1 --shard $part/2 -o part-$part; done
$certus merge part-1 part-2 -o merged
$certus verify merged/certificate.json
$certus bundle run --include-data --no-report -o evidence.zip
"$environment/bin/python" -m zipfile -e evidence.zip evidence
"$environment/bin/python" -m certus.kernel evidence/certificate
$certus smoothness run --samples 16
$certus runs .
$certus data list
awk 'BEGIN { print "a,b,y"; for (i = 0; i < 60; i++) print i % 7 ",t" i % 3 "," i % 2 }' > table.csv
$certus data describe table.csv --target y
$certus train csv:table.csv --target y --rho 0.1 --epochs 2 -o table
$certus predict table table.csv --reach 0.1 -o said.csv
$certus sensitivity table --samples 10
$certus sensitivity table --feature a --by 0.1 --samples 10
"$environment/bin/python" - <<'CODE'
import joblib
import pandas
from sklearn.ensemble import GradientBoostingClassifier

rows = pandas.read_csv("table.csv")
joblib.dump(GradientBoostingClassifier(n_estimators=3).fit(rows[["a"]], rows["y"]), "boosted.joblib")
CODE
$certus import boosted.joblib --allow-code --data csv:table.csv --target y --drop b -o boosted
$certus certify boosted --allow-code --rho 0.01 --samples 5
$certus import --model mlp:128,128:elu --weights run/model.safetensors --data wine -o imported
$certus audit mlp:128,128:elu --weights run/model.safetensors --data wine --epsilon 0.01 -o audited
$certus resume run
$certus export run -o run.pt2
$certus report run -o page.html --samples 20
if $certus attack run --epsilon 0.1 --steps 3 --plot curve.png 2> refused; then exit 1; fi
grep "pip install 'certus\[report\]'" refused

extras='attacks,cluster,data,frames,lightning,report,rl,tensorboard,transport,trees'
$pip install -c "$root/$constraints" "$(ls "$environment"/wheel/certus-*.whl)[$extras]" polars
"$environment/bin/python" -m pip freeze | grep -v '^certus '
$certus attack run --epsilon 0.1 --steps 3 --plot curve.png
$certus report run -o page.html --samples 20 --figures figures
$certus monitor run wine@test
$certus distance csv:table.csv@test csv:table.csv@train --label-cost 1
$certus train wine --method erm --epochs 2 --tensorboard curves -o watched
ls curves/watched/events.*
"$environment/bin/python" - "$certus" <<'CODE'
import subprocess
import sys

from dask.distributed import LocalCluster

with LocalCluster(n_workers=1, processes=False, protocol="tcp", dashboard_address=None) as cluster:
    command = [sys.argv[1], "certify", "run", "--rho", "0.01", "--samples", "8"]
    subprocess.run([*command, "--cluster", cluster.scheduler_address], check=True)
CODE
"$environment/bin/python" - <<'CODE'
from certus.mdp import cartpole_learner, episode_lengths, fit_cartpole

trained = fit_cartpole(cartpole_learner(gamma=50.0, episodes=20), seed=0)
print("cart-pole agent balanced for", episode_lengths(trained.policy, trials=5), "steps")
CODE
"$environment/bin/python" - <<'CODE'
import foolbox
import pandas
import polars
import pyarrow
import torch
from pyarrow import parquet

import certus
from certus.attacks.adapters import Foolbox
from certus.table_options import TableOptions

days = [moment.to_pydatetime() for moment in pandas.date_range("2020-01-01", periods=60)]
columns = {"a": [1.5, None, 3.0] * 20, "day": days, "y": ["no", "yes"] * 30}
frames = [pandas.DataFrame(columns), polars.DataFrame(columns), pyarrow.table(columns)]
parquet.write_table(frames[2], "table.parquet")
options = TableOptions(target="y", date_features="trend")
read = [certus.datasets.from_frame(frame, options=options) for frame in frames]
read.append(certus.datasets.load("parquet:table.parquet", options=options))
for data in read:
    assert data.feature_names[:4] == ("a", "a?=known", "a?=missing", "day"), data.feature_names
    assert data.train.inputs.equal(read[0].train.inputs)
print("pandas, polars, Arrow and Parquet: the same numbers")

inputs, labels = torch.rand(8, 3), torch.arange(8) % 2
attack = Foolbox(foolbox.attacks.LinfPGD(steps=3), 0.1, (0.0, 1.0))
moved = attack(certus.ModelLoss(torch.nn.Linear(3, 2)), inputs, labels)
print(f"foolbox moved inputs by {(moved - inputs).abs().max():.3f}")
CODE
"$environment/bin/python" - <<'CODE'
import torch
from pytorch_lightning import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

import certus
from certus.training.lightning_callback import RobustTraining


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(3, 2)

    def forward(self, inputs):
        return self.body(inputs)

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


rows = DataLoader(TensorDataset(torch.rand(64, 3), torch.arange(64) % 2), batch_size=32)
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = Trainer(accelerator="cpu", max_epochs=1, callbacks=[RobustTraining(certus.WRM(gamma=2.0))], **quiet)
trainer.fit(Net(), rows)
print("Lightning trained robustly:", sorted(trainer.callback_metrics))
CODE
echo "certus works from its wheel: $("$environment/bin/python" -V), $constraints"
