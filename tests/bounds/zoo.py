"""Networks as people write them: classes with a forward, functional calls, loops over blocks.

Each is made small, or in the size that it is known in, 3×32×32. None knows anything of certus.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Activate = Callable[[Tensor], Tensor]


class MLP(nn.Module):
    def __init__(self, inputs: int = 12, width: int = 16, depth: int = 2, activate: Activate = F.softplus):
        super().__init__()
        sizes = [inputs] + [width] * depth
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.head = nn.Linear(width, 4)
        self.activate = activate

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for layer in self.layers:
            x = self.activate(layer(x))
        return self.head(x)


class LeNet(nn.Module):
    """As in torch's own tutorial, with a log-softmax at the end."""

    def __init__(self, side: int = 32, smooth: bool = False):
        super().__init__()
        self.smooth = smooth
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.left = (side - 12) // 4
        self.fc1 = nn.Linear(16 * self.left**2, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        act, pool = (F.elu, F.avg_pool2d) if self.smooth else (F.relu, F.max_pool2d)
        x = pool(act(self.conv1(x)), (2, 2))
        x = pool(act(self.conv2(x)), 2)
        x = x.view(-1, 16 * self.left * self.left)
        x = F.dropout(act(self.fc1(x)), 0.2, training=self.training)
        x = act(self.fc2(x))
        return F.log_softmax(self.fc3(x), dim=1)


class VGG(nn.Module):
    """Configured by a list, with batch norm."""

    def __init__(self, config: tuple[int | str, ...] = (4, "M", 8), act: type[nn.Module] = nn.ELU):
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for entry in config:
            if isinstance(entry, str):
                layers += [nn.AvgPool2d(2) if act is not nn.ReLU else nn.MaxPool2d(2)]
            else:
                layers += [nn.Conv2d(channels, entry, 3, padding=1), nn.BatchNorm2d(entry), act()]
                channels = entry
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Linear(channels, 16), act(), nn.Dropout(), nn.Linear(16, 10))

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        x = F.adaptive_avg_pool2d(x, 1)
        return self.classifier(torch.flatten(x, 1))


class BasicBlock(nn.Module):
    """Of ResNet-18, word for word, ReLU in place."""

    def __init__(self, inplanes: int, planes: int, stride: int = 1, act: type[nn.Module] = nn.ReLU):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = act(inplace=True) if act is nn.ReLU else act()
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or inplanes != planes:
            self.downsample = nn.Sequential(
                nn.Conv2d(inplanes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes)
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(
        self,
        widths: tuple[int, ...] = (4, 6),
        blocks: int = 1,
        act: type[nn.Module] = nn.ReLU,
        classes: int = 10,
    ):
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.act = act()
        self.layers = nn.ModuleList()
        before = widths[0]
        for stage, width in enumerate(widths):
            for index in range(blocks):
                stride = 2 if stage > 0 and index == 0 else 1
                self.layers.append(BasicBlock(before, width, stride, act))
                before = width
        self.fc = nn.Linear(before, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.bn1(self.conv1(x)))
        for layer in self.layers:
            x = layer(x)
        return self.fc(x.mean(dim=(2, 3)))


class PreActivation(nn.Module):
    """A residual network whose blocks begin with batch norm and an activation."""

    def __init__(self, width: int = 4, blocks: int = 2, act: Activate = F.gelu):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(2 * blocks))
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2 * blocks))
        self.head = nn.Linear(width, 10)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for index in range(0, len(self.convs), 2):
            out = self.convs[index](self.act(self.norms[index](x)))
            x = x + self.convs[index + 1](self.act(self.norms[index + 1](out)))
        return self.head(self.act(x).mean([-1, -2]))


