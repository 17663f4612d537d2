"""One SQLite file and one folder per run: records, queries, scores, settings, provenance, export formats."""
