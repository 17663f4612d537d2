"""Training data from any environment: sources, teachers, filters, duplicates, contamination, and what each stage did."""
