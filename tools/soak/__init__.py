"""``make soak``: random tests of certus of four kinds, for a given time.

problems    random certified problems, attacked with everything there is
kills       every command, killed or interrupted at a counted write, then asked for again
files       mutated files of every kind that certus reads
lines       random command lines in a folder of their own

A case is a number: the seed and the number decide all of it. So a session is resumed by counting on, and a
violation is told again by ``python -m tools.soak again KIND NUMBER --seed SEED``.
"""
