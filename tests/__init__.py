"""The tests: a folder for each package, and others for tests across packages (corpus, properties, crash, soak).

sandbox.py has the warehouses of the fixtures `sandbox` and `delta`, replay.py histories that several queries share,
night.py the choice of samples.
"""
