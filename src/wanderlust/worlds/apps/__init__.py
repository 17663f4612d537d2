"""Ready-made apps, one file each; none of them is named anywhere else."""
