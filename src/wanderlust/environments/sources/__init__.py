"""One file for each optional package that tasks come from: it imports the package at the top, and is loaded by name."""
