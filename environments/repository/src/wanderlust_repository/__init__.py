"""Repository tasks: real packages with one fault each, judged by the packages' own tests in a sandbox.

`mining` makes tasks, `task_file` keeps them, `verdict` judges what an agent has made of the folder.
"""
