"""Other projects' environments, logs, graders and programs as ours, and ours as theirs."""
