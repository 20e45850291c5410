"""Read and check pipeline.yaml: what a pipeline declares of its sources, its view and its schedule."""
