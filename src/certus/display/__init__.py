"""Tables, figures and the report of results, for commands, notebooks and ``print``."""