class MobileNet(nn.Module):
    """Inverted residuals with depthwise convolutions and ReLU6, after MobileNetV2."""

    def __init__(self, width: int = 4, expand: int = 2, blocks: int = 2, act: type[nn.Module] = nn.ReLU6):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), act())
        self.blocks = nn.ModuleList()
        hidden = width * expand
        for _ in range(blocks):
            self.blocks.append(
                nn.Sequential(
                    *(nn.Conv2d(width, hidden, 1, bias=False), nn.BatchNorm2d(hidden), act()),
                    *(nn.Conv2d(hidden, hidden, 3, 1, 1, groups=hidden, bias=False), nn.BatchNorm2d(hidden)),
                    *(act(), nn.Conv2d(hidden, width, 1, bias=False), nn.BatchNorm2d(width)),
                )
            )
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        x = nn.functional.adaptive_avg_pool2d(x, (1, 1)).reshape(x.shape[0], -1)
        return self.head(x)


class DenseNet(nn.Module):
    """Every layer sees all before it, side by side."""

    def __init__(self, growth: int = 3, layers: int = 3, act: Activate = F.silu):
        super().__init__()
        self.stem = nn.Conv2d(3, growth, 3, padding=1)
        self.layers = nn.ModuleList(
            nn.Conv2d(growth * (index + 1), growth, 3, padding=1) for index in range(layers)
        )
        self.norm = nn.BatchNorm2d(growth * (layers + 1))
        self.head = nn.Linear(growth * (layers + 1), 10)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        features = [self.stem(x)]
        for layer in self.layers:
            features.append(self.act(layer(torch.cat(features, 1))))
        x = self.act(self.norm(torch.cat(features, dim=1)))
        return self.head(F.adaptive_avg_pool2d(x, 1).squeeze(-1).squeeze(-1))


class UNet(nn.Module):
    """Down and up again, with a skip at each level."""

    def __init__(self, width: int = 4, act: Activate = F.mish):
        super().__init__()
        self.down1 = nn.Conv2d(3, width, 3, padding=1)
        self.down2 = nn.Conv2d(width, 2 * width, 3, padding=1)
        self.bottom = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.up2 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.join2 = nn.Conv2d(3 * width, width, 3, padding=1)
        self.join1 = nn.Conv2d(2 * width, width, 3, padding=1)
        self.head = nn.Linear(width, 10)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        first = self.act(self.down1(x))
        second = self.act(self.down2(F.avg_pool2d(first, 2)))
        bottom = self.act(self.bottom(F.avg_pool2d(second, 2)))
        up = torch.cat([self.up2(bottom), second], 1)
        up = self.act(self.join2(up))
        up = F.interpolate(up, scale_factor=2, mode="nearest")
        up = self.act(self.join1(torch.cat([up, first], 1)))
        return self.head(up.mean((2, 3)))


class Tangled(nn.Module):
    """Branches that share layers and cross: nothing that sums of branches could stand for."""

    def __init__(self, width: int = 6):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(5, width), nn.Linear(width, width), nn.Linear(width, width)
        self.d, self.e = nn.Linear(2 * width, width), nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        first = torch.tanh(self.a(x))
        second = torch.sigmoid(self.b(first))
        third = F.gelu(self.c(first) - 0.5 * second)
        fourth = F.softplus(self.d(torch.cat([third, second], 1)))
        return self.e(fourth + third + first * 2)


class ConvNeXtBlock(nn.Module):
    def __init__(self, width: int = 4):
        super().__init__()
        self.dwconv = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.pwconv1 = nn.Linear(width, 4 * width)
        self.pwconv2 = nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        out = self.dwconv(x).permute(0, 2, 3, 1)
        out = self.pwconv2(F.gelu(self.pwconv1(self.norm(out))))
        return x + (self.gamma * out).permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self, width: int = 4):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, stride=4)
        self.block = ConvNeXtBlock(width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(self.stem(x)).mean((2, 3)))


