"""Looking at parallel text before training: faults, what they cost, and how to mend them. Imports no torch."""
