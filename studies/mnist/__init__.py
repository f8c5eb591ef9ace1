"""The paper's experiments on MNIST (sec:mnist-real and the supplement)."""
