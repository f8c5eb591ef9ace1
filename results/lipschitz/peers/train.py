import math

import nets
import torch
from safetensors.torch import save_file

import certus
from certus.datasets import load

torch.set_num_threads(1)
data = load("digits")
for name in ("torchlip", "orthogonium"):
    torch.manual_seed(0)
    model = getattr(nets, f"{name}_training")()
    epochs, batch = 30, 128
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    loss = certus.losses.SmoothMargin(0.5, 4.0)
    x, y = data.train.inputs, data.train.targets
    sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, 5e-3, total_steps=epochs * math.ceil(len(x) / batch), cycle_momentum=False
    )
    for _ in range(epochs):
        for idx in torch.randperm(len(x)).split(batch):
            opt.zero_grad()
            loss(model(x[idx]), y[idx]).mean().backward()
            opt.step()
            sched.step()
    model.eval()
    plain = getattr(nets, name)()
    state = nets.exported(model)
    print(name, plain.load_state_dict(state))
    with torch.no_grad():
        print(
            (plain.eval()(x[:50]) - model(x[:50])).abs().max(),
            (model(data.test.inputs).argmax(1) == data.test.targets).float().mean(),
        )
    save_file(state, f"{name}.safetensors")
