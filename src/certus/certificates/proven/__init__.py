"""The trusted kernel: what upper bounds rest on. It imports no attack, no ascent, no run and no picture."""
