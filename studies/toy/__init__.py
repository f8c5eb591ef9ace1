"""The synthetic rings (sec:toy): boundaries of ERM, FGM and WRM, and a certificate."""
