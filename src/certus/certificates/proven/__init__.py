"""The trusted kernel of upper bounds; it imports no attack, maximizer, run or picture."""