class ViT(nn.Module):
    def __init__(self, width: int = 8, side: int = 8):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, stride=4)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.zeros(1, (side // 4) ** 2, width))
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2) + self.position
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        attention = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(dim=-1)
        x = x + self.out(attention @ v)
        return self.head(x.mean(1))


@dataclass(frozen=True)
class Animal:
    """A network of the zoo: how it is made, small and in full size, and its depth in activations."""

    small: Callable[[], nn.Module]
    shape: tuple[int, ...]
    full: Callable[[], nn.Module]
    full_shape: tuple[int, ...]
    depth: int
    full_depth: int

    def make(self, seed: int = 0, full: bool = False) -> nn.Module:
        """With weights from a seed, batch statistics that are no ones and zeros, in float64 and eval mode."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = self.full() if full else self.small()
            for module in model.modules():
                if isinstance(module, nn.BatchNorm2d):
                    nn.init.uniform_(module.weight, 0.5, 1.5)
                    nn.init.normal_(module.bias, std=0.3)
                    nn.init.normal_(module.running_mean, std=0.3)  # type: ignore[arg-type]
                    nn.init.uniform_(module.running_var, 0.5, 1.5)  # type: ignore[arg-type]
        return model.double().eval()


_CIFAR = (3, 32, 32)
_VGG11 = (64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M")

SMOOTH_ZOO: dict[str, Animal] = {
    "mlp": Animal(MLP, (12,), lambda: MLP(3072, 256, 3), _CIFAR, 2, 3),
    "lenet": Animal(lambda: LeNet(16, True), (3, 16, 16), lambda: LeNet(32, True), _CIFAR, 4, 4),
    "vgg": Animal(VGG, (3, 6, 6), lambda: VGG(_VGG11), _CIFAR, 3, 9),
    "resnet18-gelu": Animal(
        lambda: ResNet(act=nn.GELU), (3, 6, 6), lambda: ResNet((64, 128, 256, 512), 2, nn.GELU), _CIFAR, 5, 17
    ),
    "preactivation-gelu": Animal(PreActivation, (3, 6, 6), lambda: PreActivation(32, 4), _CIFAR, 5, 9),
    "mobilenet-silu": Animal(
        lambda: MobileNet(act=nn.SiLU), (3, 8, 8), lambda: MobileNet(32, 6, 4, nn.SiLU), _CIFAR, 5, 9
    ),
    "densenet": Animal(DenseNet, (3, 6, 6), lambda: DenseNet(12, 6), _CIFAR, 4, 7),
    "unet": Animal(UNet, (3, 8, 8), lambda: UNet(16), _CIFAR, 5, 5),
    "tangled": Animal(Tangled, (5,), lambda: Tangled(64), (5,), 4, 4),
}
"""Every activation smooth: bounds on curvature are finite."""

KINKED_ZOO: dict[str, Animal] = {
    "lenet-relu": Animal(lambda: LeNet(16), (3, 16, 16), LeNet, _CIFAR, 4, 4),
    "vgg-relu": Animal(lambda: VGG(act=nn.ReLU), (3, 6, 6), lambda: VGG(_VGG11, nn.ReLU), _CIFAR, 3, 9),
    "resnet18": Animal(ResNet, (3, 6, 6), lambda: ResNet((64, 128, 256, 512), 2), _CIFAR, 5, 17),
    "preactivation": Animal(
        lambda: PreActivation(act=F.relu), (3, 6, 6), lambda: PreActivation(32, 4, F.relu), _CIFAR, 5, 9
    ),
    "mobilenet": Animal(MobileNet, (3, 8, 8), lambda: MobileNet(32, 6, 4), _CIFAR, 5, 9),
}
"""As they are usually written, with kinks: bounds on slopes only."""

REFUSED_ZOO: dict[str, tuple[Animal, str, str]] = {
    "convnext": (Animal(ConvNeXt, (3, 8, 8), ConvNeXt, _CIFAR, 2, 2), "LayerNorm", "self.norm(out)"),
    "vit": (Animal(ViT, (3, 8, 8), lambda: ViT(8, 32), _CIFAR, 2, 2), "matmul", "q @ k.transpose(-2, -1)"),
}
"""What has no rule, and the line that says so."""
