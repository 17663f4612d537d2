"""Numbers with error bars."""
