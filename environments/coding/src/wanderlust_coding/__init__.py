"""Functions to write, judged by hidden unit tests in a sandbox: HumanEval, and problems of your own."""
