"""Show Deltafold on the flights of 2013, with the pipelines of the folder pipelines/."""
