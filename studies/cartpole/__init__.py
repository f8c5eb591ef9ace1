"""Robust Markov decision processes: cart-pole (sec:cartpole) and a pendulum."""
